package preflight_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/preflight"
	"github.com/kubexm/kubexm/pkg/runner"
)

// TestRegistryPreflight has a registry host without a kubelet whose port is taken and whose disk is small.
func TestRegistryPreflight(t *testing.T) {
	config := strings.Replace(clustertest.Alone, "}]\n", "}, {name: node2, address: 10.0.0.12, roles: [registry]}]\n", 1)
	c := clustertest.Parse(t, strings.Replace(config, "master, worker", "master, etcd, worker", 1), well(func(f *runner.Facts) {
		f.Listening[443], f.Filled = "nginx", []string{"/var/lib/registry"}
		f.Disks = []runner.Disk{{Path: "/var/lib/registry", Mount: "/var", FreeMiB: 4999}, {Path: "/usr/local/bin", Mount: "/", FreeMiB: 9999}}
		f.Tried = map[string]string{"10.0.0.12:443": "no answer in 2 seconds"}
	}))
	got := []string{}
	for _, f := range preflight.Facts(c, nil) {
		got = append(got, f.Host+" "+f.Check+" "+f.Found)
	}
	want := "node1 leftovers /var/lib/registry not empty; node1 reachability port 443 of node2: no answer in 2 seconds; node2 disk 4999 MiB free in /var; " +
		"node2 leftovers /var/lib/registry not empty; node2 ports port 443 (by nginx) taken"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// TestHarborPreflight has a host for Harbor that lacks what that needs.
func TestHarborPreflight(t *testing.T) {
	config := strings.Replace(clustertest.Alone, "master, worker]}]\n", "master, etcd, worker]}, {name: node2, address: 10.0.0.12, roles: [registry]}]\n  registry: {type: harbor}\n", 1)
	docker := func(f *runner.Facts) { f.Docker, f.Compose = true, "2.39.1" }
	for name, tt := range map[string]struct {
		spoil func(*runner.Facts)
		want  string
	}{
		"all well":     {func(*runner.Facts) {}, ""},
		"no Docker":    {func(f *runner.Facts) { f.Docker, f.Compose = false, "" }, "node2 docker docker.service not active, docker compose missing"},
		"no compose":   {func(f *runner.Facts) { f.Compose = "" }, "node2 docker docker.service active, docker compose missing"},
		"compose 1":    {func(f *runner.Facts) { f.Compose = "1.29.2" }, "node2 docker docker.service active, docker compose 1.29.2"},
		"firewall":     {func(f *runner.Facts) { f.Firewalls = []string{"firewalld"} }, "node2 docker firewalld active: turning it off removes Docker's rules, too; node1 firewall firewalld active; node2 firewall firewalld active"},
		"arm64":        {func(f *runner.Facts) { f.Arch = "arm64" }, "node2 arch arm64"},
		"few MiB":      {func(f *runner.Facts) { f.MemoryMiB = 3000 }, "node1 memory 3000 MiB of memory; node2 memory 3000 MiB of memory"},
		"its ports":    {func(f *runner.Facts) { f.Listening[80], f.Listening[1514] = "nginx", "rsyslogd" }, "node2 ports port 80 (by nginx), 1514 (by rsyslogd) taken"},
		"its own data": {func(f *runner.Facts) { f.Filled = []string{"/data/harbor"} }, "node1 leftovers /data/harbor not empty; node2 leftovers /data/harbor not empty"},
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.Parse(t, config, well(func(f *runner.Facts) { docker(f); tt.spoil(f) }))
			var got []string
			for _, f := range preflight.Facts(c, nil) {
				got = append(got, f.Host+" "+f.Check+" "+f.Found)
			}
			if text := strings.Join(got, "; "); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
			if dirs := cluster.DataDirs(c.Spec, c.Host("node2")); slices.Contains(dirs, c.DataRoot()) || !slices.Contains(dirs, "/data/harbor") {
				t.Errorf("directories %q", dirs)
			}
		})
	}
}

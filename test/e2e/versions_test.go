//go:build e2e

package e2e

import (
	"testing"

	"github.com/kubexm/kubexm/test/testbed"
	"github.com/kubexm/kubexm/test/testbed/build"
)

// Every minor version of Kubernetes that is supported, with what differs by it:
// both formats of containerd's configuration, the version of etcd; and what the
// rows do not show: etcd outside of kubeadm, kube-proxy with iptables, users who
// need sudo.
func TestVersions(t *testing.T) {
	for _, v := range []struct {
		name       string
		row        int
		kubernetes string
		containerd string
		edits      []edit
	}{
		{"etcd outside of kubeadm", 3, "1.37", "", []edit{set("global.user", "nopass")}},
		{"1.37 with iptables", 2, "1.37", "", []edit{set("kubernetes.proxyMode", "iptables"), set("global.user", "kube"), set("global.sudoPassword", testbed.Password)}},
		{"1.36", 1, "1.36", "", nil},
		{"1.35 with containerd 1.7", 2, "1.35", "1.7", nil},
		{"1.34 with containerd 1.7", 1, "1.34", "1.7", nil},
		{"1.34 as binaries", 2, "1.34", "", nil},
	} {
		t.Run(v.name, func(t *testing.T) {
			defer timed(t)()
			provide(t, v.kubernetes, v.containerd)
			edits := append(v.edits, impatient, set("runtime.version", find(t, "containerd@"+v.containerd).Version))
			c := newCluster(t, v.row, where{kubernetes: v.kubernetes}, edits...)
			c.containerd = v.containerd
			cycle(t, c)
		})
	}
}

// provide builds what a version of Kubernetes needs beyond what every test needs.
func provide(t *testing.T, kubernetes, containerd string) {
	t.Helper()
	k := find(t, "kubernetes@"+kubernetes)
	provideFor(t, k.Version, k, find(t, "containerd@"+containerd), find(t, "etcd@3.6"))
}

// provideFor builds components beyond those that every test needs, and makes the images of a version of Kubernetes, of the newest if it is empty.
func provideFor(t *testing.T, kubernetes string, all ...build.Component) {
	t.Helper()
	must(t, the.builder.Build(t.Context(), all))
	must(t, the.images(t.Context(), kubernetes))
}

func find(t *testing.T, want string) build.Component {
	t.Helper()
	c, err := build.Find(the.table, want)
	must(t, err)
	return c
}

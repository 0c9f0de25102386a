package containerd_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/containerd"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestRendered(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		edit func(string, *runner.Facts)
	}{
		"2.x":                 {},
		"1.7":                 {spec: "  kubernetes: {version: v1.34.11}\n  runtime: {version: v1.7.33}\n"},
		"own root":            {spec: "  runtime: {dataRoot: /data/containerd}\n"},
		"cannot raise limits": {edit: func(_ string, f *runner.Facts) { f.Capabilities = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			k := clustertest.New(t, c.spec, c.edit)
			steps := containerd.Steps(k, "node2", step.Files{})
			golden.Equal(t, clustertest.Text(steps[1], steps[2], steps[0]))
		})
	}
}

// TestRegistries shows what containerd gets to read of registries: secrets only where root alone reads.
func TestRegistries(t *testing.T) {
	file := clustertest.CAFile(t)
	const private = "  roleGroups: {registry: [node1]}\n"
	const login = "  registry: {auth: {registry.kubexm.local: {username: nodes, password: hunter2}}"
	for name, spec := range map[string]string{
		"none": "",
		"others": `  registry:
    mirrors: {docker.io: ["https://mirror.example.com:5000", "http://hub.example.com/hub/", "https://proxy.example.com/v2/docker"], quay.io: []}
    auth: {docker.io: {username: me, password: hunter2}, "mirror.example.com:5000": {caFile: ` + file + `, username: robot, password: hunter3}}
    insecure: ["plain.example.com:8080", hub.example.com]
`,
		"offline":          "  registry: {mirrors: {docker.io: [\"https://a.example.com\", \"https://b.example.com/hub\"]}, insecure: [b.example.com]}\n  source: {offline: true}\n",
		"private":          private + login + ", mirrors: {ghcr.io: [\"https://mirror.example.com\"], mcr.microsoft.com: []}}\n",
		"private, offline": private + login + "}\n  source: {offline: true}\n",
		"private, another port": private + "  registry: {privateRegistry: \"images.example.com:5000\", " +
			"auth: {\"images.example.com:5000\": {username: nodes, password: hunter2}}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			golden.Equal(t, clustertest.Text(containerd.Registries(clustertest.New(t, spec, nil))))
		})
	}
}

// TestForgotten has a registry leave the configuration: what others wrote of registries stays.
func TestForgotten(t *testing.T) {
	h := runnertest.Debian12("node2")
	const certsD = "/etc/containerd/certs.d/"
	h.Put(certsD+"theirs.example.com/hosts.toml", "server = \"http://theirs.example.com\"\n", 0o644)
	apply := func(spec string) (changed bool) {
		k := clustertest.New(t, spec, nil)
		s, r := containerd.Steps(k, "node2", containerd.Registries(k))[1], h.Runner()
		c, err := s.Precheck(t.Context(), r)
		if err != nil || r.RoundTrips() != 1 {
			t.Fatalf("looked in %d round trips: %v", r.RoundTrips(), err)
		}
		if c == nil {
			return false
		}
		if err := errors.Join(c.Run(t.Context()), step.Verify(t.Context(), r, s, c)); err != nil {
			t.Fatal(err)
		}
		return true
	}
	const a, b, theirs = certsD + "a.example.com", certsD + "b.example.com:5000", certsD + "theirs.example.com/hosts.toml"
	have := func(want ...string) {
		t.Helper()
		dirs, err := h.Runner().Exists(t.Context(), a, b, theirs)
		if err != nil || !slices.Equal(dirs, want) {
			t.Errorf("there is %q, want %q: %v", dirs, want, err)
		}
	}
	for _, c := range []struct {
		spec string
		left []string
	}{
		{"  registry: {insecure: [a.example.com, \"b.example.com:5000\"]}\n", []string{a, b, theirs}},
		{"  registry: {insecure: [\"b.example.com:5000\"]}\n", []string{b, theirs}},
		{"", []string{theirs}},
	} {
		if first, again := apply(c.spec), apply(c.spec); !first || again {
			t.Errorf("%q changed something: %t, then %t", c.spec, first, again)
		}
		have(c.left...)
	}
}

// TestDigestTellsNoPassword has the unit, which everybody on the host can read, not depend on logins.
func TestDigestTellsNoPassword(t *testing.T) {
	unit := func(password string) string {
		c := clustertest.New(t, "  registry: {auth: {docker.io: {username: me, password: "+password+"}}}\n", nil)
		files, err := containerd.Steps(c, "node2", step.Files{})[2].(step.Service).Writes()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s", files)
	}
	if one, two := unit("hunter2"), unit("hunter3"); one != two {
		t.Errorf("the unit follows the password:\n%s\n%s", one, two)
	}
}

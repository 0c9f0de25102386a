package crio_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/crio"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

const runtime = "  runtime: {type: cri-o}\n"

func TestRendered(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		edit func(string, *runner.Facts)
	}{
		"default":             {spec: runtime},
		"own root":            {spec: "  runtime: {type: cri-o, version: v1.35.2, dataRoot: /data/crio}\n"},
		"cannot raise limits": {spec: runtime, edit: func(_ string, f *runner.Facts) { f.Capabilities = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			k := clustertest.New(t, c.spec, c.edit)
			steps := crio.Steps(k, "node2", step.Files{})
			golden.Equal(t, clustertest.Text(steps[1], steps[2], steps[0]))
		})
	}
}

// TestRegistries shows what CRI-O gets to read of registries: secrets only where root alone reads.
func TestRegistries(t *testing.T) {
	file := clustertest.CAFile(t)
	const private = runtime + "  roleGroups: {registry: [node1]}\n"
	for name, spec := range map[string]string{
		"none": runtime,
		"others": runtime + `  registry:
    mirrors: {docker.io: ["https://mirror.example.com:5000", "http://hub.example.com/hub/", "https://proxy.example.com/v2/docker"], quay.io: []}
    auth: {docker.io: {username: me, password: hunter2}, "mirror.example.com:5000": {caFile: ` + file + `, username: robot, password: hunter3}}
    insecure: ["plain.example.com:8080"]
`,
		"offline": runtime + "  registry: {mirrors: {docker.io: [\"https://a.example.com\", \"https://b.example.com/hub\"]}, insecure: [b.example.com]}\n  source: {offline: true}\n",
		"private": private + "  registry: {auth: {registry.kubexm.local: {username: nodes, password: hunter2}}, mirrors: {ghcr.io: [\"https://mirror.example.com\"]}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			golden.Equal(t, clustertest.Text(crio.Registries(clustertest.New(t, spec, nil))))
		})
	}
}

// TestForgotten has a registry leave the configuration, and a run die while kubexm was a mirror: what others wrote stays.
func TestForgotten(t *testing.T) {
	file := clustertest.CAFile(t)
	h := runnertest.Debian12("node2")
	const theirs, ours, mirror = "/etc/containers/certs.d/a.example.com/ca.crt", "/etc/containers/certs.d/a.example.com/kubexm.crt", "/etc/crio/registries.conf.d/kubexm.store.conf"
	h.Put(theirs, "theirs", 0o644)
	apply := func(c *cluster.Cluster) {
		t.Helper()
		for want := range 2 {
			s, r := crio.Registries(c), h.Runner()
			change, err := s.Precheck(t.Context(), r)
			if err != nil || (change == nil) != (want == 1) || r.RoundTrips() != 1 {
				t.Fatalf("look %d found %v in %d round trips: %v", want, change, r.RoundTrips(), err)
			}
			if change == nil {
				return
			}
			if err := change.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	has := func(path string) bool { _, ok := h.Get(path); return ok }
	apply(clustertest.New(t, runtime+"  registry: {auth: {a.example.com: {caFile: "+file+"}}}\n", nil))
	if !has(ours) {
		t.Error("the registry's authority is not there")
	}
	h.Put(mirror, "[[registry]]\n", 0o600)
	apply(clustertest.New(t, runtime, nil))
	if has(ours) || has(mirror) || !has(theirs) {
		t.Errorf("there are: the authority %t, the mirror %t, what others wrote %t", has(ours), has(mirror), has(theirs))
	}
	if auth, _ := h.Get("/etc/crio/auth.json"); strings.TrimSpace(auth) != `{"auths":{}}` {
		t.Errorf("logins are %s", auth)
	}
}

// TestImages brings images from the store: none of the ways to them stays, whatever happens.
func TestImages(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*runnertest.Host)
		want string // in the error; empty: it works
	}{
		"well": {},
		"a reload that fails": {func(h *runnertest.Host) {
			h.OnReload["crio.service"] = func(*runnertest.Host) error { return errors.New("unable to reload configuration") }
		}, "connection refused"},
		"no forwarding":     {func(h *runnertest.Host) { h.NoForwarding = true }, "denied by peer"},
		"stopped meanwhile": {func(h *runnertest.Host) { h.Deny = deny("crictl' pull", "crictl pull") }, "no more"},
	} {
		t.Run(name, func(t *testing.T) {
			k := clustertest.New(t, runtime, nil)
			clustertest.Stock(t, k, "node2")
			synctest.Test(t, func(t *testing.T) {
				h := runnertest.Debian12("node2")
				for _, program := range []string{"crio", "conmon", "pinns", "crictl"} {
					h.Put("/usr/local/bin/"+program, "ELF", 0o755)
				}
				for _, s := range crio.Steps(k, "node2", crio.Registries(k))[1:] {
					run(t, h, s)
				}
				before := h.Snapshot()
				if c.do != nil {
					c.do(h)
				}
				s := crio.Load(k, "node2")
				change, err := s.Precheck(t.Context(), h.Runner())
				if err != nil || change == nil {
					t.Fatalf("%v, %v", change, err)
				}
				if err = change.Run(t.Context()); err == nil {
					err = step.Verify(t.Context(), h.Runner(), s, change)
				}
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if c.want == "" && len(h.Images()) != len(k.Images("node2")) {
					t.Errorf("there are %v", h.Images())
				}
				for line := range strings.Lines(h.Snapshot()) {
					if !strings.Contains(before, line) && (strings.Contains(line, "store.conf") || strings.Contains(line, "127.0.0.1")) {
						t.Errorf("left: %s", line)
					}
				}
			})
		})
	}
}

func run(t *testing.T, h *runnertest.Host, s step.Step) {
	t.Helper()
	change, err := s.Precheck(t.Context(), h.Runner())
	if err == nil && change != nil {
		err = change.Run(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// deny refuses commands that have one of some words.
func deny(words ...string) func(string) error {
	return func(line string) error {
		for _, w := range words {
			if strings.Contains(line, w) {
				return errors.New("no more")
			}
		}
		return nil
	}
}

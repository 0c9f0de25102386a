package docker_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/containerd"
	"github.com/kubexm/kubexm/pkg/step/docker"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

const runtime = "  runtime: {type: docker}\n"

func TestRendered(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		edit func(string, *runner.Facts)
	}{
		"default":             {spec: runtime},
		"own root":            {spec: "  runtime: {type: docker, version: v29.9.2, dataRoot: /data/docker}\n"},
		"cannot raise limits": {spec: runtime, edit: func(_ string, f *runner.Facts) { f.Capabilities = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			k := clustertest.New(t, c.spec, c.edit)
			steps := docker.Steps(k, "node2", step.Files{})
			golden.Equal(t, clustertest.Text(slices.Concat(steps[1:], steps[:1])...))
		})
	}
}

// TestRegistries shows what Docker and the kubelet get to read of registries: secrets only where root alone reads.
func TestRegistries(t *testing.T) {
	file := clustertest.CAFile(t)
	for name, spec := range map[string]string{
		"none": runtime,
		"others": runtime + `  registry:
    mirrors: {docker.io: ["https://mirror.example.com:5000"], quay.io: []}
    auth: {docker.io: {username: me, password: hunter2}, "mirror.example.com:5000": {caFile: ` + file + `, username: robot, password: hunter3}}
    insecure: ["plain.example.com:8080"]
`,
		"private": runtime + "  roleGroups: {registry: [node1]}\n  registry: {auth: {registry.kubexm.local: {username: nodes, password: hunter2}}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			k := clustertest.New(t, spec, nil)
			golden.Equal(t, clustertest.Text(docker.Registries(k, containerd.Registries(k))))
		})
	}
}

// TestImages brings images from the store and keeps them: one whose keeper has gone, or keeps another of its name, is kept anew; what is not needed any more is let go.
func TestImages(t *testing.T) {
	k := clustertest.New(t, runtime, nil)
	clustertest.Stock(t, k, "node2")
	h := runnertest.Debian12("node2")
	for _, program := range []string{"docker", "dockerd", "containerd", "containerd-shim-runc-v2", "cri-dockerd", "crictl"} {
		h.Put("/usr/local/bin/"+program, "ELF", 0o755)
	}
	for _, s := range docker.Steps(k, "node2", step.Files{})[1:] {
		run(t, h, s)
	}
	images := k.Images("node2")
	load := docker.Load(k, "node2")
	diff := func() string {
		t.Helper()
		change, err := load.Precheck(t.Context(), h.Runner())
		if err != nil {
			t.Fatal(err)
		}
		if change == nil {
			return ""
		}
		return change.Diff
	}
	if got := diff(); strings.Count(got, "(missing)") != len(images) {
		t.Errorf("at first: %s", got)
	}
	run(t, h, load)
	if got := diff(); got != "" || len(h.Images()) != len(images) {
		t.Errorf("then: %s, and there are %v", got, h.Images())
	}
	const keeps, old = "/var/lib/docker/keeps", "registry.k8s.io/old:v1"
	all, _ := h.Get(keeps)
	first, rest, _ := strings.Cut(all, "\n")
	name := strings.Fields(first)[1]
	for what, c := range map[string]struct{ keeps, want string }{
		"its keeper has gone":         {rest, "+ " + name},
		"another of its name":         {strings.Fields(first)[0] + " " + name + " sha256:0\n" + rest, "+ " + name},
		"not needed any more":         {all + fmt.Sprintf("kubexm-keeps-%.6x %s sha256:0\n", sha256.Sum256([]byte(old)), old), "- " + old},
		"a keeper of nobody's at all": {all, ""},
	} {
		h.Put(keeps, c.keeps, 0o600)
		if got := diff(); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
		run(t, h, load)
		if got := diff(); got != "" {
			t.Errorf("%s, after it: %s", what, got)
		}
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

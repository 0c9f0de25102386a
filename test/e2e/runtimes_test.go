//go:build e2e

package e2e

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/test/smoke"
	"github.com/kubexm/kubexm/test/testbed/build"
)

// runtimes are what is asked of the container runtimes that clusters can have.
var runtimes = map[string]struct {
	systemd string // how many lines say that systemd makes control groups: command
	login   string // prints the login of a node to registries: command
}{
	"containerd": {
		`grep -c "SystemdCgroup = true" /etc/containerd/config.toml`,
		`sed -n 's/.*Authorization = \[*"\(Basic [^"]*\)".*/\1/p' /etc/containerd/certs.d/*/hosts.toml | head -n 1`,
	},
	"cri-o": {
		`grep -c 'cgroup_manager = "systemd"' /etc/crio/crio.conf.d/10-kubexm.conf`,
		`sed 's/.*"auth":"\([^"]*\)".*/Basic \1/' /etc/crio/auth.json`,
	},
	"docker": {
		`grep -c native.cgroupdriver=systemd /etc/docker/daemon.json`,
		`sed 's/.*"auth":"\([^"]*\)".*/Basic \1/' /var/lib/kubelet/config.json`,
	},
}

// runtime is that of all clusters: containerd, or what E2E_RUNTIME names.
func runtime(t *testing.T) plugin.Runtime {
	t.Helper()
	name := cmp.Or(os.Getenv("E2E_RUNTIME"), "containerd")
	all := plugin.Runtimes()
	i := slices.IndexFunc(all, func(r plugin.Runtime) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("there is no container runtime %q", name)
	}
	return all[i]
}

// another is the runtime, where it is not the default.
func another(t *testing.T) string {
	t.Helper()
	if r := runtime(t); r.Name != plugin.Runtimes()[0].Name {
		provideFor(t, "", parts(t, r)...)
		return r.Name
	}
	return ""
}

// parts are the components of a runtime.
func parts(t *testing.T, r plugin.Runtime) (all []build.Component) {
	t.Helper()
	for _, p := range r.Parts {
		all = append(all, find(t, p.Name))
	}
	return all
}

// others are the names of all runtimes, the first one last: one after the other, and back.
func others(all []plugin.Runtime, first string) (names []string) {
	first = cmp.Or(first, all[0].Name)
	for _, r := range all {
		if r.Name != first {
			names = append(names, r.Name)
		}
	}
	return append(names, first)
}

// forgot wants nothing on nodes of a container runtime that is not theirs any more, and gives the one that is the image of the tests.
func (c *cluster) forgot(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(c.file)
	must(t, err)
	var config v1alpha1.Cluster
	must(t, yaml.Unmarshal(text, &config))
	var gone []string
	for _, r := range plugin.Runtimes() {
		if r.Name == config.Spec.Runtime.Type {
			continue
		}
		var s v1alpha1.Spec
		r.Default(&s)
		gone = append(gone, s.Runtime.DataRoot)
		for _, u := range r.Units() {
			gone = append(gone, "/etc/systemd/system/"+u+".service")
		}
	}
	for _, n := range c.kubelets() {
		if left := the.on(t, n, "ls -d "+strings.Join(gone, " ")+" 2>/dev/null || true"); left != "" {
			t.Errorf("%s still has %s", n.Name, left)
		}
		must(t, the.bed.Load(t.Context(), n, smoke.Image))
	}
}

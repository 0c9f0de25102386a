//go:build e2e

package e2e

import (
	"cmp"
	"os"
	"slices"
	"testing"

	"github.com/kubexm/kubexm/pkg/plugin"
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
		var parts []build.Component
		for _, p := range r.Parts {
			parts = append(parts, find(t, p.Name))
		}
		provideFor(t, "", parts...)
		return r.Name
	}
	return ""
}

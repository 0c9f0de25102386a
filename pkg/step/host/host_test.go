package host_test

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/host"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestRendered(t *testing.T) {
	for name, spec := range map[string]string{
		"defaults": "",
		"configured": `  system: {modules: [rbd], sysctl: {vm.max_map_count: "262144", vm.panic_on_oom: "1"}, debs: [nfs-common]}
  extra: {hosts: [{domain: mirror.example.com, address: 10.0.0.9}]}
  loadBalancer: {domain: api.example.com}
  kubernetes: {proxyMode: ipvs}
`,
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(t, spec, nil)
			text := clustertest.Text(host.Record(c, "node1"), host.Hosts(c, "node1", "/joined"), host.Hosts(c, "node2", "/joined"),
				host.Packages(c, "node2"), host.Modules(c), host.Sysctl(c, "node2"))
			golden.Equal(t, strings.Replace(text, c.ID(), "ID", 1))
		})
	}
}

// TestDualStack has a node that learns its routes of IPv6 from router advertisements.
func TestDualStack(t *testing.T) {
	c := clustertest.Parse(t, clustertest.DualStack, func(_ string, f *runner.Facts) {
		for i := range f.Interfaces {
			f.Interfaces[i].Learns = true
		}
	})
	golden.Equal(t, clustertest.Text(host.Hosts(c, "node2", "/joined"), host.Sysctl(c, "node2")))
}

// TestPackagesUnderOtherNames installs on a host whose iptables is a package of another name.
func TestPackagesUnderOtherNames(t *testing.T) {
	h := runnertest.Rocky9("node1")
	before := h.Snapshot()
	c := clustertest.New(t, "", func(_ string, f *runner.Facts) { f.OS, f.OSLike, f.PackageManager = "rocky", []string{"rhel"}, "dnf" })
	s := step.Unwrap(host.Packages(c, "node1"))
	change, err := s.Precheck(t.Context(), h.Runner())
	if err != nil || change == nil {
		t.Fatalf("%v, %v", change, err)
	}
	if err := change.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := step.Verify(t.Context(), h.Runner(), s, change); err != nil {
		t.Error(err)
	}
	if err := h.Runner().Restore(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, h.Snapshot()); diff != "" {
		t.Errorf("after Restore:\n%s", diff)
	}
}

// TestSwapOff wants lines back that were commented out, and those that others added kept.
func TestSwapOff(t *testing.T) {
	h := runnertest.Debian12("node1")
	before := h.Snapshot()
	change, err := host.SwapOff().Precheck(t.Context(), h.Runner())
	if err != nil || change == nil {
		t.Fatalf("%v, %v", change, err)
	}
	if err := change.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	const theirs = "/dev/vdb1 /data xfs defaults 0 0\n"
	text, _ := h.Get("/etc/fstab")
	h.Put("/etc/fstab", text+theirs, 0o644)
	if err := h.Runner().Restore(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	text, _ = h.Get("/etc/fstab")
	h.Put("/etc/fstab", strings.Replace(text, theirs, "", 1), 0o644)
	if diff := cmp.Diff(before, h.Snapshot()); diff != "" || !strings.Contains(text, theirs) {
		t.Errorf("after Restore, fstab is %q:\n%s", text, diff)
	}
}

// TestLeave ends connections to an address that goes, and no others.
func TestLeave(t *testing.T) {
	c, h := clustertest.New(t, "", nil), runnertest.Debian12("node4")
	if steps := host.Leave(c, ""); steps != nil {
		t.Errorf("nothing to leave: %v", steps)
	}
	for _, of := range [][2]string{{"10.0.0.100", "10.0.0.11"}, {"fd00::100", "fd00::11"}} {
		s, others := host.Leave(c, of[0])[0], host.Leave(c, of[1])[0]
		for _, want := range []string{"", "+ no connections to " + of[0], ""} {
			if got := gap(t, s, h); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
			change, _ := s.Precheck(t.Context(), h.Runner())
			if change != nil {
				if err := change.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if gap(t, others, h) == "" {
					t.Error("the connections of others are closed")
				}
				continue
			}
			for _, to := range [][2]string{{of[0], "6443"}, {of[0], "6443"}, {of[0], "443"}, {of[1], "6443"}} {
				h.Connect(net.JoinHostPort(to[0], to[1]))
			}
		}
	}
}

func gap(t *testing.T, s step.Step, h *runnertest.Host) string {
	t.Helper()
	change, err := s.Precheck(t.Context(), h.Runner())
	if err != nil {
		t.Fatal(err)
	}
	if change == nil {
		return ""
	}
	return change.Diff
}

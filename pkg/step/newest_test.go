package step_test

import (
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// outdated are hosts of both families whose repositories have two packages in other versions, and one that is not installed.
func outdated(t *testing.T) map[string]*runnertest.Host {
	t.Helper()
	hosts := map[string]*runnertest.Host{"apt": runnertest.Debian12("node1"), "dnf": runnertest.Rocky9("node1")}
	for _, h := range hosts {
		h.Newer = map[string]runnertest.Package{"bash": {Version: "5.3"}, "coreutils": {Version: "9.9"}, "socat": {Version: "2.0"}}
	}
	return hosts
}

// TestNewest upgrades all packages, or some, and finds nothing more to do.
func TestNewest(t *testing.T) {
	for name, test := range map[string]struct {
		names []string
		want  map[string]string // by package manager
	}{
		"all": {want: map[string]string{
			"apt": "+ package bash 5.3, was 1.0\n+ package coreutils 9.9, was 1.0\n", "dnf": "+ package bash\n+ package coreutils\n",
		}},
		"some": {[]string{"core*", "socat", "nothing"}, map[string]string{"apt": "+ package coreutils 9.9, was 1.0\n", "dnf": "+ package coreutils\n"}},
		"none": {[]string{"socat"}, map[string]string{"apt": "", "dnf": ""}},
	} {
		for manager, h := range outdated(t) {
			t.Run(name+"/"+manager, func(t *testing.T) {
				s := step.Newest{Packages: step.Packages{Manager: manager, Names: test.names}}
				before, r := h.Snapshot(), h.Runner()
				c, err := s.Precheck(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				if h.Snapshot() != before {
					t.Error("a look has changed the host")
				}
				if c == nil {
					if test.want[manager] != "" {
						t.Error("nothing to do")
					}
					return
				}
				if c.Diff != test.want[manager] {
					t.Errorf("the diff is\n%s", c.Diff)
				}
				if err := c.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := step.Verify(t.Context(), r, s, c); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestNewestFromStore upgrades a host without a network by what the store has, of which nothing stays on the host, after a look, too.
func TestNewestFromStore(t *testing.T) {
	h := runnertest.Debian12("node1")
	if _, err := h.Runner().Sh(t.Context(), "apt-get update && apt-get install -y socat"); err != nil {
		t.Fatal(err)
	}
	h.Offline = true
	h.Newer = map[string]runnertest.Package{"bash": {Version: "5.3"}, "socat": {Version: "2.0"}}
	s := step.Newest{Packages: step.Packages{Manager: "apt", From: stocked(t, "debian12", debs("socat", "libwrap0"))}}
	h.Put(runner.StateDir+"/sums/var/lib/kubexm/other", "x", 0o644) // the host is one of a cluster
	before := h.Snapshot()
	c, err := s.Precheck(t.Context(), h.Runner())
	if err != nil || c == nil || c.Diff != "+ package socat 2.0, was 1.0\n" {
		t.Fatalf("%+v, %v", c, err)
	}
	if h.Snapshot() != before {
		t.Error("a look has changed the host")
	}
	h.ClearLog()
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := step.Verify(t.Context(), h.Runner(), s, c); err != nil || !strings.Contains(strings.Join(h.Log(), "\n"), "upgrade socat") || h.Snapshot() != before {
		t.Errorf("%v; the host did %q", err, h.Log())
	}
}

// TestNewestFails has hosts whose repositories do not answer, and one without a package manager that is known.
func TestNewestFails(t *testing.T) {
	for manager, h := range outdated(t) {
		h.Offline = true
		_, err := step.Newest{Packages: step.Packages{Manager: manager}}.Precheck(t.Context(), h.Runner())
		if err == nil || !strings.HasPrefix(err.Error(), "asking for newer packages: ") || !strings.Contains(fault.Advice(err), "repositories") {
			t.Errorf("%s: %v (%s)", manager, err, fault.Advice(err))
		}
	}
	if _, err := (step.Newest{}).Precheck(t.Context(), runnertest.Debian12("node1").Runner()); err == nil {
		t.Error("without a package manager there is no error")
	}
}

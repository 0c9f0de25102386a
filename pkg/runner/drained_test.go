package runner_test

import (
	"testing"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// TestMarkDrained has the file take the place of the one before as a whole: it is never empty.
func TestMarkDrained(t *testing.T) {
	const file = runner.StateDir + "/drained"
	h := runnertest.Debian12("node1")
	r := h.Runner()
	for _, want := range []runner.Drained{runner.Cordoned, runner.Begun, runner.NotDrained} {
		h.Put(file, "former\n", 0o644)
		if _, err := r.Sh(t.Context(), "rm -f /tmp/was; ln "+file+" /tmp/was"); err != nil {
			t.Fatal(err)
		}
		if err := r.MarkDrained(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if was, _ := h.Get("/tmp/was"); was != "former\n" {
			t.Errorf("the file before was written over with %q", was)
		}
		if is, err := r.Drained(t.Context()); err != nil || is != want {
			t.Errorf("%q is noted, not %q; %v", is, want, err)
		}
	}
}

func TestManagers(t *testing.T) {
	for want, conf := range map[string]map[string]any{
		"": {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None", "topologyManagerScope": "container", "kubeReserved": map[string]any{"cpu": "1"}, "maxPods": 9},
		`{"cpuManagerPolicy":"static","kubeReserved":{"cpu":"1"}}`: {"cpuManagerPolicy": "static", "kubeReserved": map[string]any{"cpu": "1"}},
		`{"topologyManagerPolicy":"best-effort"}`:                  {"topologyManagerPolicy": "best-effort"},
	} {
		if got := runner.Managers(conf); got != want {
			t.Errorf("%v: %s, want %s", conf, got, want)
		}
	}
}

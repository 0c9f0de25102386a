package app_test

import (
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/engine"
)

// TestLeavesBirth takes a host off a cluster whose first run did not come to its end: it is cleaned by the run that makes the cluster.
func TestLeavesBirth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row2"), "")
		before := w.hosts["node3"].Snapshot()
		a := w.attempt(t.Context())
		a.Event = func(ev engine.Event) {
			if ev.Host == "node3" && ev.Status == engine.Changed {
				a.kill()
			}
		}
		if _, err := a.create(); err == nil {
			t.Fatal("the killed run ended well")
		}
		if w.hosts["node3"].Snapshot() == before || w.api != nil {
			t.Fatal("it was killed too early, or too late")
		}
		var lines []string
		for line := range strings.Lines(row(t, "row2")) {
			if !strings.Contains(line, "name: node3,") {
				lines = append(lines, line)
			}
		}
		w.configure(strings.Join(lines, ""))
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		same(t, "node3", before, w.hosts["node3"].Snapshot())
		w.settled()
	})
}

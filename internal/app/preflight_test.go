package app_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestPreflight looks at machines that are fit, that are not, and at a cluster.
func TestPreflight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row1"), "")
		before := w.snapshot()
		look := func() *app.Fitness {
			t.Helper()
			a := w.attempt(t.Context())
			is, err := a.App.Preflight(a.ctx, a.Request, a.Observer)
			w.must(err)
			return is
		}
		trips := func(want int64) {
			t.Helper()
			begun := w.hosts["node1"].Execs()
			if is := look(); !is.Fit || is.Hosts != 3 || len(is.Checks) < 20 {
				t.Errorf("the machines are not fit: %+v", is)
			}
			if n := w.hosts["node1"].Execs() - begun; n != want {
				t.Errorf("%d round trips, want %d", n, want)
			}
		}
		trips(2) // facts, and ports of others
		if left, err := os.ReadDir(filepath.Join(w.dir, "row1")); err != nil || len(left) != 1 || left[0].Name() != store.File {
			t.Errorf("the preflight left something else than what it learnt: %v, %v", left, err)
		}

		w.hosts["node1"].Blocked = map[string]string{"10.0.0.12:10250": ""}
		w.hosts["node2"].CPUs = 1
		w.hosts["node3"].SetDown(true)
		golden.File(t, "testdata/preflight.yaml", w.yaml(look()))

		w.hosts["node1"].Blocked, w.hosts["node2"].CPUs = nil, 4
		w.hosts["node3"].SetDown(false)
		same(t, "hosts after the preflight", before, w.snapshot())
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		trips(1) // members know of each other
	})
}

// TestPreflightForwarding looks whether kubexm may listen on the nodes of a runtime that only pulls.
func TestPreflightForwarding(t *testing.T) {
	for name, fit := range map[string]bool{"crio": false, "crio-registry": true, "row1": true} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, row(t, name), "")
			w.hosts["node2"].NoForwarding = true
			a := w.attempt(t.Context())
			is, err := a.App.Preflight(a.ctx, a.Request, a.Observer)
			w.must(err)
			if is.Fit != fit || !fit && (is.Findings[0].Check != "forwarding" || is.Findings[0].Host != "node2") {
				t.Errorf("%s: fit %t: %+v", name, is.Fit, is.Findings)
			}
		})
	}
}

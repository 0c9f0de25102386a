package app_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// drained are the nodes that an attempt has drained.
func drained(a *attempt) []string {
	all := map[string]bool{}
	for _, ev := range a.Events {
		if strings.HasSuffix(ev.Task, "/drain") && ev.Status == engine.Changed {
			node := string(ev.Node)
			all[node[strings.LastIndex(node, "@")+1:]] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// TestSilentAPI upgrades a cluster whose API server does not answer when a run begins: it is waited for; what has begun goes on by what machines tell of
// themselves, and nothing new begins. A cluster that keeps its version is repaired.
func TestSilentAPI(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, ofRelease(t, row(t, "row2"), "36"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		node1 := w.hosts["node1"]
		silent := func(lasts time.Duration) {
			w.down(node1)
			time.AfterFunc(lasts, func() { w.must(w.serve(node1)) })
		}
		const waits = "waiting until it is known which versions run"
		silent(20 * time.Second)
		a := w.attempt(t.Context())
		_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		if w.must(err); strings.Contains(strings.Join(a.Notices, "\n"), waits) {
			t.Errorf("where no version changes: %q", a.Notices)
		}
		w.settled()

		w.configure(ofRelease(t, row(t, "row2"), "37"))
		before := w.snapshot()
		silent(150 * time.Second)
		a = w.attempt(t.Context())
		_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		if fault.ExitCode(err) != fault.ExitPreflight || !strings.Contains(err.Error(), "no API server answers") || !strings.Contains(fault.Advice(err), "v1.36.4") {
			t.Errorf("an upgrade of a cluster without an API server: %v (%s)", err, fault.Advice(err))
		}
		same(t, "hosts", before, w.snapshot())
		time.Sleep(time.Minute)

		silent(40 * time.Second)
		a = w.attempt(t.Context())
		a.midway(func() { a.kill() })
		if _, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil {
			t.Fatal("the killed run ended well")
		}
		if n := strings.Count(strings.Join(a.Notices, "\n"), waits); n != 1 {
			t.Errorf("told %d times: %q", n, a.Notices)
		}
		silent(150 * time.Second)
		a = w.attempt(t.Context())
		_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		w.must(err)
		if is := drained(a); !slices.Equal(is, []string{"node1", "node2", "node3"}) {
			t.Errorf("drained: %v", is)
		}
		w.released(config.VersionsFor("v1.37.0"))
		w.settled()
	})
}

// TestMasterLeftBehind refuses to leave a master out on a way on which it could not follow: over several minor versions at once, and one after the other.
func TestMasterLeftBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, ofRelease(t, row(t, "row9"), "35"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.lose("node3")
		refused := func(to, least string) {
			t.Helper()
			w.configure(ofRelease(t, row(t, "row9"), to))
			before := w.snapshot()
			_, _, err := w.applyTo(t, true)
			if fault.ExitCode(err) != fault.ExitPreflight || !strings.Contains(err.Error(), "host node3 is left out with Kubernetes v1.35.8") || !strings.Contains(fault.Advice(err), least) {
				t.Errorf("to %s: %v (%s)", to, err, fault.Advice(err))
			}
			same(t, "hosts", before, w.snapshot())
		}
		refused("37", "no further without it than one minor version: Kubernetes v1.36.4")
		w.configure(ofRelease(t, row(t, "row9"), "36"))
		_, res, err := w.applyTo(t, true)
		if w.must(err); !slices.Equal(res.Missing, []string{"node3"}) {
			t.Errorf("missing: %v", res.Missing)
		}
		_, _, err = w.applyTo(t, true)
		w.must(err)
		refused("37", "delete node node3")
	})
}

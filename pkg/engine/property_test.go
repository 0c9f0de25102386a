package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// random is a graph of up to 40 nodes on three hosts, where some fail and some
// are barriers.
func random(t *rapid.T) (g *plan.ExecutionGraph, broken map[plan.ID]bool) {
	g, broken = &plan.ExecutionGraph{Name: "random"}, map[plan.ID]bool{}
	for i := range rapid.IntRange(1, 40).Draw(t, "nodes") {
		n := plan.Node{ID: plan.ID(fmt.Sprintf("n%d", i))}
		for j := range i {
			if rapid.IntRange(0, 4).Draw(t, "edge") == 0 {
				n.After = append(n.After, g.Nodes[j].ID)
			}
		}
		if rapid.IntRange(0, 5).Draw(t, "barrier") > 0 {
			n.Host, n.Kind = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "host"), "act"
			a := act{Name: string(n.ID), Run: takes(time.Duration(rapid.IntRange(0, 5).Draw(t, "seconds")) * time.Second)}
			if rapid.IntRange(0, 9).Draw(t, "broken") == 0 {
				a.Run, broken[n.ID] = fails(errBroken), true
			}
			n.Step = step.With(a, step.Options{Limit: rapid.SampledFrom([]string{"", "few"}).Draw(t, "limit")})
		}
		g.Nodes = append(g.Nodes, n)
	}
	return g, broken
}

// watch is a sink that checks every event against what may be.
type watch struct {
	faults  []string
	nodes   map[plan.ID]*plan.Node
	ended   map[plan.ID]engine.Status
	running map[string]int // host, limit, or "" for all
	limits  map[string]int
}

func (w *watch) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *watch) see(ev engine.Event) {
	n := w.nodes[ev.Node]
	keys := []string{"", n.Host, step.OptionsOf(n.Step).Limit + "!"}
	switch ev.Status {
	case engine.Started:
		for _, a := range n.After {
			if _, ok := w.ended[a]; !ok && !w.nodes[a].Barrier() {
				w.fault("%s started before %s had ended", n.ID, a)
			}
		}
		for _, k := range keys {
			if w.running[k]++; w.limits[k] > 0 && w.running[k] > w.limits[k] {
				w.fault("%d nodes ran at a time under the limit %q of %d", w.running[k], k, w.limits[k])
			}
		}
	case engine.Changed, engine.Failed, engine.Skipped:
		if was, twice := w.ended[n.ID]; twice {
			w.fault("%s ended as %s and as %s", n.ID, was, ev.Status)
		}
		w.ended[n.ID] = ev.Status
		if ev.Status == engine.Skipped {
			return
		}
		for _, k := range keys {
			w.running[k]--
		}
	default:
		w.fault("unexpected event %+v", ev)
	}
}

// TestOrder runs random graphs: no node starts before all that it waits for have
// ended, no limit is ever exceeded, and every node ends exactly once: skipped if
// and only if something before it failed.
func TestOrder(outer *testing.T) {
	rapid.Check(outer, func(t *rapid.T) {
		g, broken := random(t)
		limits := engine.Limits{
			Global: rapid.IntRange(1, 6).Draw(t, "global"), PerHost: rapid.IntRange(1, 3).Draw(t, "per host"),
			Named: map[string]int{"few": rapid.IntRange(0, 2).Draw(t, "few")},
		}
		w := &watch{nil, map[plan.ID]*plan.Node{}, map[plan.ID]engine.Status{}, map[string]int{}, map[string]int{
			"": limits.Global, "a": limits.PerHost, "b": limits.PerHost, "c": limits.PerHost, "few!": limits.Named["few"],
		}}
		for i := range g.Nodes {
			w.nodes[g.Nodes[i].ID] = &g.Nodes[i]
		}
		e := engine.Engine{Hosts: func(name string) (*runner.Runner, error) { return runner.New(name, nil), nil }, Sink: w.see, Limits: limits}
		var sum engine.Summary
		synctest.Test(outer, func(t *testing.T) { sum, _ = e.Run(t.Context(), g) }) // its errors are events, too
		for _, f := range w.faults {
			t.Error(f)
		}
		held := map[plan.ID]bool{} // nodes with a failure before them
		for _, n := range g.Nodes {
			for _, a := range n.After {
				held[n.ID] = held[n.ID] || held[a] || broken[a]
			}
			want := engine.Changed
			switch {
			case n.Barrier():
				continue
			case held[n.ID]:
				want = engine.Skipped
			case broken[n.ID]:
				want = engine.Failed
			}
			if w.ended[n.ID] != want {
				t.Errorf("%s ended as %q, want %q", n.ID, w.ended[n.ID], want)
			}
		}
		if len(w.ended) != sum.Total || sum.Changed+sum.Failed+sum.Skipped != sum.Total || sum.Interrupted {
			t.Errorf("%d ended, summary %+v", len(w.ended), sum)
		}
	})
}

// BenchmarkEngine runs graphs of 100,000 nodes in which nothing is to do: long
// chains on many hosts, and nodes that are all ready at once.
func BenchmarkEngine(b *testing.B) {
	const size = 100_000
	for name, shape := range map[string]struct{ hosts, chain int }{
		"1000 hosts, chains of 100": {1000, 100}, "all ready on 1000 hosts": {1000, 1}, "all ready on one host": {1, 1},
	} {
		g := &plan.ExecutionGraph{Name: "big"}
		for i := range size {
			n := plan.Node{ID: plan.ID(fmt.Sprint(i)), Kind: "act", Step: act{Name: "x"}, Host: fmt.Sprint(i / shape.chain % shape.hosts)}
			if i%shape.chain > 0 {
				n.After = []plan.ID{g.Nodes[i-1].ID}
			}
			g.Nodes = append(g.Nodes, n)
		}
		r := runner.New("all", nil)
		e := engine.Engine{Hosts: func(string) (*runner.Runner, error) { return r, nil }, Sink: func(engine.Event) {}}
		for _, e.LookAhead = range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/ahead=%t", name, e.LookAhead), func(b *testing.B) {
				for b.Loop() {
					if sum, err := e.Run(b.Context(), g); err != nil || sum.OK != size {
						b.Fatal(sum, err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/size, "ns/node")
			})
		}
	}
}

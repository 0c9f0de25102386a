package app_test

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
)

// TestClusters makes two clusters at the same time with one App. The observer of one is busy with the plan until the
// other cluster is there.
func TestClusters(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		runs := map[string]*attempt{}
		for _, name := range []string{"row1", "row21"} {
			runs[name] = newWorld(t, row(t, name), "").attempt(t.Context())
		}
		one := app.App{Workdir: runs["row1"].Workdir, Store: runs["row1"].Store, Steps: make(chan struct{}, 5)}
		var running atomic.Int32 // steps of both
		one.Dial = func(ctx context.Context, h *v1alpha1.Host, known string) (connector.Connector, error) {
			return runs[filepath.Base(filepath.Dir(known))].dial(ctx, h, known)
		}
		other := make(chan struct{})
		var all sync.WaitGroup
		for name, a := range runs {
			a.App = one
			var nodes map[plan.ID]bool
			a.Begin = func(cluster string, g *plan.ExecutionGraph) {
				if cluster != name || nodes != nil {
					t.Errorf("%s is told that %s begins", name, cluster)
				}
				if name == "row1" {
					<-other
				}
				nodes = map[plan.ID]bool{}
				for i := range g.Nodes {
					nodes[g.Nodes[i].ID] = true
				}
			}
			event := a.Event
			a.Event = func(ev engine.Event) {
				if !nodes[ev.Node] {
					t.Errorf("%s is told of %s", name, ev.Node)
				}
				switch ev.Status {
				case engine.Started:
					if n := running.Add(1); int(n) > cap(one.Steps) {
						t.Errorf("%d steps run at a time", n)
					}
				case engine.OK, engine.Changed, engine.Failed:
					running.Add(-1)
				}
				event(ev)
			}
			all.Go(func() {
				res, err := one.Create(a.ctx, a.Request, a.Observer)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if name != "row1" {
					close(other)
				}
				told := map[int64]plan.ID{}
				for _, ev := range a.Events {
					told[ev.Seq] = ev.Node
				}
				if err := one.Events(a.ctx, a.Request, res.Run, false, func(ev engine.Event) error {
					if told[ev.Seq] != ev.Node {
						t.Errorf("%s: recorded is %s, told was %s", name, ev.Node, told[ev.Seq])
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for name, a := range runs {
			runs[name] = a.attempt(t.Context())
			if res, err := one.Create(t.Context(), a.Request, app.Observer{}); err != nil || res.Summary.OK != res.Summary.Total {
				t.Errorf("%s again: %+v, %v", name, res, err)
			}
		}
	})
}

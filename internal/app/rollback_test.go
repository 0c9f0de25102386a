package app_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// failing does what a step does, and then fails.
type failing struct{ step.Step }

var errLate = errors.New("failed after all was done")

func (f failing) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	c, err := f.Step.Precheck(ctx, r)
	if err != nil || c == nil {
		return nil, errors.Join(err, errLate)
	}
	run := c.Run
	c.Run = func(ctx context.Context) error { return errors.Join(run(ctx), errLate) }
	return c, nil
}

// stage is what one task does on one host.
type stage []plan.Node

// stages cuts a graph into stages, in an order in which they can run one after the other.
func stages(g *plan.ExecutionGraph) (all []stage) {
	for _, n := range g.Nodes {
		if n.Barrier() {
			continue
		}
		n.After, n.Scope, n.Role = nil, "", ""
		last := len(all) - 1
		if last < 0 || all[last][0].Task != n.Task || all[last][0].Subject() != n.Subject() {
			all = append(all, stage{n})
			continue
		}
		n.After = []plan.ID{all[last][len(all[last])-1].ID}
		all[last] = append(all[last], n)
	}
	return all
}

// run runs a stage; the step at fail, counted from 0, fails after it ran.
func (w *world) run(ctx context.Context, s stage, fail int, rollback engine.Rollback) (engine.Summary, error) {
	a := w.attempt(ctx)
	defer a.end()
	e := engine.Engine{Rollback: rollback, Hosts: func(name string) (*runner.Runner, error) {
		if name == plan.Control {
			return runner.New(name, connector.Local()), nil
		}
		at := name
		if name == plan.API {
			at = "node1"
		}
		return runner.New(name, &link{w.hosts[at], a}), nil
	}}
	g := &plan.ExecutionGraph{Name: "stage", Nodes: slices.Clone(s)}
	if fail >= 0 {
		g.Nodes = g.Nodes[:fail+1]
		g.Nodes[fail].Step = step.With(failing{step.Unwrap(g.Nodes[fail].Step)}, step.OptionsOf(g.Nodes[fail].Step))
	}
	return e.Run(ctx, g)
}

var records = regexp.MustCompile(`(?m)^/var/lib/kubexm.*\n(    .*\n)*`)

// state is what a user sees of the hosts: all but kubexm's own records, and the
// directories that it made, which go when the cluster is deleted.
func (w *world) state() map[string][]string {
	state := map[string][]string{}
	for name, h := range w.hosts {
		ledger, _ := h.Get(runner.StateDir + "/ledger")
		state[name] = slices.DeleteFunc(strings.Split(records.ReplaceAllString(h.Snapshot(), ""), "\n"), func(l string) bool {
			dir, made, _ := strings.Cut(l, " d")
			return made != "" && strings.Contains(ledger, "dir "+dir+"\n")
		})
	}
	return state
}

// TestRollback lets each step of each task fail after it has run. The golden
// files list what is not as before then: what kubexm takes back only on delete.
func TestRollback(t *testing.T) {
	for _, name := range []string{"row1", "row2", "row3", "harbor"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var kept strings.Builder
			bubble(t, func(t *testing.T) {
				w := newWorld(t, smaller(row(t, name)), "")
				for _, h := range w.hosts {
					for p := range h.Repo {
						if h.Repo[p].Units == nil { // what other packages bring is no matter here
							h.Repo[p] = runnertest.Package{}
						}
					}
				}
				a := w.attempt(t.Context())
				graph, err := a.App.Plan(a.ctx, a.Request, a.Observer, "create")
				w.must(err)
				for _, s := range stages(graph) {
					w.rollBack(t.Context(), s, &kept)
				}
			})
			golden.File(t, filepath.Join("testdata/scenarios", name, "kept.txt"), kept.String())
		})
	}
}

func (w *world) rollBack(ctx context.Context, s stage, kept *strings.Builder) {
	w.Helper()
	before := w.state()
	for i := range s {
		if _, err := w.run(ctx, s, i, engine.RollbackHost); !errors.Is(err, errLate) || strings.Contains(err.Error(), "rolling back") {
			w.Fatalf("%s: got %v", s[i].ID, err)
		}
		after := w.state()
		for _, host := range slices.Sorted(maps.Keys(after)) {
			if text := changes(before[host], after[host]); text != "" {
				fmt.Fprintf(kept, "%s failed, on %s: %s\n", s[i].ID, host, text)
			}
		}
		before = after
	}
	last := len(s) - 1
	if _, err := w.run(ctx, s, last, engine.RollbackNone); !errors.Is(err, errLate) {
		w.Fatalf("%s: got %v", s[last].ID, err)
	}
	without := w.snapshot()
	if sum, err := w.run(ctx, s, -1, engine.RollbackHost); err != nil || sum.Changed > 0 {
		w.Errorf("%s: what is kept without rollback is not all there is to do: %+v, %v", s[last].ID, sum, err)
	}
	same(w, "after "+string(s[last].ID), without, w.snapshot())
}

// changes lists what came and went: paths and titles, not contents.
func changes(before, after []string) (text string) {
	for _, side := range []struct {
		sign        string
		these, over []string
	}{{" -", before, after}, {" +", after, before}} {
		for _, l := range side.these {
			if !slices.Contains(side.over, l) && !strings.HasPrefix(l, "    ") {
				title, _, _ := strings.Cut(l, " ")
				text += side.sign + title
			}
		}
	}
	return strings.TrimSpace(text)
}

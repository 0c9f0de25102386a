package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// world is what steps see: which of them are done.
type world struct {
	mu    sync.Mutex
	done  map[string]bool
	looks map[string]int // that each step had
	order []string       // in which they ran
	fail  map[string]bool
}

func newWorld(done ...string) *world {
	w := &world{done: map[string]bool{}, looks: map[string]int{}, fail: map[string]bool{}}
	for _, d := range done {
		w.done[d] = true
	}
	return w
}

// gets is a step that is done once it has run for a second, and then can be undone.
type gets struct {
	Name string
	In   *world `json:"-"`
	// Spoils is undone by a run of the step.
	Spoils string
	Apart  bool
}

func (g gets) String() string { return g.Name }

func (g gets) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	w, name := g.In, g.Name+"@"+r.Host
	if err := takes(time.Second)(ctx); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks[name]++
	if w.done[name] {
		return nil, nil
	}
	return &step.Change{Diff: "+ " + name, Restarts: []string{name}, Apart: g.Apart, Verify: step.Verified, Run: func(ctx context.Context) error {
		if err := w.run(name, g.Spoils); err != nil {
			return err
		}
		return takes(time.Second)(ctx)
	}, Rollback: func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.order = append(w.order, "-"+name)
		delete(w.done, name)
		return nil
	}}, nil
}

func (w *world) run(name, spoils string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.order = append(w.order, name)
	if w.fail[name] {
		return errBroken
	}
	delete(w.done, spoils)
	w.done[name] = true
	return nil
}

// task is a task with one step of its name.
func (w *world) task(name string, hosts ...string) plan.Task {
	return task(name, hosts, gets{Name: name, In: w})
}

// scope has a task of one step in each place; its Finally is done unless something was begun.
func (w *world) scope(hosts ...string) plan.Scope {
	return plan.Scope{
		Name: "s", Begin: task("begin", hosts, gets{Name: "begin", In: w, Spoils: "finally@" + hosts[0]}),
		Part: w.task("part", hosts...), End: w.task("end", hosts...), Finally: w.task("finally", hosts...),
	}
}

func TestScope(t *testing.T) {
	before, after := task("before", []string{"a"}, act{Name: "x"}), task("after", []string{"a"}, act{Name: "x"})
	broken := task("before", []string{"a"}, act{Name: "x", Run: fails(errBroken)})
	all := func(before, begin, part, end, finally, after string) map[string]string {
		return map[string]string{"before/x@a": before, "s/begin/begin@a": begin, "s/part/part@a": part, "s/end/end@a": end, "s/finally/finally@a": finally, "after/x@a": after}
	}
	for name, c := range map[string]struct {
		done, fail []string
		before     plan.Part
		stop       time.Duration // after which the run is stopped; 0: never
		cancel     bool          // at once
		engine     engine.Engine
		want       map[string]string
		order      []string
	}{
		"nothing to change":            {done: []string{"part@a", "finally@a"}, want: all("ok", "ok", "ok", "ok", "ok", "ok")},
		"nothing but what was left":    {done: []string{"part@a"}, want: all("ok", "ok", "ok", "ok", "changed", "ok"), order: []string{"finally@a"}},
		"something to change":          {done: []string{"finally@a"}, want: all("ok", "changed", "changed", "changed", "changed", "ok"), order: []string{"begin@a", "part@a", "end@a", "finally@a"}},
		"begin fails":                  {fail: []string{"begin@a"}, want: all("ok", "failed", "skipped", "skipped", "changed", "skipped"), order: []string{"begin@a", "finally@a"}},
		"part fails":                   {fail: []string{"part@a"}, want: all("ok", "changed", "failed", "skipped", "changed", "skipped"), order: []string{"begin@a", "part@a", "finally@a"}},
		"end fails":                    {fail: []string{"end@a"}, want: all("ok", "changed", "changed", "failed", "changed", "skipped"), order: []string{"begin@a", "part@a", "end@a", "finally@a"}},
		"finally fails":                {fail: []string{"finally@a"}, want: all("ok", "changed", "changed", "changed", "failed", "skipped"), order: []string{"begin@a", "part@a", "end@a", "finally@a"}},
		"what is before fails":         {before: broken, want: all("failed", "skipped", "skipped", "skipped", "skipped", "skipped")},
		"stopped before":               {before: task("before", []string{"a"}, act{Name: "x", Run: takes(time.Second)}), stop: time.Second / 2, want: all("changed", "skipped", "skipped", "skipped", "skipped", "skipped")},
		"stopped while it is decided":  {stop: time.Second / 2, want: all("ok", "skipped", "skipped", "skipped", "skipped", "skipped")},
		"stopped within":               {stop: 3 * time.Second / 2, want: all("ok", "changed", "skipped", "skipped", "changed", "skipped"), order: []string{"begin@a", "finally@a"}},
		"stopped within its part":      {stop: 7 * time.Second / 2, want: all("ok", "changed", "changed", "changed", "changed", "skipped"), order: []string{"begin@a", "part@a", "end@a", "finally@a"}},
		"cancelled within":             {stop: 5 * time.Second / 2, cancel: true, want: all("ok", "failed", "skipped", "skipped", "skipped", "skipped"), order: []string{"begin@a"}},
		"dry, nothing to change":       {done: []string{"part@a", "finally@a"}, engine: engine.Engine{DryRun: true}, want: all("ok", "ok", "ok", "ok", "ok", "ok")},
		"dry, something to change":     {done: []string{"finally@a"}, engine: engine.Engine{DryRun: true}, want: all("ok", "pending", "pending", "pending", "ok", "ok")},
		"rolled back as a whole first": {done: []string{"finally@a"}, fail: []string{"end@a"}, engine: engine.Engine{Rollback: engine.RollbackHost}, want: all("ok", "changed restored", "changed restored", "failed restored", "changed", "skipped"), order: []string{"begin@a", "part@a", "end@a", "-end@a", "-part@a", "-begin@a", "finally@a"}},
		"finally is not rolled back":   {fail: []string{"finally@a"}, engine: engine.Engine{Rollback: engine.RollbackHost}, want: all("ok", "changed", "changed", "changed", "failed", "skipped"), order: []string{"begin@a", "part@a", "end@a", "finally@a"}},
	} {
		for _, ahead := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", looking ahead"}[ahead], func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newWorld(c.done...)
					for _, f := range c.fail {
						w.fail[f] = true
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					stop := make(chan struct{})
					switch {
					case c.cancel:
						time.AfterFunc(c.stop, cancel)
					case c.stop > 0:
						time.AfterFunc(c.stop, func() { close(stop) })
					}
					e := c.engine
					e.Stop, e.LookAhead = stop, ahead
					first := c.before
					if first == nil {
						first = before
					}
					run(ctx, t, e, first, w.scope("a"), after).expect(t, c.want)
					if diff := cmp.Diff(c.order, w.order); diff != "" {
						t.Error(diff)
					}
					if c.order == nil && !e.DryRun && w.looks["begin@a"]+w.looks["end@a"] > 0 {
						t.Error("it looked around a scope in which nothing is to change")
					}
				})
			})
		}
	}
}

// TestScopeLooksSideBySide has a part of ten hosts, the last of which differs: it is found out in one look.
func TestScopeLooksSideBySide(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hosts := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
		w := newWorld()
		for _, h := range hosts {
			w.done["part@"+h], w.done["begin@"+h], w.done["end@"+h], w.done["finally@"+h] = h != "j", true, true, true
		}
		r := run(t.Context(), t, engine.Engine{}, w.scope(hosts...))
		if r.Changed != 1 || r.OK != 39 || r.took != 5*time.Second { // a look, begin, the change, end, finally
			t.Errorf("%+v after %s", r.Summary, r.took)
		}
	})
}

// TestUnknownInScope has a part that cannot be looked at: it counts as something to change.
func TestUnknownInScope(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := plan.Scope{Name: "s", Begin: task("begin", []string{"a"}, act{Name: "x", Run: fails(nil)}), Part: task("part", []string{"a"}, act{Name: "x", Look: fails(errBroken)})}
		run(t.Context(), t, engine.Engine{}, s).expect(t, map[string]string{"s/begin/x@a": "changed", "s/part/x@a": "failed"})
		r := run(t.Context(), t, engine.Engine{DryRun: true}, s)
		r.expect(t, map[string]string{"s/begin/x@a": "pending", "s/part/x@a": "pending"})
		if last := r.events[len(r.events)-1]; last.Diff != "unknown until the steps before it have run: broken" {
			t.Errorf("got %q", last.Diff)
		}
	})
}

// TestScopesInScopes has a node in each of two batches; only the second is to be drained.
func TestScopesInScopes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld("part@a")
		gate := func(string) step.Step { return gets{Name: "gate", In: w} }
		node := w.scope("a", "b")
		node.Begin = plan.Task{Name: "begin", Hosts: []string{"a", "b"}, Steps: func(string) []step.Step { return []step.Step{plan.On("m", gets{Name: "begin", In: w})} }}
		r := run(t.Context(), t, engine.Engine{}, plan.Batches{Gate: gate, Part: plan.PerHost{node, w.task("more", "b")}})
		r.expect(t, map[string]string{
			"batch-1/before/gate@a": "ok", "s/begin/begin-for-a@m": "ok", "s/part/part@a": "ok", "s/end/end@a": "ok", "s/finally/finally@a": "changed", "batch-1/after/gate@a": "ok",
			"batch-2/before/gate@b": "changed", "s/begin/begin-for-b@m": "changed", "s/part/part@b": "changed", "s/end/end@b": "changed", "s/finally/finally@b": "changed",
			"more/more@b": "changed", "batch-2/after/gate@b": "ok",
		})
		if diff := cmp.Diff([]string{"finally@a", "gate@b", "begin@m", "part@b", "end@b", "finally@b", "more@b"}, w.order); diff != "" {
			t.Error(diff)
		}
	})
}

// TestBatches has five hosts of which the third fails.
func TestBatches(t *testing.T) {
	for _, rollback := range []engine.Rollback{engine.RollbackHost, engine.RollbackTask} {
		bubble(t, func(t *testing.T) {
			w := newWorld("gate@e", "gate@b", "gate@c", "gate@d", "gate@a")
			w.fail["y@c"] = true
			gate := func(string) step.Step { return gets{Name: "gate", In: w} }
			hosts := []string{"a", "b", "c", "d", "e"}
			r := run(t.Context(), t, engine.Engine{Rollback: rollback}, plan.Batches{Size: 2, Order: []string{"b", "a"}, Gate: gate, Part: plan.Module{Parts: []plan.Part{w.task("x", hosts...), w.task("y", hosts...)}}})
			want := map[string]string{
				"batch-1/before/gate@b": "ok", "x/x@b": "changed", "x/x@a": "changed", "y/y@b": "changed", "y/y@a": "changed", "batch-1/after/gate@b": "ok",
				"batch-2/before/gate@c": "ok", "x/x@c": "changed restored", "x/x@d": "changed", "y/y@c": "failed restored", "y/y@d": "changed", "batch-2/after/gate@c": "skipped",
				"batch-3/before/gate@e": "skipped", "x/x@e": "skipped", "y/y@e": "skipped", "batch-3/after/gate@e": "skipped",
			}
			if rollback == engine.RollbackTask {
				want["x/x@d"], want["y/y@d"] = "changed restored", "changed restored"
			}
			r.expect(t, want)
		})
	}
}

// TestRollbackOfTask has a host that fails while another is on its way: that one ends first, and starts nothing more.
func TestRollbackOfTask(t *testing.T) {
	var undone []string
	undoable := func(name string, run func(context.Context) error) step.Step {
		return act{Name: name, Run: run, Undo: func(context.Context) error {
			undone = append(undone, name)
			return nil
		}}
	}
	other := task("other", []string{"a"}, undoable("o", fails(nil)))
	hosts := per("t", []string{"a", "b", "c"}, func(h string) []step.Step {
		d := map[string]time.Duration{"a": time.Second, "b": 3 * time.Second, "c": 0}[h]
		second := fails(nil)
		if h == "a" {
			second = fails(fault.Advise(errBroken, "fix it"))
		}
		return []step.Step{undoable(h+"1", takes(d)), undoable(h+"2", second), undoable(h+"3", fails(nil))}
	})
	next := task("next", []string{"d"}, act{Name: "x"})
	bubble(t, func(t *testing.T) {
		r := run(t.Context(), t, engine.Engine{Rollback: engine.RollbackTask}, other, hosts, next)
		r.expect(t, map[string]string{
			"other/o@a": "changed", "t/a1@a": "changed restored", "t/a2@a": "failed restored", "t/a3@a": "skipped", "t/b1@b": "changed restored", "t/b2@b": "skipped", "t/b3@b": "skipped",
			"t/c1@c": "changed restored", "t/c2@c": "changed restored", "t/c3@c": "changed restored", "next/x@d": "skipped",
		})
		slices.SortStableFunc(undone, func(a, b string) int { return strings.Compare(a[:1], b[:1]) }) // hosts are in no order
		if diff := cmp.Diff([]string{"a2", "a1", "b1", "c3", "c2", "c1"}, undone); diff != "" {
			t.Error(diff)
		}
	})
	undone = nil
	hosts.MaxFailures = 1
	bubble(t, func(t *testing.T) { // the others go on
		r := run(t.Context(), t, engine.Engine{Rollback: engine.RollbackTask}, hosts, next)
		if diff := cmp.Diff([]string{"a2", "a1"}, undone); diff != "" || r.Changed != 7 || r.OK != 1 {
			t.Errorf("%+v %s", r.Summary, diff)
		}
	})
	undone = nil
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		hosts.MaxFailures = 0
		if r := run(ctx, t, engine.Engine{Rollback: engine.RollbackTask}, hosts, next); undone != nil || !r.Interrupted || !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("interrupted %t, undid %v", r.Interrupted, undone)
		}
	})
}

// TestFinallyAfterTolerated has a worker whose failure is tolerated: its scope ends all the same.
func TestFinallyAfterTolerated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.fail["part@a"], w.fail["before@b"] = true, true
		r := run(t.Context(), t, engine.Engine{}, plan.Tolerate(1, plan.PerHost{w.task("before", "a", "b"), w.scope("a", "b")}), w.task("after", "c"))
		r.expect(t, map[string]string{
			"before/before@a": "changed", "s/begin/begin@a": "changed", "s/part/part@a": "failed", "s/end/end@a": "skipped", "s/finally/finally@a": "changed",
			"before/before@b": "failed", "s/begin/begin@b": "skipped", "s/part/part@b": "skipped", "s/end/end@b": "skipped", "s/finally/finally@b": "skipped",
			"after/after@c": "changed",
		})
	})
}

// TestScopesFromJSON reads the graph back: it tells which node is what in which scope.
func TestScopesFromJSON(t *testing.T) {
	w := newWorld()
	g := planned(t, plan.PerHost{w.scope("a", "b")})
	text, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	var back plan.ExecutionGraph
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(g.Scopes, back.Scopes); diff != "" || len(back.Scopes) != 2 {
		t.Errorf("%d scopes %s", len(back.Scopes), diff)
	}
	for i, n := range back.Nodes {
		if n.Scope != g.Nodes[i].Scope || n.Role != g.Nodes[i].Role {
			t.Errorf("%s is %s of %s", n.ID, n.Role, n.Scope)
		}
	}
	for name, spoil := range map[string]func(){
		"which is not there":     func() { back.Scopes = back.Scopes[:1] },
		"which is not before it": func() { back.Scopes[0].Parent = "s" },
	} {
		spoil()
		if _, err := (&engine.Engine{}).Run(t.Context(), &back); err == nil {
			t.Errorf("a scope %s passes", name)
		}
	}
}

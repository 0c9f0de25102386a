package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// on fails on some hosts.
func on(hosts ...string) func(string) []step.Step {
	return func(h string) []step.Step {
		a := act{Name: "x"}
		if slices.Contains(hosts, h) {
			a.Run = fails(errBroken)
		}
		return []step.Step{a, act{Name: "y"}}
	}
}

func TestMaxFailures(t *testing.T) {
	hosts := []string{"a", "b", "c"}
	tolerant := func(most int, broken ...string) plan.Task {
		p := per("t", hosts, on(broken...))
		p.MaxFailures = most
		return p
	}
	after := task("u", hosts, act{Name: "z"})
	master := func(h string) plan.Task {
		return per("d", []string{h}, func(string) []step.Step { return []step.Step{plan.On("m", act{Name: "w"})} })
	}
	for name, c := range map[string]struct {
		parts []plan.Part
		want  map[string]string
	}{
		"none allowed": {[]plan.Part{tolerant(0, "b"), after}, map[string]string{
			"t/x@a": "ok", "t/y@a": "ok", "t/x@b": "failed", "t/y@b": "skipped", "t/x@c": "ok", "t/y@c": "ok",
			"u/z@a": "skipped", "u/z@b": "skipped", "u/z@c": "skipped",
		}},
		"one allowed": {[]plan.Part{tolerant(1, "b"), after, master("b"), master("c")}, map[string]string{
			"t/x@a": "ok", "t/y@a": "ok", "t/x@b": "failed", "t/y@b": "skipped", "t/x@c": "ok", "t/y@c": "ok",
			"u/z@a": "ok", "u/z@b": "skipped", "u/z@c": "ok", "d/w-for-b@m": "skipped", "d/w-for-c@m": "ok",
		}},
		"two failed": {[]plan.Part{tolerant(1, "b", "c"), after}, map[string]string{
			"t/x@a": "ok", "t/y@a": "ok", "t/x@b": "failed", "t/y@b": "skipped", "t/x@c": "failed", "t/y@c": "skipped",
			"u/z@a": "skipped", "u/z@b": "skipped", "u/z@c": "skipped",
		}},
		"one in each of two batches": {[]plan.Part{plan.Batches{Part: tolerant(1, "a", "b")}, after}, map[string]string{
			"t/x@a": "failed", "t/y@a": "skipped", "t/x@b": "failed", "t/y@b": "skipped", "t/x@c": "skipped", "t/y@c": "skipped",
			"u/z@a": "skipped", "u/z@b": "skipped", "u/z@c": "skipped",
		}},
		"per host": {[]plan.Part{plan.PerHost{tolerant(1, "b"), after}, task("v", []string{"a"}, act{Name: "z"})}, map[string]string{
			"t/x@a": "ok", "t/y@a": "ok", "t/x@b": "failed", "t/y@b": "skipped", "t/x@c": "ok", "t/y@c": "ok",
			"u/z@a": "ok", "u/z@b": "skipped", "u/z@c": "ok", "v/z@a": "ok",
		}},
		"too many per host": {[]plan.Part{plan.PerHost{tolerant(1, "a", "b"), after}, task("v", []string{"c"}, act{Name: "z"})}, map[string]string{
			"t/x@a": "failed", "t/y@a": "skipped", "t/x@b": "failed", "t/y@b": "skipped", "t/x@c": "ok", "t/y@c": "ok",
			"u/z@a": "skipped", "u/z@b": "skipped", "u/z@c": "ok", "v/z@c": "skipped",
		}},
		"a failure elsewhere is not a worker's own": {[]plan.Part{
			task("control", []string{"m"}, act{Name: "x", Run: fails(errBroken)}),
			plan.Task{Name: "w", Hosts: []string{"a"}, MaxFailures: 1, Steps: on()},
			task("v", []string{"m"}, act{Name: "z"}),
		}, map[string]string{"control/x@m": "failed", "w/x@a": "skipped", "w/y@a": "skipped", "v/z@m": "skipped"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				run(t.Context(), t, engine.Engine{}, c.parts...).expect(t, c.want)
			})
		})
	}
}

func TestIndependentBranchesGoOn(t *testing.T) {
	parts := plan.Parallel{
		task("t", []string{"a"}, act{Name: "x", Run: fails(errBroken)}, act{Name: "y"}),
		task("u", []string{"b"}, act{Name: "x", Run: takes(time.Second)}, act{Name: "y", Run: takes(time.Second)}),
	}
	bubble(t, func(t *testing.T) {
		run(t.Context(), t, engine.Engine{}, parts).expect(t, map[string]string{"t/x@a": "failed", "t/y@a": "skipped", "u/x@b": "changed", "u/y@b": "changed"})
	})
}

func TestStopLetsRunningNodesFinish(t *testing.T) {
	bubble(t, func(t *testing.T) {
		stop := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(stop) })
		r := run(t.Context(), t, engine.Engine{Stop: stop, Limits: engine.Limits{PerHost: 1}}, task("t", []string{"a"}, act{Name: "x", Run: takes(time.Minute)}, act{Name: "y", Run: takes(time.Minute)}),
			task("u", []string{"b"}, act{Name: "z"}))
		r.expect(t, map[string]string{"t/x@a": "changed", "t/y@a": "skipped", "u/z@b": "skipped"})
		if !r.Interrupted || r.err != nil || r.took != time.Minute {
			t.Errorf("interrupted %t after %s: %v", r.Interrupted, r.took, r.err)
		}
	})
}

func TestStopBeforeTheStart(t *testing.T) {
	stop := make(chan struct{})
	close(stop)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, r := range map[string]result{
		"stop":    run(t.Context(), t, engine.Engine{Stop: stop}, task("t", []string{"a", "b"}, act{Name: "x"})),
		"context": run(gone, t, engine.Engine{}, task("t", []string{"a", "b"}, act{Name: "x"})),
	} {
		r.expect(t, map[string]string{"t/x@a": "skipped", "t/x@b": "skipped"})
		if !r.Interrupted {
			t.Errorf("%s: not interrupted", name)
		}
	}
}

func TestStopWhileNodesWaitForSlots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		stop := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(stop) })
		parts := plan.Parallel{}
		for i := range 20 {
			parts = append(parts, task(fmt.Sprintf("t%d", i), []string{"a"}, step.With(act{Name: "x", Run: takes(time.Minute)}, step.Options{Limit: "few"})))
		}
		r := run(t.Context(), t, engine.Engine{Stop: stop, Limits: engine.Limits{PerHost: 3, Named: map[string]int{"few": 2}}}, parts)
		if r.Changed != 2 || r.Skipped != 18 || !r.Interrupted {
			t.Errorf("got %+v", r.Summary)
		}
	})
}

func TestCancelEndsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		undone := false
		r := run(ctx, t, engine.Engine{Rollback: engine.RollbackHost}, task("t", []string{"a"},
			act{Name: "w", Run: takes(0), Undo: func(context.Context) error { undone = true; return nil }},
			act{Name: "x", Run: takes(time.Minute)}, act{Name: "y"}))
		r.expect(t, map[string]string{"t/w@a": "changed", "t/x@a": "failed", "t/y@a": "skipped"})
		if !r.Interrupted || !errors.Is(r.err, context.Canceled) || r.took != time.Second || undone {
			t.Errorf("interrupted %t after %s, rolled back %t: %v", r.Interrupted, r.took, undone, r.err)
		}
	})
}

func TestCancelEndsRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, cancel)
		r := run(ctx, t, engine.Engine{}, task("t", []string{"a"}, act{Name: "x", Run: fails(fault.Transient(errBroken))}))
		if r.took != 500*time.Millisecond || r.Failed != 1 {
			t.Errorf("after %s: %+v", r.took, r.Summary)
		}
	})
}

func TestRollback(t *testing.T) {
	var undone []string
	undoable := func(name string, err error) step.Step {
		return act{Name: name, Run: fails(err), Undo: func(context.Context) error {
			undone = append(undone, name)
			return nil
		}}
	}
	earlier := task("earlier", []string{"a"}, undoable("0", nil))
	broken := per("t", []string{"a", "b"}, func(h string) []step.Step {
		var err error
		if h == "a" {
			err = errBroken
		}
		return []step.Step{undoable(h+"1", nil), act{Name: "ok"}, plan.On("m", undoable(h+"2", nil)), act{Name: h + "3", Run: takes(0)}, undoable(h+"4", err), undoable(h+"5", nil)}
	})
	bubble(t, func(t *testing.T) {
		r := run(t.Context(), t, engine.Engine{Rollback: engine.RollbackHost}, earlier, broken)
		if diff := cmp.Diff([]string{"a4", "a2", "a1"}, undone); diff != "" {
			t.Error(diff)
		}
		r.expect(t, map[string]string{
			"earlier/0@a": "changed", "t/a1@a": "changed restored", "t/ok@a": "ok", "t/a2-for-a@m": "changed restored", "t/a3@a": "changed",
			"t/a4@a": "failed restored", "t/a5@a": "skipped",
			"t/b1@b": "changed", "t/ok@b": "ok", "t/b2-for-b@m": "changed", "t/b3@b": "changed", "t/b4@b": "changed", "t/b5@b": "changed",
		})
		if r.Restored != 3 {
			t.Errorf("got %+v", r.Summary)
		}
	})
	undone = nil
	run(t.Context(), t, engine.Engine{}, broken)
	if undone != nil {
		t.Errorf("rolled back without being asked: %v", undone)
	}
}

// TestResume starts services again when all is undone: those first that were changed first.
func TestResume(t *testing.T) {
	var did []string
	does := func(what string) func(context.Context) error {
		return func(context.Context) error {
			did = append(did, what)
			return nil
		}
	}
	stuck := act{Name: "c", Run: fails(nil), Undo: does("undo c"), Back: fails(fault.Advise(errors.New("stuck"), "pull"))}
	r := run(t.Context(), t, engine.Engine{Rollback: engine.RollbackHost}, task("t", []string{"a"},
		act{Name: "a", Run: fails(nil), Undo: does("undo a"), Back: does("start a")}, stuck,
		act{Name: "b", Run: fails(errBroken), Undo: does("undo b"), Back: does("start b")}))
	if diff := cmp.Diff([]string{"undo b", "undo c", "undo a", "start a", "start b"}, did); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(r.err.Error(), "c on a: starting again after rolling back: stuck") || fault.Advice(r.err) != "pull" {
		t.Error(r.err)
	}
}

func TestRollbackFails(t *testing.T) {
	stuck := act{Name: "x", Run: fails(nil), Undo: fails(fault.Advise(errors.New("stuck"), "pull"))}
	r := run(t.Context(), t, engine.Engine{Rollback: engine.RollbackHost}, task("t", []string{"a"}, stuck, act{Name: "y", Run: fails(errBroken)}))
	r.expect(t, map[string]string{"t/x@a": "changed restored", "t/y@a": "failed"})
	if r.Restored != 0 || !strings.Contains(r.err.Error(), "x on a: rolling back: stuck") || fault.Advice(r.err) != "pull" {
		t.Errorf("%d restored: %v", r.Restored, r.err)
	}
}

// TestRollbackOfLostHost has a host that nobody can ask any more: the others' steps are undone all the same.
func TestRollbackOfLostHost(t *testing.T) {
	lost := func(name string) step.Step {
		return act{Name: name, Run: fails(nil), Undo: fails(fault.Transient(errors.New("lost")))}
	}
	r := run(t.Context(), t, engine.Engine{Rollback: engine.RollbackHost}, task("t", []string{"a"}, lost("x"),
		plan.On("m", act{Name: "w", Run: fails(nil), Undo: fails(nil)}), lost("y"), act{Name: "z", Run: fails(errBroken)}))
	r.expect(t, map[string]string{"t/x@a": "changed", "t/w-for-a@m": "changed restored", "t/y@a": "changed restored", "t/z@a": "failed"})
	if r.Restored != 1 || strings.Count(r.err.Error(), "lost") != 1 || !strings.Contains(r.err.Error(), "lost; changes before it that stay: 1") {
		t.Errorf("%d restored: %v", r.Restored, r.err)
	}
}

// TestPanic has steps with a fault: each fails on its host, with where it was, and the run goes on to its end.
func TestPanic(t *testing.T) {
	broken := func(context.Context) error { panic("no such host") }
	for name, c := range map[string]struct {
		steps []step.Step
		want  map[string]string
	}{
		"looking":      {[]step.Step{act{Name: "x", Look: broken}, act{Name: "y"}}, map[string]string{"t/x@a": "failed", "t/y@a": "skipped", "u/z@b": "changed"}},
		"changing":     {[]step.Step{act{Name: "x", Run: broken, Undo: fails(nil)}}, map[string]string{"t/x@a": "failed restored", "u/z@b": "changed"}},
		"rolling back": {[]step.Step{act{Name: "x", Run: fails(errBroken), Undo: broken}}, map[string]string{"t/x@a": "failed restored", "u/z@b": "changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t.Context(), t, engine.Engine{Rollback: engine.RollbackHost}, plan.Parallel{task("t", []string{"a"}, c.steps...), task("u", []string{"b"}, act{Name: "z", Run: fails(nil)})})
			r.expect(t, c.want)
			if text := fmt.Sprint(r.err); !strings.Contains(text, "a bug in kubexm: no such host") || !strings.Contains(text, "failure_test.go:") {
				t.Errorf("told: %s", text)
			}
		})
	}
}

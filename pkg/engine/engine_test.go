package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// act is a step whose change is a function; without one there is nothing to do.
type act struct {
	Name string
	Run  func(context.Context) error `json:"-"`
	Undo func(context.Context) error `json:"-"`
	Back func(context.Context) error `json:"-"` // once all is undone
	Look func(context.Context) error `json:"-"` // fails Precheck; nil: never
}

func (a act) String() string { return a.Name }

func (a act) Precheck(ctx context.Context, _ *runner.Runner) (*step.Change, error) {
	if a.Look != nil {
		if err := a.Look(ctx); err != nil {
			return nil, err
		}
	}
	if a.Run == nil {
		return nil, nil
	}
	return &step.Change{Diff: "+ " + a.Name, Run: a.Run, Verify: step.Verified, Rollback: a.Undo, Resume: a.Back}, nil
}

func takes(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func fails(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

var errBroken = errors.New("broken")

func task(name string, hosts []string, steps ...step.Step) plan.Task {
	return plan.Task{Name: name, Hosts: hosts, Steps: func(string) []step.Step { return steps }}
}

// per makes a task whose steps depend on the host.
func per(name string, hosts []string, steps func(string) []step.Step) plan.Task {
	return plan.Task{Name: name, Hosts: hosts, Steps: steps}
}

type result struct {
	engine.Summary
	err    error
	events []engine.Event
	took   time.Duration
}

// ends maps nodes to how they ended.
func (r result) ends() map[string]string {
	m := map[string]string{}
	for _, ev := range r.events {
		if ev.Status != engine.Started && ev.Status != engine.Retry && ev.Status != engine.Progress {
			at := strings.TrimPrefix(string(ev.Node), "p/")
			m[at] = strings.TrimSpace(m[at] + " " + string(ev.Status))
		}
	}
	return m
}

func (r result) expect(t *testing.T, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, r.ends()); diff != "" {
		t.Errorf("want (-), have (+):\n%s", diff)
	}
}

func planned(t *testing.T, parts ...plan.Part) *plan.ExecutionGraph {
	t.Helper()
	g, err := plan.New(plan.Pipeline{Name: "p", Parts: parts})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func anyHost(name string) (*runner.Runner, error) { return runner.New(name, nil), nil }

func run(ctx context.Context, t *testing.T, e engine.Engine, parts ...plan.Part) (r result) {
	t.Helper()
	g := planned(t, parts...)
	begin := time.Now()
	if e.Hosts == nil {
		e.Hosts = anyHost
	}
	e.Sink = func(ev engine.Event) {
		r.events = append(r.events, ev)
		if ev.Seq != int64(len(r.events)) {
			t.Errorf("event %d has the number %d", len(r.events), ev.Seq)
		}
	}
	r.Summary, r.err = e.Run(ctx, g)
	r.took = time.Since(begin)
	return r
}

func bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func TestOutcomes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t.Context(), t, engine.Engine{}, task("t", []string{"a"},
			act{Name: "nothing"}, act{Name: "change", Run: takes(2 * time.Second)}, act{Name: "fail", Run: fails(fault.Advise(errBroken, "mend it"))}, act{Name: "never"}))
		r.expect(t, map[string]string{"t/nothing@a": "ok", "t/change@a": "changed", "t/fail@a": "failed", "t/never@a": "skipped"})
		if diff := cmp.Diff(engine.Summary{Total: 4, OK: 1, Changed: 1, Failed: 1, Skipped: 1}, r.Summary); diff != "" {
			t.Error(diff)
		}
		var e *engine.Error
		if !errors.As(r.err, &e) || e.Node != "p/t/fail@a" || !errors.Is(r.err, errBroken) || r.err.Error() != "fail on a: broken" {
			t.Errorf("got %v", r.err)
		}
		for _, ev := range r.events {
			switch {
			case ev.Status == engine.Changed && (ev.Diff != "+ change" || ev.Duration != 2*time.Second || ev.Task != "p/t" || ev.Host != "a" || ev.What != "change"):
				t.Errorf("got %+v", ev)
			case ev.Status == engine.Failed && (ev.Error != "broken" || ev.Advice != "mend it"):
				t.Errorf("got %+v", ev)
			}
		}
	})
}

func TestVerifyLooksAgain(t *testing.T) {
	stays := stubborn{}
	r := run(t.Context(), t, engine.Engine{}, task("t", []string{"a"}, stays))
	if r.Failed != 1 || !strings.Contains(r.err.Error(), "verifying: still differs after the change:\nthe gap") {
		t.Errorf("got %v", r.err)
	}
}

// stubborn changes nothing when it runs.
type stubborn struct{}

func (stubborn) String() string { return "stubborn" }

func (stubborn) Precheck(context.Context, *runner.Runner) (*step.Change, error) {
	return &step.Change{Diff: "the gap", Run: fails(nil)}, nil
}

func TestRetries(t *testing.T) {
	times := func(n int, err error) func(context.Context) error {
		return func(context.Context) error {
			if n--; n >= 0 {
				return err
			}
			return nil
		}
	}
	soon := fault.Transient(errBroken)
	for name, c := range map[string]struct {
		step step.Step
		end  string
		took time.Duration
		more int
	}{
		"transient, then well":   {act{Name: "s", Run: times(2, soon)}, "changed", 3 * time.Second, 2},
		"transient in precheck":  {act{Name: "s", Look: times(1, fmt.Errorf("looking: %w", soon))}, "ok", time.Second, 1},
		"transient for too long": {act{Name: "s", Run: times(9, soon)}, "failed", 3 * time.Second, 2},
		"as many as asked for":   {step.With(act{Name: "s", Run: times(9, soon)}, step.Options{Retries: 3}), "failed", 7 * time.Second, 3},
		"not transient":          {act{Name: "s", Run: times(1, errBroken)}, "failed", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := run(t.Context(), t, engine.Engine{}, task("t", []string{"a"}, c.step))
				more := 0
				for _, ev := range r.events {
					if ev.Status == engine.Retry {
						more++
					}
				}
				if r.ends()["t/s@a"] != c.end || r.took != c.took || more != c.more {
					t.Errorf("ended %q after %s and %d retries, want %q after %s and %d", r.ends()["t/s@a"], r.took, more, c.end, c.took, c.more)
				}
			})
		})
	}
}

func TestTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		step step.Step
		want string
		took time.Duration
	}{
		"default":     {act{Name: "s", Run: takes(time.Hour)}, "s on a: not done after 5m0s", 5 * time.Minute},
		"own":         {step.With(act{Name: "s", Run: takes(time.Hour)}, step.Options{Timeout: time.Minute}), "s on a: not done after 1m0s", time.Minute},
		"in precheck": {act{Name: "s", Look: takes(time.Hour)}, "s on a: not done after 5m0s", 5 * time.Minute},
		"with the error that it ended with": {act{Name: "s", Run: func(ctx context.Context) error {
			<-ctx.Done()
			return errBroken
		}}, "s on a: not done after 5m0s: broken", 5 * time.Minute},
		"with one that may pass": {act{Name: "s", Run: func(ctx context.Context) error {
			<-ctx.Done()
			return fault.Transient(errBroken)
		}}, "s on a: not done after 5m0s: broken", 5 * time.Minute},
		"with one that names the cause": {act{Name: "s", Run: func(ctx context.Context) error {
			<-ctx.Done()
			return fault.Transient(context.Cause(ctx))
		}}, "s on a: not done after 5m0s", 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := run(t.Context(), t, engine.Engine{}, task("t", []string{"a"}, c.step))
				if r.err == nil || r.err.Error() != c.want || r.took != c.took {
					t.Errorf("after %s: %v", r.took, r.err)
				}
			})
		})
	}
}

func TestNoHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := engine.Engine{Hosts: func(name string) (*runner.Runner, error) {
			if name == "a" {
				return nil, fault.Transient(errors.New("no route to host"))
			}
			return runner.New(name, nil), nil
		}}
		r := run(t.Context(), t, e, task("t", []string{"a", "b"}, act{Name: "x"}))
		r.expect(t, map[string]string{"t/x@a": "failed", "t/x@b": "ok"})
		if r.took != 3*time.Second {
			t.Errorf("a host that cannot be reached was tried for %s", r.took)
		}
	})
}

func TestDryRun(t *testing.T) {
	never := func(context.Context) error { t.Error("a dry run ran a change"); return nil }
	r := run(t.Context(), t, engine.Engine{DryRun: true}, task("t", []string{"a"},
		act{Name: "nothing"}, act{Name: "change", Run: never, Undo: never}, act{Name: "unknown", Look: fails(errBroken)}, act{Name: "later"}))
	r.expect(t, map[string]string{"t/nothing@a": "ok", "t/change@a": "pending", "t/unknown@a": "pending", "t/later@a": "ok"})
	if r.err != nil || r.Pending != 2 {
		t.Errorf("%+v: %v", r.Summary, r.err)
	}
	for _, ev := range r.events {
		if ev.What == "unknown" && ev.Status == engine.Pending && ev.Diff != "unknown until the steps before it have run: broken" {
			t.Errorf("got %q", ev.Diff)
		}
	}
}

func TestSlowHostHoldsNobodyBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		at := func(what string) func(string) []step.Step {
			return func(h string) []step.Step {
				d := time.Second
				if h == "slow" {
					d = time.Hour
				}
				return []step.Step{step.With(act{Name: what, Run: takes(d)}, step.Options{Timeout: 2 * time.Hour})}
			}
		}
		hosts := []string{"slow", "a", "b", "c"}
		begin := time.Now()
		r := run(t.Context(), t, engine.Engine{}, plan.PerHost{per("t", hosts, at("x")), per("u", hosts, at("y")), per("v", hosts, at("z"))})
		for _, ev := range r.events {
			if late := ev.Time.Sub(begin); ev.Status == engine.Changed && ev.Host != "slow" && late > 3*time.Second {
				t.Errorf("%s was done after %s", ev.Node, late)
			}
		}
		if r.Changed != 12 || r.took != 3*time.Hour {
			t.Errorf("%+v after %s", r.Summary, r.took)
		}
	})
}

func TestProgress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t.Context(), t, engine.Engine{}, task("t", []string{"a"}, act{Name: "x", Run: func(ctx context.Context) error {
			tell := step.Progress(ctx)
			for n := range int64(5) {
				tell(n<<20, 4<<20)
				time.Sleep(300 * time.Millisecond)
			}
			return nil
		}}))
		var texts []string
		for _, ev := range r.events {
			if ev.Status == engine.Progress {
				texts = append(texts, ev.Text)
			}
		}
		if diff := cmp.Diff([]string{"0 of 4 MB", "2 of 4 MB", "4 of 4 MB"}, texts); diff != "" {
			t.Error(diff)
		}
	})
}

func TestBadGraph(t *testing.T) {
	for _, after := range []plan.ID{"b", "none", "a"} {
		g := &plan.ExecutionGraph{Name: "g", Nodes: []plan.Node{{ID: "a", After: []plan.ID{after}}, {ID: "b"}}}
		if _, err := (&engine.Engine{}).Run(t.Context(), g); err == nil || !strings.Contains(err.Error(), "a comes after "+string(after)) {
			t.Errorf("got %v", err)
		}
	}
}

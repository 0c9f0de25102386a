package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

func TestLookAhead(t *testing.T) {
	hosts := []string{"a", "b"}
	chain := func(w *world) plan.Part {
		steps := []step.Step{}
		for _, name := range []string{"1", "2", "3", "4", "5", "6"} {
			steps = append(steps, gets{Name: name, In: w})
		}
		return plan.PerHost{task("t", hosts, steps...)}
	}
	for name, c := range map[string]struct {
		not   []string // done
		limit int      // per host
		took  time.Duration
		looks int
	}{
		"nothing to change":   {nil, 0, 2 * time.Second, 12},
		"one after the other": {nil, 1, 6 * time.Second, 12},
		"the last differs":    {[]string{"6@a"}, 0, 3 * time.Second, 12},
		"all differ":          {[]string{"1@a", "2@a", "3@a", "4@a", "5@a", "6@a"}, 0, 12 * time.Second, 17},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				for _, h := range hosts {
					for _, n := range []string{"1", "2", "3", "4", "5", "6"} {
						w.done[n+"@"+h] = !slices.Contains(c.not, n+"@"+h)
					}
				}
				r := run(t.Context(), t, engine.Engine{LookAhead: true, Limits: engine.Limits{PerHost: c.limit}}, chain(w))
				looks := 0
				for _, n := range w.looks {
					looks += n
				}
				if r.Changed != len(c.not) || r.OK != 12-len(c.not) || r.took != c.took || looks != c.looks {
					t.Errorf("%+v after %s and %d looks", r.Summary, r.took, looks)
				}
				for _, ev := range r.events {
					if ev.Status == engine.OK && ev.Duration != time.Second {
						t.Errorf("%s took %s", ev.Node, ev.Duration)
					}
				}
			})
		})
	}
}

// TestLookIsOldAfterAChange has a step that spoils what was right when it was looked at.
func TestLookIsOldAfterAChange(t *testing.T) {
	for dry, want := range map[bool]map[string]string{
		false: {"t/1@a": "changed", "t/2@a": "changed", "u/2@a": "ok"}, true: {"t/1@a": "pending", "t/2@a": "ok", "u/2@a": "ok"},
	} {
		bubble(t, func(t *testing.T) {
			w := newWorld("2@a")
			r := run(t.Context(), t, engine.Engine{LookAhead: true, DryRun: dry}, task("t", []string{"a"}, gets{Name: "1", In: w, Spoils: "2@a"}, gets{Name: "2", In: w}), task("u", []string{"a"}, gets{Name: "2", In: w}))
			r.expect(t, want)
		})
	}
}

// TestSeenBefore has a look before the run, after which nothing is looked at again but what comes after a change that is not apart.
func TestSeenBefore(t *testing.T) {
	for apart, looks := range map[bool]int{true: 1, false: 3} {
		bubble(t, func(t *testing.T) {
			w := newWorld("2@a", "3@a")
			e := engine.Engine{LookAhead: true, Right: map[plan.ID]bool{"p/t/2@a": true, "p/t/3@a": true}}
			r := run(t.Context(), t, e, task("t", []string{"a"}, gets{Name: "1", In: w, Apart: apart}, gets{Name: "2", In: w}, gets{Name: "3", In: w}))
			r.expect(t, map[string]string{"t/1@a": "changed", "t/2@a": "ok", "t/3@a": "ok"})
			if got := w.looks["1@a"] + w.looks["2@a"] + w.looks["3@a"]; got != looks {
				t.Errorf("apart %t: %d looks, want %d", apart, got, looks)
			}
		})
	}
}

// TestRestartsAreTold has every way to a change tell what it restarts.
func TestRestartsAreTold(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		for _, dry := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				r := run(t.Context(), t, engine.Engine{LookAhead: ahead, DryRun: dry}, task("t", []string{"a"}, gets{Name: "1", In: newWorld()}))
				if last := r.events[len(r.events)-1]; !slices.Equal(last.Restarts, []string{"1@a"}) {
					t.Errorf("ahead %t, dry %t: %s restarts %q", ahead, dry, last.Status, last.Restarts)
				}
			})
		}
	}
}

// TestLooksHoldNobodyBack has looks ahead that never end, and a limit that is taken: what is ready runs all the same.
func TestLooksHoldNobodyBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		few := step.Options{Limit: "few"}
		steps := []step.Step{step.With(act{Name: "0", Run: takes(time.Second)}, few)}
		for _, name := range []string{"1", "2", "3", "4", "5"} {
			steps = append(steps, step.With(act{Name: name, Run: takes(time.Second), Look: func(ctx context.Context) error {
				if ctx.Value(impatient{}) != nil {
					<-ctx.Done()
				}
				return nil
			}}, few))
		}
		e := engine.Engine{LookAhead: true, Limits: engine.Limits{Named: map[string]int{"few": 1}}, Impatient: func(ctx context.Context) context.Context {
			return context.WithValue(ctx, impatient{}, true)
		}}
		r := run(t.Context(), t, e, task("first", []string{"m"}, act{Name: "x", Run: takes(5 * time.Second)}), task("t", []string{"a"}, steps...))
		if r.Changed != 7 || r.took != 11*time.Second {
			t.Errorf("%+v after %s", r.Summary, r.took)
		}
	})
}

// TestLookIsOldAfterATry has a step whose first try spoils what comes after it, and whose second has nothing left to do.
func TestLookIsOldAfterATry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld("2@a")
		tries := 0
		first := fickle{func() *step.Change {
			if tries++; tries > 1 {
				return nil
			}
			return &step.Change{Run: func(context.Context) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				delete(w.done, "2@a")
				return fault.Transient(errBroken)
			}}
		}}
		r := run(t.Context(), t, engine.Engine{LookAhead: true}, task("t", []string{"a"}, first, gets{Name: "2", In: w}))
		r.expect(t, map[string]string{"t/fickle@a": "ok", "t/2@a": "changed"})
	})
}

// fickle is a step whose looks differ.
type fickle struct {
	Look func() *step.Change `json:"-"`
}

func (fickle) String() string { return "fickle" }

func (l fickle) Precheck(ctx context.Context, _ *runner.Runner) (*step.Change, error) {
	return l.Look(), takes(2 * time.Second)(ctx)
}

// TestStopEndsLooks has a scope of ten hosts that are looked at one after the other.
func TestStopEndsLooks(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			stop := make(chan struct{})
			time.AfterFunc(3*time.Second/2, func() { close(stop) })
			hosts := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
			w := newWorld()
			for _, h := range hosts {
				w.done["part@"+h] = true
			}
			if r := run(t.Context(), t, engine.Engine{Stop: stop, LookAhead: ahead, Limits: engine.Limits{Global: 1}}, w.scope(hosts...)); r.Skipped != 40 || r.took > 2*time.Second {
				t.Errorf("%+v after %s", r.Summary, r.took)
			}
		})
	}
}

type impatient struct{}

// TestLookThatFails is made again when the node is ready.
func TestLookThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := 0
		flaky := act{Name: "y", Look: func(context.Context) error {
			if n++; n == 1 {
				panic("too early")
			}
			return nil
		}}
		r := run(t.Context(), t, engine.Engine{LookAhead: true}, task("t", []string{"a"}, act{Name: "x", Look: takes(time.Second)}, flaky))
		r.expect(t, map[string]string{"t/x@a": "ok", "t/y@a": "ok"})
		if n != 2 {
			t.Errorf("looked %d times", n)
		}
	})
}

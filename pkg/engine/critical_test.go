package engine_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

func TestCriticalPath(t *testing.T) {
	lasts := func(name string, d time.Duration) step.Step { return act{Name: name, Run: takes(d)} }
	slow := func(name string, a, b time.Duration) plan.Task {
		return per(name, []string{"a", "b"}, func(h string) []step.Step {
			return []step.Step{lasts(name, map[string]time.Duration{"a": a, "b": b}[h])}
		})
	}
	for name, c := range map[string]struct {
		perHost int
		parts   []plan.Part
		want    []string
	}{
		"through a barrier": {
			0,
			[]plan.Part{slow("one", 3*time.Second, time.Second), slow("two", time.Second, 2*time.Second)},
			[]string{"p/one/one@a +0s 3s", "p/two/two@b +0s 2s"},
		},
		"hosts on their own": {
			0,
			[]plan.Part{plan.PerHost{slow("one", 3*time.Second, time.Second), slow("two", time.Second, 2*time.Second)}},
			[]string{"p/one/one@a +0s 3s", "p/two/two@a +0s 1s"},
		},
		"waiting for a slot": {
			1,
			[]plan.Part{task("one", []string{"a"}, lasts("one", time.Second)), plan.Parallel{
				task("two", []string{"a"}, lasts("two", 4*time.Second)), task("three", []string{"a"}, lasts("three", 5*time.Second)),
			}},
			[]string{"p/one/one@a +0s 1s", "p/three/three@a +4s 5s"},
		},
		"no further than where it failed": {
			0,
			[]plan.Part{task("one", []string{"a"}, lasts("one", time.Second), act{Name: "fail", Run: fails(errBroken)}, lasts("never", time.Second))},
			[]string{"p/one/one@a +0s 1s", "p/one/fail@a +0s 0s"},
		},
		"nothing to run": {0, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g, err := plan.New(plan.Pipeline{Name: "p", Parts: c.parts})
				if err != nil {
					t.Fatal(err)
				}
				var events []engine.Event
				e := engine.Engine{
					Hosts:  func(name string) (*runner.Runner, error) { return runner.New(name, nil), nil },
					Sink:   func(ev engine.Event) { events = append(events, ev) },
					Limits: engine.Limits{PerHost: c.perHost},
				}
				_, _ = e.Run(t.Context(), g)
				text, err := json.Marshal(g)
				if err != nil {
					t.Fatal(err)
				}
				var recorded plan.ExecutionGraph
				if err := json.Unmarshal(text, &recorded); err != nil {
					t.Fatal(err)
				}
				for where, g := range map[string]*plan.ExecutionGraph{"memory": g, "record": &recorded} {
					var got []string
					for _, l := range engine.CriticalPath(g, events) {
						got = append(got, fmt.Sprintf("%s +%s %s", l.Node.ID, l.Waited, l.Took))
					}
					if diff := cmp.Diff(c.want, got); diff != "" {
						t.Errorf("from %s, want (-), got (+):\n%s", where, diff)
					}
				}
			})
		})
	}
}

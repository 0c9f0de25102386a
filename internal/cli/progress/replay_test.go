package progress

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
)

// recorded is a run to be replayed.
type recorded struct {
	graph  *plan.ExecutionGraph
	events []engine.Event // by time
}

// created is the record of creating a cluster of two machines.
func created(t *testing.T) recorded {
	t.Helper()
	r := recorded{graph: &plan.ExecutionGraph{}}
	graph, err := os.ReadFile("testdata/create.graph.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(graph, r.graph); err != nil {
		t.Fatal(err)
	}
	events, err := os.ReadFile("testdata/create.events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(events) {
		var ev engine.Event
		if err := json.Unmarshal(line, &ev); err != nil {
			t.Fatal(err)
		}
		r.events = append(r.events, ev)
	}
	return r
}

// crowd makes the record of a run on many machines: each has the same steps one
// after another, of random length; every hundredth fails half way, and every
// ninetieth of the others is slow.
func crowd(hosts int) recorded {
	random := rand.New(rand.NewPCG(1, 2))
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := recorded{graph: &plan.ExecutionGraph{Name: "create"}}
	for h := 1; h <= hosts; h++ {
		host, at := fmt.Sprintf("node%04d", h), begin.Add(time.Duration(random.IntN(9000))*time.Millisecond)
		failed := false
		for i, what := range []string{"packages", "upload container runtime", "service containerd", "upload kubelet", "service kubelet", "container images", "kubeadm join"} {
			task := "create/machines/" + []string{"prepare", "runtime", "runtime", "programs", "programs", "images", "join"}[i]
			n := plan.Node{ID: plan.ID(fmt.Sprintf("%s/%s@%s", task, what, host)), Task: task, Host: host, What: what, Kind: "step"}
			if i > 0 {
				n.After = []plan.ID{r.graph.Nodes[len(r.graph.Nodes)-1].ID}
			}
			r.graph.Nodes = append(r.graph.Nodes, n)
			ev := engine.Event{Time: at, Node: n.ID, Task: task, Host: host, What: what, Status: engine.Skipped}
			if !failed {
				ev.Status = engine.Started
				r.events = append(r.events, ev)
				ev.Duration = time.Duration(200+random.IntN(4000)) * time.Millisecond
				if h%90 == 0 {
					ev.Duration *= 6
				}
				at = at.Add(ev.Duration)
				ev.Status = engine.Changed
				if failed = h%100 == 0 && i == 3; failed {
					ev.Status, ev.Error = engine.Failed, "the command exited with status 1: No space left on device\nand more"
				}
			}
			ev.Time = at
			r.events = append(r.events, ev)
		}
	}
	slices.SortStableFunc(r.events, func(a, b engine.Event) int { return cmp.Compare(a.Time.UnixNano(), b.Time.UnixNano()) })
	return r
}

// after is the state so long after the run began, and that moment.
func (r recorded) after(d time.Duration) (*State, time.Time) {
	begin := r.events[0].Time
	s, now := NewState(r.graph, begin), begin.Add(d)
	for _, ev := range r.events {
		if !ev.Time.After(now) {
			s.Apply(ev)
		}
	}
	return s, now
}

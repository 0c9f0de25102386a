package engine

import (
	"slices"
	"time"

	"github.com/kubexm/kubexm/pkg/plan"
)

// Leg is a node on the critical path of a run.
type Leg struct {
	Node   *plan.Node
	Waited time.Duration // from the end of the leg before to the node's start: for its host or for a limit
	Took   time.Duration // from the node's start to its end, retries included
}

// CriticalPath returns the chain of nodes that made a run last as long as it did:
// the node that ended last, before it the one of its predecessors that ended last,
// and so on. It needs the graph and the events of the run, from memory or from
// the record; nodes that did not run are not on it.
func CriticalPath(g *plan.ExecutionGraph, events []Event) []Leg {
	type span struct{ begin, end time.Time }
	spans := map[plan.ID]*span{}
	var last plan.ID
	for _, ev := range events {
		switch ev.Status {
		case Started:
			spans[ev.Node] = &span{begin: ev.Time}
		case OK, Changed, Pending, Failed:
			if s := spans[ev.Node]; s != nil {
				s.end, last = ev.Time, ev.Node
			}
		case Progress, Retry, Skipped, Restored:
		}
	}
	nodes := make(map[plan.ID]*plan.Node, len(g.Nodes))
	for i := range g.Nodes {
		nodes[g.Nodes[i].ID] = &g.Nodes[i]
	}
	var path []Leg
	for id := last; nodes[id] != nil; {
		now := spans[id]
		leg := Leg{Node: nodes[id], Took: now.end.Sub(now.begin)}
		id = ""
		for _, before := range stepsBefore(nodes, leg.Node) {
			if s := spans[before]; s != nil && !s.end.IsZero() && (id == "" || s.end.After(spans[id].end)) {
				id = before
			}
		}
		if id != "" {
			leg.Waited = now.begin.Sub(spans[id].end)
		}
		path = append(path, leg)
	}
	slices.Reverse(path)
	return path
}

// stepsBefore returns the steps that n waits for, through barriers.
func stepsBefore(nodes map[plan.ID]*plan.Node, n *plan.Node) []plan.ID {
	var steps []plan.ID
	seen := map[plan.ID]bool{}
	var walk func(*plan.Node)
	walk = func(n *plan.Node) {
		for _, id := range n.After {
			switch before := nodes[id]; {
			case before == nil || seen[id]:
			case before.Barrier():
				seen[id] = true
				walk(before)
			default:
				seen[id] = true
				steps = append(steps, id)
			}
		}
	}
	walk(n)
	return steps
}

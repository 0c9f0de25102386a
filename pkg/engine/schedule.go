package engine

import (
	"context"

	"github.com/kubexm/kubexm/pkg/step"
)

// Lanes, in the order in which they are served.
const (
	runs   = iota // nodes that are ready
	wanted        // looks that a scope waits for
	ahead         // looks that nobody waits for yet
	lanes
)

// lane is a queue of nodes.
type lane struct {
	ready  []int          // may start, in the order of the graph
	parked map[slot][]int // may start when a slot gets free
	wake   []slot         // where slots got free
}

// slot names a limit: of all; of a host; of looks at a host; or one that steps name themselves.
type slot struct{ host, name string }

const looking = "look"

func (r *run) slots(i int) []slot {
	n := &r.g.Nodes[i]
	slots := []slot{{}, {host: n.Subject()}} // a master that many wait on for others has its own limit, on sessions
	if n.Barrier() {
		return slots
	}
	if name := step.OptionsOf(n.Step).Limit; r.Limits.Named[name] > 0 {
		slots = append(slots, slot{name: name})
	}
	return slots
}

func (r *run) lookSlots(i int) []slot {
	host := r.g.Nodes[i].Subject()
	return []slot{{}, {host: host}, {host, looking}}
}

func (r *run) free(s slot) bool {
	switch perHost := orDefault(r.Limits.PerHost, 4); {
	case s == slot{}:
		return r.used[s] < orDefault(r.Limits.Global, 128)
	case s.host == "":
		return r.used[s] < r.Limits.Named[s.name]
	case s.name == looking: // leaves a place for what is ready
		return r.used[s] < max(1, perHost-1)
	default:
		return r.used[s] < perHost
	}
}

// acquire takes slots for a node, or parks it where the limit is reached.
func (r *run) acquire(l *lane, i int, slots []slot) bool {
	for _, s := range slots {
		if !r.free(s) {
			l.parked[s] = append(l.parked[s], i)
			return false
		}
	}
	for _, s := range slots {
		r.used[s]++
	}
	r.running++
	return true
}

func (r *run) release(slots []slot) {
	for _, s := range slots {
		r.used[s]--
		for l := range r.lanes {
			if len(r.lanes[l].parked[s]) > 0 {
				r.lanes[l].wake = append(r.lanes[l].wake, s)
			}
		}
	}
}

// start starts, or settles at once, all nodes that may, and then looks at others.
func (r *run) start(ctx, looks context.Context) {
	for r.stopped || r.free(slot{}) {
		kind, i, ok := r.pop()
		switch {
		case !ok:
			return
		case kind == ahead:
			r.launchLook(looks, kind, i)
		case kind == wanted:
			r.launchLook(ctx, kind, i)
		case !r.settle(i):
			r.launch(ctx, i)
		}
	}
}

// pop returns the next node: one that waited for a slot, or one that got ready.
func (r *run) pop() (kind, i int, ok bool) {
	for kind := range r.lanes {
		l := &r.lanes[kind]
		for len(l.wake) > 0 {
			s := l.wake[0]
			if list := l.parked[s]; len(list) > 0 && r.free(s) {
				l.parked[s] = list[1:]
				return kind, list[0], true
			}
			l.wake = l.wake[1:]
		}
		if len(l.ready) > 0 {
			i, l.ready = l.ready[0], l.ready[1:]
			return kind, i, true
		}
	}
	return 0, 0, false
}

// launch runs a node as soon as it has its slots.
func (r *run) launch(ctx context.Context, i int) {
	if !r.acquire(&r.lanes[runs], i, r.slots(i)) {
		return
	}
	r.enter(i)
	if u := r.unit(i); u != nil {
		u.running++
	}
	st := &r.nodes[i]
	j := job{Node: &r.g.Nodes[i], key: r.key(i), later: st.before > 0, undo: r.undoes(i)}
	if st.look.stage == seen && r.fresh(&st.look, st.before) {
		j.change = st.look.change
	}
	st.look.stage = taken
	go func() {
		d := r.node(ctx, j)
		d.i = i
		r.done <- d
	}()
}

func orDefault(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}

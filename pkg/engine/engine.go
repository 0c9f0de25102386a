package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
)

// Limits bound how much runs at a time; 0 means the default.
type Limits struct {
	Global  int            // nodes of the run; default 128
	PerHost int            // nodes that are about one host; default 4, well below sshd's ten sessions
	Named   map[string]int // nodes that count against step.Options.Limit
}

// Engine executes graphs.
type Engine struct {
	Hosts    func(name string) (*runner.Runner, error)
	Sink     func(Event)     // called for one event at a time
	Stop     <-chan struct{} // closed: let what runs finish, start nothing more; nil: never
	DryRun   bool            // only look
	Rollback bool            // undo what this run changed in a task on a host, when the task fails there
	FailFast bool            // start nothing more after the first failure; else independent branches go on
	Limits   Limits
}

// Error is a node that failed.
type Error struct {
	Node plan.ID
	What string
	Host string
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s on %s: %v", e.What, e.Host, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// Run executes g and returns how it went, with the joined *Errors of failed nodes.
func (e *Engine) Run(ctx context.Context, g *plan.ExecutionGraph) (Summary, error) {
	r := &run{
		Engine: e, g: g, done: make(chan int), used: map[slot]int{}, parked: map[slot][]int{},
		dead: map[string]bool{}, tolerated: map[string]int{}, undo: map[string][]undo{},
	}
	if err := r.prepare(); err != nil {
		return r.sum, err
	}
	r.loop(ctx)
	r.sum.Interrupted = r.halted && (r.sum.Skipped > 0 || ctx.Err() != nil && r.sum.Failed > 0)
	return r.sum, errors.Join(r.errs...)
}

type outcome int

const (
	waiting outcome = iota
	good
	bad     // failed, or not run because its own host failed before
	blocked // not run because of others, or of a stop
)

// slot names a limit: of a host, or one that steps name themselves.
type slot struct{ host, name string }

type run struct {
	*Engine
	g         *plan.ExecutionGraph
	prev      [][]int        // node -> those that it waits for
	next      [][]int        // node -> those that wait for it
	missing   []int          // node -> how many it still waits for
	out       []outcome      // node -> how it ended
	ready     []int          // may start, in order of the graph
	parked    map[slot][]int // may start when a slot gets free
	wake      []slot         // where slots got free
	used      map[slot]int
	running   int
	done      chan int        // nodes that ended
	stopped   bool            // start nothing more
	halted    bool            // stopped by Stop or by the context
	dead      map[string]bool // hosts whose failure was tolerated
	tolerated map[string]int  // task -> how many of them

	mu   sync.Mutex // guards what follows
	sum  Summary
	errs []error
	undo map[string][]undo
}

// prepare numbers the edges.
func (r *run) prepare() error {
	n := len(r.g.Nodes)
	r.prev, r.next, r.missing, r.out = make([][]int, n), make([][]int, n), make([]int, n), make([]outcome, n)
	num := make(map[plan.ID]int, n)
	for i := range r.g.Nodes {
		node := &r.g.Nodes[i]
		num[node.ID] = i
		for _, a := range node.After {
			j, ok := num[a]
			if !ok || j == i {
				return fmt.Errorf("graph %s: %s comes after %s, which is not before it", r.g.Name, node.ID, a)
			}
			r.prev[i], r.next[j] = append(r.prev[i], j), append(r.next[j], i)
			r.missing[i]++
		}
		if !node.Barrier() {
			r.sum.Total++
		}
		if r.missing[i] == 0 {
			r.ready = append(r.ready, i)
		}
	}
	return nil
}

func (r *run) loop(ctx context.Context) {
	stop, cut := r.Stop, ctx.Done()
	for {
		select { // a stop that is there already comes before more work
		case <-stop:
			r.stopped, r.halted, stop = true, true, nil
		case <-cut:
			r.stopped, r.halted, cut = true, true, nil
		default:
		}
		r.start(ctx)
		if r.running == 0 {
			return
		}
		select {
		case i := <-r.done:
			r.running--
			for _, s := range r.slots(&r.g.Nodes[i]) {
				r.used[s]--
				r.wake = append(r.wake, s)
			}
			r.ended(i)
		case <-stop:
			r.stopped, r.halted, stop = true, true, nil
		case <-cut: // what runs ends by itself: its context is gone
			r.stopped, r.halted, cut = true, true, nil
		}
	}
}

// start starts, or settles at once, all nodes that may.
func (r *run) start(ctx context.Context) {
	for r.stopped || r.running < orDefault(r.Limits.Global, 128) {
		i, ok := r.pop()
		if !ok {
			return
		}
		if !r.settle(i) {
			r.launch(ctx, i)
		}
	}
}

// pop returns the next node to look at: one that waited for a slot, or one that got ready.
func (r *run) pop() (i int, ok bool) {
	for len(r.wake) > 0 {
		s := r.wake[0]
		if list := r.parked[s]; len(list) > 0 && (r.stopped || r.used[s] < r.size(s)) {
			r.parked[s] = list[1:]
			return list[0], true
		}
		r.wake = r.wake[1:]
	}
	if len(r.ready) == 0 {
		return 0, false
	}
	i, r.ready = r.ready[0], r.ready[1:]
	return i, true
}

// launch runs a node, or parks it where the limit is reached.
func (r *run) launch(ctx context.Context, i int) {
	n := &r.g.Nodes[i]
	slots := r.slots(n)
	for _, s := range slots {
		if r.used[s] >= r.size(s) {
			r.parked[s] = append(r.parked[s], i)
			return
		}
	}
	for _, s := range slots {
		r.used[s]++
	}
	r.running++
	go func() {
		r.out[i] = r.node(ctx, n)
		r.done <- i
	}()
}

func (r *run) slots(n *plan.Node) []slot {
	slots := []slot{{host: n.Subject()}} // a master that many wait on for others has its own limit, on sessions
	if name := options(n).Limit; r.Limits.Named[name] > 0 {
		slots = append(slots, slot{name: name})
	}
	return slots
}

func (r *run) size(s slot) int {
	if s.name != "" {
		return r.Limits.Named[s.name]
	}
	return orDefault(r.Limits.PerHost, 4)
}

// settle decides about a node without running it: barriers, and nodes whose way is blocked.
func (r *run) settle(i int) bool {
	n := &r.g.Nodes[i]
	failed, others := 0, false
	for _, j := range r.prev[i] {
		switch m := &r.g.Nodes[j]; {
		case r.out[j] == blocked:
			others = true
		case r.out[j] == bad && !r.dead[m.Subject()]:
			failed++
			others = others || !n.Barrier() && m.Subject() != n.Subject()
		}
	}
	switch {
	case n.Barrier():
		r.out[i] = r.tolerate(i, failed, others)
	case others || r.stopped:
		r.out[i] = blocked
	case failed > 0 || r.dead[n.Subject()]:
		r.out[i] = bad
	default:
		return false
	}
	if !n.Barrier() {
		r.emit(n, Event{Status: Skipped})
	}
	r.ended(i)
	return true
}

// tolerate passes a barrier when no more hosts of its task failed than may. They
// are left alone from there on.
func (r *run) tolerate(barrier, failed int, others bool) outcome {
	n := &r.g.Nodes[barrier]
	if others || failed > 0 && r.tolerated[n.Task]+failed > n.MaxFailures {
		return blocked
	}
	r.tolerated[n.Task] += failed
	for _, j := range r.prev[barrier] {
		if r.out[j] == bad {
			r.dead[r.g.Nodes[j].Subject()] = true
		}
	}
	return good
}

func (r *run) ended(i int) {
	if r.FailFast && r.out[i] == bad {
		r.stopped = true
	}
	for _, j := range r.next[i] {
		if r.missing[j]--; r.missing[j] == 0 {
			r.ready = append(r.ready, j)
		}
	}
}

func (r *run) emit(n *plan.Node, ev Event) {
	ev.Time, ev.Node, ev.Task, ev.Host, ev.What = time.Now(), n.ID, n.Task, n.Host, n.What
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.count(ev)
	if r.Sink != nil {
		r.Sink(ev)
	}
}

func orDefault(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}

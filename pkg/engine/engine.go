package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
)

// Limits bound how much runs at a time; 0 means the default.
type Limits struct {
	Global  int            // nodes of the run; default 128
	PerHost int            // nodes that are about one host; default 4, well below sshd's ten sessions
	Named   map[string]int // nodes that count against step.Options.Limit; looks ahead do not
	Process chan struct{}  // of as many places as nodes and looks of all runs that share it may have; nil: no bound
}

// hold takes a place in a process, and returns what gives it back.
func (l Limits) hold(ctx context.Context) (release func()) {
	if l.Process != nil {
		select {
		case l.Process <- struct{}{}:
			return func() { <-l.Process }
		case <-ctx.Done(): // what runs ends by itself
		}
	}
	return func() {}
}

// Rollback says what is undone of what this run changed, when a node fails. The steps of a
// scope count as one task, without those of scopes in it. What a Finally changed stays.
type Rollback string

// Rollback policies.
const (
	RollbackNone Rollback = ""
	RollbackHost Rollback = "host" // the task, on the host that the failed node is about
	RollbackTask Rollback = "task" // the task, on all its hosts; on that host alone where failures are tolerated
)

// Engine executes graphs.
type Engine struct {
	Hosts     func(name string) (*runner.Runner, error)
	Sink      func(Event)     // called for one event at a time; the run waits for it
	Stop      <-chan struct{} // closed: let what runs finish, start nothing more but what is left of scopes for hosts that have changed in them, and Finally; nil: never
	DryRun    bool            // only look
	Rollback  Rollback
	LookAhead bool             // precheck all nodes side by side but those around scopes, and run only those that differ or come after a change
	Right     map[plan.ID]bool // nodes that a look has just found right: they are looked at again only after a change
	// Impatient marks the context of a look ahead, at what may not be there yet. nil: not at all.
	Impatient func(context.Context) context.Context
	Limits    Limits
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
		Engine: e, g: g, done: make(chan result), used: map[slot]int{}, dead: map[string]int{},
		tolerated: map[string]int{}, tolerant: map[string]bool{}, units: map[key]*unit{}, undo: map[key][]undo{},
	}
	for l := range r.lanes {
		r.lanes[l].parked = map[slot][]int{}
	}
	if err := r.prepare(); err != nil {
		return r.sum, err
	}
	r.loop(ctx)
	r.sum.Interrupted = r.stopped && (r.sum.Skipped > 0 || ctx.Err() != nil && r.sum.Failed > 0)
	return r.sum, errors.Join(r.errs...)
}

type outcome int

const (
	waiting outcome = iota
	good
	bad     // failed, or not run because its own host failed before
	blocked // not run because of others, or of a stop
)

// run is one execution. Its loop alone reads and writes it, but for what mu guards.
type run struct {
	*Engine
	g         *plan.ExecutionGraph
	nodes     []node
	scopes    []scope
	lanes     [lanes]lane
	used      map[slot]int
	running   int // goroutines
	left      int // nodes that have not ended
	done      chan result
	stopped   bool           // see Stop
	cut       bool           // nor that
	stopLooks func()         // ends looks ahead
	clock     int            // counts changes
	ticks     int            // counts nodes that ended
	dead      map[string]int // hosts whose failure was tolerated, and since which tick
	tolerated map[string]int // task -> how many of them
	tolerant  map[string]bool
	units     map[key]*unit // only under RollbackTask

	mu   sync.Mutex // guards what follows
	seq  int64
	sum  Summary
	errs []error
	undo map[key][]undo
}

// node is how far a node of the graph is.
type node struct {
	prev, next []int   // those that it waits for, and those that wait for it
	missing    int     // how many it still waits for
	out        outcome // how it ended
	scope      int     // innermost; -1: none
	finally    int     // innermost scope in whose Finally it stands; -1: none
	before     int     // clock at the last change before it
	changed    int     // clock at its own change; 0: none
	look       look
}

// result is what a goroutine ends with.
type result struct {
	i       int
	out     outcome // of a node
	changed bool    // so may have been its host
	apart   bool    // but in nothing that others look at
	looked  *found  // of a look
	undone  *unit   // of a rollback
}

// prepare numbers nodes and scopes.
func (r *run) prepare() error {
	if err := r.prepareScopes(); err != nil {
		return err
	}
	r.nodes, r.left = make([]node, len(r.g.Nodes)), len(r.g.Nodes)
	num, scopes := make(map[plan.ID]int, len(r.g.Nodes)), make(map[string]int, len(r.scopes))
	for s := range r.scopes {
		scopes[r.g.Scopes[s].ID] = s
	}
	for i := range r.g.Nodes {
		n, st := &r.g.Nodes[i], &r.nodes[i]
		num[n.ID] = i
		for _, a := range n.After {
			j, ok := num[a]
			if !ok || j == i {
				return fmt.Errorf("graph %s: %s comes after %s, which is not before it", r.g.Name, n.ID, a)
			}
			st.prev, r.nodes[j].next = append(st.prev, j), append(r.nodes[j].next, i)
			st.missing++
		}
		st.scope, st.finally = -1, -1
		if s, ok := scopes[n.Scope]; ok {
			r.place(i, s)
		} else if n.Scope != "" {
			return fmt.Errorf("graph %s: %s is in the scope %s, which is not there", r.g.Name, n.ID, n.Scope)
		}
		if st.missing == 0 {
			r.lanes[runs].ready = append(r.lanes[runs].ready, i)
		}
		switch {
		case n.Barrier():
			r.tolerant[n.Task] = r.tolerant[n.Task] || n.MaxFailures > 0
		default:
			r.sum.Total++
			switch {
			case r.around(i):
			case r.Right[n.ID]:
				st.look.stage = seen
			case r.LookAhead:
				r.lanes[ahead].ready = append(r.lanes[ahead].ready, i)
			}
		}
	}
	return nil
}

func (r *run) loop(ctx context.Context) {
	looks, cancel := context.WithCancel(ctx)
	defer cancel()
	r.stopLooks = cancel
	stop, cut := r.Stop, ctx.Done()
	for {
		select { // a stop that is there already comes before more work
		case <-stop:
			stop = nil
			r.halt()
		case <-cut:
			cut, r.cut = nil, true
			r.halt()
		default:
		}
		r.start(ctx, looks)
		if r.running == 0 {
			return
		}
		select {
		case d := <-r.done:
			r.running--
			r.take(ctx, d)
		case <-stop:
			stop = nil
			r.halt()
		case <-cut: // what runs ends by itself: its context is gone
			cut, r.cut = nil, true
			r.halt()
		}
	}
}

// halt starts nothing more: what waited for a slot, or for a scope to be decided, is settled.
func (r *run) halt() {
	r.stopped = true
	r.stopLooks()
	r.lanes[ahead] = lane{parked: map[slot][]int{}}
	l := &r.lanes[runs]
	for s, list := range l.parked {
		l.ready = append(l.ready, list...)
		delete(l.parked, s)
	}
	for s := range r.scopes {
		if r.scopes[s].state == deciding {
			r.decided(&r.scopes[s], undecided)
		}
	}
}

// take notes how something ended.
func (r *run) take(ctx context.Context, d result) {
	switch {
	case d.looked != nil:
		r.release(r.lookSlots(d.i))
		r.looked(d.i, d.looked)
	case d.undone != nil:
		r.undone(d.undone)
	default:
		r.release(r.slots(d.i))
		r.nodes[d.i].out = d.out
		if d.changed {
			r.change(d.i, d.apart)
		}
		if !r.held(ctx, d.i) {
			r.ended(d.i)
		}
	}
}

// ended makes ready what waited for a node.
func (r *run) ended(i int) {
	r.ticks++
	r.left--
	if r.left == 0 {
		r.stopLooks()
	}
	st := &r.nodes[i]
	for _, j := range st.next {
		next := &r.nodes[j]
		next.before = max(next.before, st.before, st.changed)
		if next.missing--; next.missing == 0 {
			r.lanes[runs].ready = append(r.lanes[runs].ready, j)
		}
	}
	r.answered(st.look.scope, nil)
	st.look = look{stage: taken} // what it found is of no use any more
}

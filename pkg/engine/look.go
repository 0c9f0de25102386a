package engine

import (
	"context"
	"time"

	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// stage is how far a look is.
type stage int

const (
	unknown  stage = iota
	underway       // or of no use any more, when it ends after the node was launched
	seen
	taken // by the node, which looks for itself from there on
)

// look is a Precheck of a node before it is ready.
type look struct {
	stage  stage
	began  int          // clock at its beginning
	change *step.Change // nil: nothing to do
	took   time.Duration
	ready  bool   // its node waits for it
	scope  *scope // so does a scope, while it is deciding
}

// found is how a look ended.
type found struct {
	change *step.Change
	took   time.Duration
	err    error
}

// fresh reports whether a look has begun after a change; in a dry run nothing changes.
func (r *run) fresh(l *look, change int) bool { return r.DryRun || l.began >= change }

// launchLook looks at a node that nobody has looked at, as soon as there is a slot.
func (r *run) launchLook(ctx context.Context, kind, i int) {
	st := &r.nodes[i]
	sc := st.look.scope
	needed := kind == ahead || sc != nil && sc.state == deciding
	switch {
	case st.look.stage != unknown || !needed:
		return
	case st.out != waiting || r.gone(i):
		st.look.scope = nil
		r.answered(sc, nil)
		return
	case !r.acquire(&r.lanes[kind], i, r.lookSlots(i)):
		return
	}
	st.look.stage, st.look.began = underway, r.clock
	n := &r.g.Nodes[i]
	go func() {
		defer r.Limits.hold(ctx)()
		begin := time.Now()
		c, err := r.look(ctx, n)
		r.done <- result{i: i, looked: &found{c, time.Since(begin), err}}
	}()
}

func (r *run) look(ctx context.Context, n *plan.Node) (c *step.Change, err error) {
	defer fault.Caught(&err)
	if r.Impatient != nil {
		ctx = r.Impatient(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, step.OptionsOf(n.Step).Timeout)
	defer cancel()
	h, err := r.Hosts(n.Host)
	if err != nil {
		return nil, err
	}
	return n.Step.Precheck(ctx, h)
}

// looked notes what a look found. What it could not find out is unknown.
func (r *run) looked(i int, f *found) {
	l := &r.nodes[i].look
	if l.stage != underway {
		return
	}
	l.stage, l.change, l.took = seen, f.change, f.took
	if f.err != nil {
		l.stage = unknown
	}
	if l.ready {
		l.ready = false
		r.lanes[runs].ready = append(r.lanes[runs].ready, i)
	}
	sc := l.scope
	if sc == nil || sc.state != deciding {
		return
	}
	if !r.fresh(l, sc.clock) {
		r.want(i, sc)
		return
	}
	l.scope = nil
	if f.err != nil {
		r.decided(sc, busy)
		return
	}
	r.answered(sc, f.change)
}

// want has a look at a node for a scope.
func (r *run) want(i int, sc *scope) {
	r.nodes[i].look = look{scope: sc}
	r.lanes[wanted].ready = append(r.lanes[wanted].ready, i)
}

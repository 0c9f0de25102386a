package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// errTimeout is the cause that ends a step's context. What used up its time has waited for as long as it may: another try
// would wait again. A connection that stalls is given up after about 75 s by its keep-alive, and is worth another.
var errTimeout = errors.New("not done after")

// job is a node that runs.
type job struct {
	*plan.Node
	key    key
	undo   bool         // it can be rolled back
	later  bool         // something before it has changed, or would in a dry run
	change *step.Change // that a look found; nil: look
}

// node runs one node to its end and reports it. It also reports whether its host may be another than before.
func (r *run) node(ctx context.Context, j job) result {
	defer r.Limits.hold(ctx)()
	n, begin := j.Node, time.Now()
	r.emit(n, Event{Status: Started})
	opt := step.OptionsOf(n.Step)
	var ev Event
	var err error
	try := 0
	for ; ; try++ {
		ev, err = r.try(ctx, j, opt.Timeout)
		j.change = nil // another try looks again
		if err == nil || try >= opt.Retries || !fault.IsTransient(err) || errors.Is(err, errTimeout) || ctx.Err() != nil {
			break
		}
		r.emit(n, Event{Status: Retry, Error: err.Error()})
		select {
		case <-ctx.Done():
		case <-time.After(time.Second << try):
		}
	}
	ev.Duration = time.Since(begin)
	if err == nil {
		r.emit(n, ev)
		return result{out: good, changed: ev.Status != OK || try > 0, apart: ev.apart && try == 0} // an earlier try may have changed something
	}
	ev.Status, ev.Error, ev.Advice = Failed, err.Error(), fault.Advice(err)
	r.emit(n, ev)
	r.failed(n, err)
	if j.undo && (r.Rollback == RollbackHost || r.tolerant[n.Task]) && ctx.Err() == nil {
		r.rollBack(ctx, j.key, n.Subject())
	}
	return result{out: bad, changed: true}
}

func (r *run) failed(n *plan.Node, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, &Error{n.ID, n.What, n.Host, err})
}

// try looks, changes and verifies once.
func (r *run) try(ctx context.Context, j job, timeout time.Duration) (ev Event, err error) {
	defer fault.Caught(&err)
	n := j.Node
	cause := fmt.Errorf("%w %s", errTimeout, timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, cause)
	defer cancel()
	ctx = step.WithProgress(ctx, func(text string) { r.emit(n, Event{Status: Progress, Text: text}) })
	h, err := r.Hosts(n.Host)
	if err != nil {
		return Event{}, err
	}
	c := j.change
	if c == nil {
		c, err = n.Step.Precheck(ctx, h)
	}
	switch {
	case err != nil && r.DryRun && ctx.Err() == nil && j.later:
		return Event{Status: Pending, Later: true, Diff: "unknown until the steps before it have run: " + err.Error()}, nil
	case err != nil && r.DryRun && ctx.Err() == nil:
		return Event{Status: Pending, Diff: "unknown: " + err.Error()}, nil
	case err != nil:
		return Event{}, because(ctx, err)
	}
	if c == nil {
		return Event{Status: OK}, nil
	}
	ev = Event{Status: Changed, Diff: c.Diff, Restarts: c.Restarts, apart: c.Apart}
	if r.DryRun {
		ev.Status = Pending
		return ev, nil
	}
	if j.undo && c.Rollback != nil {
		r.remember(j, c)
	}
	if err := c.Run(ctx); err != nil {
		return ev, because(ctx, err)
	}
	if err := step.Verify(ctx, h, n.Step, c); err != nil {
		return ev, because(ctx, fmt.Errorf("verifying: %w", err))
	}
	return ev, nil
}

// because says so when err came from the step's own deadline.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func (r *run) emit(n *plan.Node, ev Event) {
	ev.Time, ev.Node, ev.Task, ev.Host, ev.What = time.Now(), n.ID, n.Task, n.Host, n.What
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	ev.Seq = r.seq
	r.sum.count(ev)
	if r.Sink != nil {
		r.Sink(ev)
	}
}

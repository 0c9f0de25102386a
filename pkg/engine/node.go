package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// errTimeout is the cause that ends a step's context. What used up its time has waited for as long as it may: another try
// would wait anew. A connection that stalls is given up after about 75 s by its keep-alive, and is worth another.
var errTimeout = errors.New("not done after")

type undo struct {
	node *plan.Node
	fn   func(context.Context) error
}

func (u undo) call(ctx context.Context) (err error) {
	defer fault.Caught(&err)
	return u.fn(ctx)
}

func options(n *plan.Node) step.Options {
	if n.Barrier() {
		return step.Options{}
	}
	return step.OptionsOf(n.Step)
}

// node runs one node to its end and reports it.
func (r *run) node(ctx context.Context, n *plan.Node) outcome {
	begin := time.Now()
	r.emit(n, Event{Status: Started})
	opt := options(n)
	var ev Event
	var err error
	for try := 0; ; try++ {
		ev, err = r.try(ctx, n, opt.Timeout)
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
		return good
	}
	ev.Status, ev.Error, ev.Advice = Failed, err.Error(), fault.Advice(err)
	r.emit(n, ev)
	r.failed(n, err)
	if r.Rollback && ctx.Err() == nil {
		r.rollBack(ctx, n)
	}
	return bad
}

func (r *run) failed(n *plan.Node, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, &Error{n.ID, n.What, n.Host, err})
}

// try looks, changes and verifies once.
func (r *run) try(ctx context.Context, n *plan.Node, timeout time.Duration) (ev Event, err error) {
	defer fault.Caught(&err)
	cause := fmt.Errorf("%w %s", errTimeout, timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, cause)
	defer cancel()
	ctx = step.WithProgress(ctx, func(text string) { r.emit(n, Event{Status: Progress, Text: text}) })
	h, err := r.Hosts(n.Host)
	if err != nil {
		return Event{}, err
	}
	c, err := n.Step.Precheck(ctx, h)
	if err != nil {
		if r.DryRun && ctx.Err() == nil {
			return Event{Status: Pending, Diff: "cannot be told before the steps ahead of it ran: " + err.Error()}, nil
		}
		return Event{}, because(ctx, err)
	}
	if c == nil {
		return Event{Status: OK}, nil
	}
	ev = Event{Status: Changed, Diff: c.Diff}
	if r.DryRun {
		ev.Status = Pending
		return ev, nil
	}
	if c.Rollback != nil {
		r.remember(n, c.Rollback)
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

// onHost counts the changes of a host.
func onHost(list []undo, host string) (n int) {
	for _, u := range list {
		if u.node.Host == host {
			n++
		}
	}
	return n
}

func (r *run) remember(n *plan.Node, fn func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := n.Task + "@" + n.Subject()
	r.undo[key] = append(r.undo[key], undo{n, fn})
}

// rollBack undoes, newest first, what this run changed in the task of n for its host. A
// host that is lost is told of once, with what stays on it, and not asked again.
func (r *run) rollBack(ctx context.Context, n *plan.Node) {
	key := n.Task + "@" + n.Subject()
	r.mu.Lock()
	list := r.undo[key]
	delete(r.undo, key)
	r.mu.Unlock()
	lost := map[string]bool{}
	for i, u := range slices.Backward(list) {
		if lost[u.node.Host] {
			continue
		}
		ev := Event{Status: Restored}
		ctx, cancel := context.WithTimeout(ctx, options(u.node).Timeout)
		if err := u.call(ctx); err != nil {
			err = fmt.Errorf("rolling back: %w", err)
			if lost[u.node.Host] = fault.IsTransient(err); lost[u.node.Host] {
				err = fmt.Errorf("%w; changes before it that stay: %d", err, onHost(list[:i], u.node.Host))
			}
			ev.Error, ev.Advice = err.Error(), fault.Advice(err)
			r.failed(u.node, err)
		}
		cancel()
		r.emit(u.node, ev)
	}
}

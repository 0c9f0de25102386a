package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// key names what is undone together: an innermost scope, as scopes in it that have ended are done with; or a
// task outside of scopes.
type key struct{ scope, task string }

// unit is what is undone together on all its hosts.
type unit struct {
	key
	running int
	failed  bool  // nothing more of it is started
	held    []int // nodes that failed: what comes after them waits until all is undone
}

type undo struct {
	node             *plan.Node
	rollback, resume func(context.Context) error
}

func (u undo) call(ctx context.Context, fn func(context.Context) error) (err error) {
	defer fault.Caught(&err)
	ctx, cancel := context.WithTimeout(ctx, step.OptionsOf(u.node.Step).Timeout)
	defer cancel()
	return fn(ctx)
}

func (r *run) key(i int) key {
	if n := &r.g.Nodes[i]; n.Scope == "" {
		return key{task: n.Task}
	}
	return key{scope: r.g.Nodes[i].Scope}
}

// undoes reports whether what a node changed is undone when it, or another of its scope or task, fails.
func (r *run) undoes(i int) bool { return r.Rollback != RollbackNone && r.nodes[i].finally < 0 }

// unit returns what a node is undone with on all hosts, or nil.
func (r *run) unit(i int) *unit {
	if r.Rollback != RollbackTask || !r.undoes(i) {
		return nil
	}
	k := r.key(i)
	if r.units[k] == nil {
		r.units[k] = &unit{key: k}
	}
	return r.units[k]
}

func (r *run) givenUp(i int) bool {
	u := r.unit(i)
	return u != nil && u.failed
}

// held undoes a unit as soon as nothing of it runs. It reports whether what comes after node i, which
// has run, waits for that.
func (r *run) held(ctx context.Context, i int) bool {
	u := r.unit(i)
	if u == nil {
		return false
	}
	u.running--
	failed := r.nodes[i].out == bad && !r.tolerant[r.g.Nodes[i].Task]
	if failed {
		u.failed, u.held = true, append(u.held, i)
	}
	if u.running == 0 && len(u.held) > 0 {
		r.running++
		go func() {
			if ctx.Err() == nil {
				r.rollBack(ctx, u.key, "")
			}
			r.done <- result{undone: u}
		}()
	}
	return failed
}

func (r *run) undone(u *unit) {
	for _, i := range u.held {
		r.ended(i)
	}
	u.held = nil
}

func (r *run) remember(j job, c *step.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.undo[j.key] = append(r.undo[j.key], undo{j.Node, c.Rollback, c.Resume})
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

// forget takes the changes of k that are about a host, or all, off the list.
func (r *run) forget(k key, subject string) (list []undo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.undo[k] = slices.DeleteFunc(r.undo[k], func(u undo) bool {
		own := subject == "" || u.node.Subject() == subject
		if own {
			list = append(list, u)
		}
		return own
	})
	return list
}

// rollBack undoes, newest first, what this run changed under k for a host, or for all. Only then start again, oldest first, the services that
// ran before: with the programs of before. A host that is lost is reported once, with what stays on it, and not asked again.
func (r *run) rollBack(ctx context.Context, k key, subject string) {
	list := r.forget(k, subject)
	lost := map[string]bool{}
	for i, u := range slices.Backward(list) {
		if lost[u.node.Host] {
			continue
		}
		ev := Event{Status: Restored}
		if err := u.call(ctx, u.rollback); err != nil {
			err = fmt.Errorf("rolling back: %w", err)
			if lost[u.node.Host] = fault.IsTransient(err); lost[u.node.Host] {
				err = fmt.Errorf("%w; changes before it that stay: %d", err, onHost(list[:i], u.node.Host))
			}
			r.notUndone(u.node, &ev, err)
		}
		r.emit(u.node, ev)
	}
	for _, u := range list {
		if u.resume == nil || lost[u.node.Host] {
			continue
		}
		if err := u.call(ctx, u.resume); err != nil {
			err, ev := fmt.Errorf("starting again after rolling back: %w", err), Event{Status: Restored}
			lost[u.node.Host] = fault.IsTransient(err)
			r.notUndone(u.node, &ev, err)
			r.emit(u.node, ev)
		}
	}
}

func (r *run) notUndone(n *plan.Node, ev *Event, err error) {
	ev.Error, ev.Advice = err.Error(), fault.Advice(err)
	r.failed(n, err)
}

package connector

import (
	"context"
	"slices"
	"sync"
)

// pool bounds the sessions of one connection and keeps shells that wait for a command.
type pool struct {
	mu    sync.Mutex
	limit int           // of sessions; sshd may lower it
	used  int           // sessions that are open
	idle  []*task       // the last used at the end
	wake  chan struct{} // closed when something changed
}

func newPool(limit int) *pool { return &pool{limit: limit, wake: make(chan struct{})} }

// take returns a waiting shell of the wanted kind or, without one, nil and the
// right to open a session, which put gives back.
func (p *pool) take(ctx context.Context, fit func(*task) bool) (*task, error) {
	for {
		t, evicted, wake := p.try(fit)
		switch {
		case t != nil:
			return t, nil
		case evicted != nil:
			evicted.stdin.Close()
			select {
			case <-evicted.ended:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		case wake == nil:
			return nil, nil
		default:
			select {
			case <-wake:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
}

func (p *pool) try(fit func(*task) bool) (t, evicted *task, wake chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = slices.DeleteFunc(p.idle, func(t *task) bool { return t.over() })
	for i := len(p.idle) - 1; i >= 0; i-- {
		if t := p.idle[i]; fit(t) {
			p.idle = slices.Delete(p.idle, i, i+1)
			return t, nil, nil
		}
	}
	if p.used < p.limit {
		p.used++
		return nil, nil, nil
	}
	if len(p.idle) > 0 {
		evicted, p.idle = p.idle[0], p.idle[1:]
		return nil, evicted, nil
	}
	return nil, nil, p.wake
}

// keep puts a shell by for the next command.
func (p *pool) keep(t *task) {
	p.change(func() { p.idle = append(p.idle, t) })
}

// put gives the right to a session back.
func (p *pool) put() {
	p.change(func() { p.used-- })
}

// lower gives the right to a session that sshd refused back and makes the number of
// those that are open the limit, less one for kills. It reports false where no other
// is open.
func (p *pool) lower() (lowered bool) {
	p.change(func() {
		if lowered = p.used > 1; lowered {
			p.used--
			p.limit = max(p.used-1, 1)
		}
	})
	return lowered
}

func (p *pool) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.wake)
	p.wake = make(chan struct{})
}

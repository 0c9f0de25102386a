package engine

import "github.com/kubexm/kubexm/pkg/plan"

// settle decides about a node without running it: barriers, nodes whose way is blocked, those that
// need not run, and those that have to wait for a look.
func (r *run) settle(i int) bool {
	n, st := &r.g.Nodes[i], &r.nodes[i]
	failed, others := r.failures(i)
	switch {
	case n.Barrier():
		st.out = r.pass(i, failed, others)
		r.ended(i)
		return true
	case others || r.halted(i) || r.givenUp(i):
		st.out = blocked
	case failed > 0 || r.gone(i):
		st.out = bad
	default:
		return r.settled(i)
	}
	r.emit(n, Event{Status: Skipped})
	r.ended(i)
	return true
}

// failures counts what failed right before a node, but for hosts whose failure was tolerated, and
// tells whether others than the node's own host keep it from running.
func (r *run) failures(i int) (failed int, others bool) {
	n := &r.g.Nodes[i]
	for _, j := range r.nodes[i].prev {
		m := &r.g.Nodes[j]
		switch r.nodes[j].out {
		case blocked:
			others = true
		case bad:
			if _, dead := r.dead[m.Subject()]; !dead {
				failed++
				others = others || !n.Barrier() && m.Subject() != n.Subject()
			}
		case waiting, good:
		}
	}
	return failed, others
}

// halted reports whether a stop keeps a node from running. A host that has begun to change in a scope comes to the end of it, unless the run is cut off.
func (r *run) halted(i int) bool {
	if !r.stopped || r.cut || r.nodes[i].finally >= 0 {
		return r.cut
	}
	s := r.nodes[i].scope
	for s >= 0 && !r.scopes[s].changed[r.g.Nodes[i].Subject()] {
		s = r.scopes[s].parent
	}
	return s < 0
}

// gone reports whether the node's host is left alone. Finally of a scope is about hosts that failed in it, too.
func (r *run) gone(i int) bool {
	since, dead := r.dead[r.g.Nodes[i].Subject()]
	s := r.nodes[i].finally
	return dead && (s < 0 || !r.scopes[s].entered || since < r.scopes[s].since)
}

// pass passes a barrier when no more hosts of its task failed than may. They
// are left alone from there on.
func (r *run) pass(i, failed int, others bool) outcome {
	n := &r.g.Nodes[i]
	if s := r.nodes[i].finally; s >= 0 && r.scopes[s].finally == i {
		switch {
		case r.scopes[s].entered && !r.cut:
			return good
		case r.stopped:
			return blocked
		}
	}
	if others || failed > 0 && r.tolerated[n.Task]+failed > n.MaxFailures {
		return blocked
	}
	r.tolerated[n.Task] += failed
	for _, j := range r.nodes[i].prev {
		if host := r.g.Nodes[j].Subject(); r.nodes[j].out == bad {
			if _, dead := r.dead[host]; !dead {
				r.dead[host] = r.ticks
			}
		}
	}
	return good
}

// settled ends a node that may run where nothing is to do, or lets it wait until that is known.
func (r *run) settled(i int) bool {
	n, st := &r.g.Nodes[i], &r.nodes[i]
	ev := Event{Status: OK, Duration: st.look.took}
	if n.Role != plan.RoleFinally && st.scope >= 0 {
		switch r.decide(st.scope, i) {
		case deciding:
			return true
		case idle:
			r.finish(i, ev)
			return true
		case undecided, busy:
		}
	}
	switch l := &st.look; {
	case l.stage == unknown || l.stage == taken || !r.fresh(l, st.before):
		return false
	case l.stage == underway:
		l.ready = true
		return true
	case l.change != nil && !r.DryRun:
		return false
	case l.change != nil:
		ev.Status, ev.Diff, ev.Restarts = Pending, l.change.Diff, l.change.Restarts
	}
	r.finish(i, ev)
	return true
}

// finish ends a node that was found out about before it was ready.
func (r *run) finish(i int, ev Event) {
	n, st := &r.g.Nodes[i], &r.nodes[i]
	r.enter(i)
	r.emit(n, Event{Status: Started})
	r.emit(n, ev)
	st.out = good
	if ev.Status == Pending {
		r.change(i, false)
	}
	r.ended(i)
}

package engine

import (
	"fmt"

	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step"
)

// decision says whether something in a scope is to change.
type decision int

const (
	undecided decision = iota
	deciding           // nodes of its part are looked at
	idle               // nothing is to change: nothing of it runs but Finally
	busy
)

// scope is how far a scope of the graph is.
type scope struct {
	parent  int       // -1: none
	role    plan.Role // in its parent
	gated   bool      // has steps in Begin or End, which run only when something is to change
	parts   []int     // nodes of its part, those of scopes in it included
	finally int       // barrier that Finally begins with; -1: none
	state   decision
	clock   int             // when it began to decide: looks that are older do not count
	open    int             // looks that it waits for
	waiting []int           // nodes that wait for the decision
	entered bool            // a node of it has been run, or found right
	since   int             // tick when it was entered
	changed map[string]bool // hosts about which a node of its part has changed something
}

func (r *run) prepareScopes() error {
	num := map[string]int{"": -1}
	r.scopes = make([]scope, len(r.g.Scopes))
	for s, info := range r.g.Scopes {
		parent, ok := num[info.Parent]
		if !ok {
			return fmt.Errorf("graph %s: the scope %s is in %s, which is not before it", r.g.Name, info.ID, info.Parent)
		}
		num[info.ID] = s
		r.scopes[s] = scope{parent: parent, role: info.Role, finally: -1}
		if parent >= 0 && (info.Role == plan.RoleBegin || info.Role == plan.RoleEnd) {
			r.scopes[parent].gated = true
		}
	}
	return nil
}

// place puts a node in a scope.
func (r *run) place(i, s int) {
	n, st := &r.g.Nodes[i], &r.nodes[i]
	st.scope = s
	sc := &r.scopes[s]
	if n.Role == plan.RoleFinally && sc.finally < 0 {
		sc.finally = i // a barrier is the first node of it
	}
	sc.gated = sc.gated || !n.Barrier() && (n.Role == plan.RoleBegin || n.Role == plan.RoleEnd)
	for role := n.Role; s >= 0; role, s = r.scopes[s].role, r.scopes[s].parent {
		if role == plan.RoleFinally {
			st.finally = s
			return
		}
	}
	if n.Barrier() {
		return
	}
	for role, s := n.Role, st.scope; s >= 0 && role == plan.RolePart; role, s = r.scopes[s].role, r.scopes[s].parent {
		r.scopes[s].parts = append(r.scopes[s].parts, i)
	}
}

// around reports whether a node is of Begin or End of a scope, and so does nothing but when something in that is to change.
func (r *run) around(i int) bool {
	role := r.g.Nodes[i].Role
	for s := r.nodes[i].scope; s >= 0; role, s = r.scopes[s].role, r.scopes[s].parent {
		if role == plan.RoleBegin || role == plan.RoleEnd {
			return true
		}
	}
	return false
}

// enter notes that a node of the scopes around it is run, or found right.
func (r *run) enter(i int) {
	for s := r.nodes[i].scope; s >= 0; s = r.scopes[s].parent {
		if sc := &r.scopes[s]; !sc.entered {
			sc.entered, sc.since = true, r.ticks
		}
	}
}

// change notes a change of a node. Scopes have begun with it in whose part it stands: what is around that only waits, or makes room.
func (r *run) change(i int, apart bool) {
	n := &r.g.Nodes[i]
	if !apart {
		r.clock++
		r.nodes[i].changed = r.clock
	}
	for role, s := n.Role, r.nodes[i].scope; s >= 0 && role == plan.RolePart; role, s = r.scopes[s].role, r.scopes[s].parent {
		sc := &r.scopes[s]
		if sc.changed == nil {
			sc.changed = map[string]bool{}
		}
		sc.changed[n.Subject()] = true
	}
}

// decide tells whether something is to change in scope s and those around it, outer ones first;
// node i, which is ready, waits where that is not known yet.
func (r *run) decide(s, i int) decision {
	sc := &r.scopes[s]
	if sc.parent >= 0 && sc.role != plan.RoleFinally {
		if d := r.decide(sc.parent, i); d != busy {
			return d
		}
	}
	if sc.state == undecided {
		r.askParts(sc, r.nodes[i].before)
	}
	if sc.state == deciding {
		sc.waiting = append(sc.waiting, i)
	}
	return sc.state
}

// askParts looks at what is in the part of a scope, as it is after a change.
func (r *run) askParts(sc *scope, change int) {
	if !sc.gated { // its nodes can tell for themselves
		sc.state = busy
		return
	}
	sc.clock = change
	var missing []int
	for _, p := range sc.parts {
		st := &r.nodes[p]
		switch {
		case st.out != waiting || r.gone(p):
		case st.look.stage != seen || !r.fresh(&st.look, change):
			missing = append(missing, p)
		case st.look.change != nil:
			sc.state = busy
			return
		}
	}
	if len(missing) == 0 {
		sc.state = idle
		return
	}
	sc.state, sc.open = deciding, len(missing)
	for _, p := range missing {
		if l := &r.nodes[p].look; l.stage == underway {
			l.scope = sc
		} else {
			r.want(p, sc)
		}
	}
}

// answered notes a look that a scope has waited for; without a scope it does nothing.
func (r *run) answered(sc *scope, c *step.Change) {
	if sc == nil || sc.state != deciding {
		return
	}
	if c != nil {
		r.decided(sc, busy)
	} else if sc.open--; sc.open == 0 {
		r.decided(sc, idle)
	}
}

func (r *run) decided(sc *scope, d decision) {
	sc.state = d
	r.lanes[runs].ready = append(r.lanes[runs].ready, sc.waiting...)
	sc.waiting = nil
}

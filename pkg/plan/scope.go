package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kubexm/kubexm/pkg/step"
)

// Role is what a node is for in its scope.
type Role string

// Roles. A barrier with RoleEnter is where a scope begins.
const (
	RoleEnter   Role = "enter"
	RoleBegin   Role = "begin"
	RolePart    Role = "part"
	RoleEnd     Role = "end"
	RoleFinally Role = "finally"
)

// Scope is one unit of doing and undoing over several tasks and hosts. Where no step of
// Part has anything to change, nothing of Begin, Part and End runs.
// Finally runs on every way out once what stands before the scope is good, also when nothing
// was to change: its steps want a state ("no cordon of ours is left"), and are never rolled back.
// What comes after the scope waits for all four to be good.
type Scope struct {
	Name                      string
	Begin, Part, End, Finally Part // all but Part may be nil
}

// ScopeInfo is one scope of a graph: a Scope may be in it once for each host, or batch.
type ScopeInfo struct {
	ID     string `json:"id"`               // pipeline/module/name, with @host or a batch
	Parent string `json:"parent,omitempty"` // the scope that it stands in
	Role   Role   `json:"role,omitempty"`   // what it is for in its parent
}

// place is where in a scope nodes are added.
type place struct {
	scope string
	role  Role
}

func (s Scope) hosts(only hostFilter) []string { return union(only, s.Begin, s.Part, s.End, s.Finally) }

func (s Scope) build(b *builder, path string, only hostFilter, after []ID) []ID {
	path = join(path, s.Name)
	id := path
	if hosts := s.hosts(only); only != nil && len(hosts) == 1 {
		id += "@" + hosts[0]
	}
	return b.scope(id, path, s, only, after)
}

func (b *builder) scope(id, path string, s Scope, only hostFilter, after []ID) []ID {
	if len(s.hosts(only)) == 0 {
		return after
	}
	if s.Part == nil || len(s.Part.hosts(only)) == 0 {
		s = Scope{Name: s.Name, Finally: s.Finally} // nothing that Begin and End are for
	}
	outer, name := b.in, id
	for n := 2; b.scopes[id]; n++ {
		id = fmt.Sprintf("%s-%d", name, n)
	}
	b.scopes[id] = true
	b.g.Scopes = append(b.g.Scopes, ScopeInfo{ID: id, Parent: outer.scope, Role: outer.role})
	in := func(role Role, p Part, after []ID) []ID {
		if p == nil {
			return after
		}
		b.in = place{id, role}
		return p.build(b, path, only, after)
	}
	if s.Begin != nil || s.End != nil || s.Finally != nil {
		b.in = place{id, RoleEnter}
		b.enters = append(b.enters, len(b.g.Nodes))
		defer func(n int) { b.enters = b.enters[:n] }(len(b.enters) - 1)
		after = []ID{b.wait(0, path, id+"/enter", after)}
	}
	exits := in(RoleEnd, s.End, in(RolePart, s.Part, in(RoleBegin, s.Begin, after)))
	if s.Finally == nil || len(s.Finally.hosts(only)) == 0 {
		b.in = outer
		return exits
	}
	b.in = place{id, RoleFinally}
	last := in(RoleFinally, s.Finally, []ID{b.wait(0, path, id+"/finally", exits)})
	b.in = outer
	return []ID{b.wait(0, path, id+"/leave", slices.Concat(exits, last))}
}

// holdScopes lets the scopes that are being built begin only after nodes from outside that something in them
// waits for: whether there is anything to change is known only then.
func (b *builder) holdScopes(first []ID) {
	for _, enter := range b.enters {
		n := &b.g.Nodes[enter]
		for _, id := range first {
			if b.index[id] < enter {
				n.After = unique(slices.Concat(n.After, []ID{id}), nil)
			}
		}
	}
}

// Batches sends the hosts of Part through it in groups, one group after the other. Each
// group is a Scope that begins and ends with the gate; where one fails, later ones do not begin.
// In PerHost, which brings hosts one at a time and in its own order, each group is one host.
type Batches struct {
	Size  int                         // hosts in a group; less than 1: 1
	Order []string                    // hosts not in it come after, in the order of Part
	Gate  func(host string) step.Step // a step that waits for a condition, on the first host of the group; nil: none
	Part  Part
}

// batches is how far the hosts of a part are spread over groups. It outlives one build of
// the part, as PerHost builds it for each host.
type batches struct {
	groups int
	exits  []ID // of the last group
}

func (t Batches) hosts(only hostFilter) []string {
	hosts := slices.Clone(t.Part.hosts(only))
	rank := make(map[string]int, len(t.Order))
	for i, h := range t.Order {
		rank[h] = i - len(t.Order)
	}
	slices.SortStableFunc(hosts, func(a, b string) int { return cmp.Compare(rank[a], rank[b]) })
	return hosts
}

func (t Batches) build(b *builder, path string, only hostFilter, after []ID) []ID {
	sofar := b.batches[path]
	if sofar == nil {
		sofar = &batches{}
		b.batches[path] = sofar
	}
	last := after
	if only != nil {
		last = unique(slices.Concat(after, sofar.exits), nil)
	}
	for group := range slices.Chunk(t.hosts(only), max(1, t.Size)) {
		sofar.groups++
		name := fmt.Sprintf("batch-%d", sofar.groups)
		s := Scope{Part: t.Part, Begin: t.gate(name+"/before", group[0]), End: t.gate(name+"/after", group[0])}
		last = b.scope(join(path, name), path, s, filter(group), last)
	}
	sofar.exits = last
	return last
}

func (t Batches) gate(name, host string) Part {
	if t.Gate == nil {
		return nil
	}
	return Task{Name: name, Hosts: []string{host}, Steps: func(h string) []step.Step { return []step.Step{t.Gate(h)} }}
}

func filter(hosts []string) hostFilter {
	f := make(hostFilter, len(hosts))
	for _, h := range hosts {
		f[h] = true
	}
	return f
}

package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/step"
)

// New plans a pipeline. It reports every fault it finds in it: a step that does
// not marshal, two steps of a host with one description, a value that is read
// and never written.
func New(p Pipeline) (*ExecutionGraph, error) {
	b := &builder{g: &ExecutionGraph{Name: p.Name}, writer: map[any]ID{}, seen: map[ID]bool{}, open: map[*Gate][]ID{}, batches: map[string]*batch{}}
	Module(p).build(b, "", nil, nil)
	b.completeInventories()
	return b.g, errors.Join(b.errs...)
}

type builder struct {
	g       *ExecutionGraph
	writer  map[any]ID // value -> the node that writes it
	seen    map[ID]bool
	open    map[*Gate][]ID
	batches map[string]*batch // of a task with Serial, by its path
	spare   int               // hosts that may fail in each task, see Tolerate
	errs    []error
}

// hostFilter limits a build to some hosts; nil: all.
type hostFilter map[string]bool

func (m Module) build(b *builder, path string, hosts hostFilter, after []ID) []ID {
	for _, p := range m.Parts {
		after = p.build(b, join(path, m.Name), hosts, after)
	}
	return after
}

func (p Parallel) build(b *builder, path string, hosts hostFilter, after []ID) (exits []ID) {
	for _, q := range p {
		exits = append(exits, q.build(b, path, hosts, after)...)
	}
	return unique(exits, after)
}

func (p PerHost) build(b *builder, path string, hosts hostFilter, after []ID) (exits []ID) {
	for _, h := range p.hosts(hosts) {
		one, last := hostFilter{h: true}, after
		for _, q := range p {
			last = q.build(b, path, one, last)
		}
		exits = append(exits, last...)
	}
	// Joined, so that edges to what follows grow with the hosts and not with their square.
	return b.barrier(Task{}, path, path+"/joined", unique(exits, after))
}

// hosts returns the hosts of the tasks below p, in the order of their first task.
func (p PerHost) hosts(only hostFilter) (hosts []string) {
	var walk func(parts []Part)
	walk = func(parts []Part) {
		for _, q := range parts {
			switch q := q.(type) {
			case Task:
				for _, h := range q.Hosts {
					if (only == nil || only[h]) && !slices.Contains(hosts, h) {
						hosts = append(hosts, h)
					}
				}
			case Module:
				walk(q.Parts)
			case Parallel:
				walk(q)
			case PerHost:
				walk(q)
			case tolerant:
				walk([]Part{q.Part})
			case opener:
				walk([]Part{q.Part})
			case holder:
				walk([]Part{q.Part})
			}
		}
	}
	walk(p)
	return hosts
}

// batch is how far the hosts of a task with Serial are spread over batches. It
// outlives one build of the task, as PerHost builds it for each host.
type batch struct {
	hosts int
	gate  []ID // ends the batch before
	exits []ID // of the hosts of this batch
}

func (t tolerant) build(b *builder, path string, hosts hostFilter, after []ID) []ID {
	outer := b.spare
	b.spare = t.most
	defer func() { b.spare = outer }()
	return t.Part.build(b, path, hosts, after)
}

func (t Task) build(b *builder, path string, only hostFilter, after []ID) []ID {
	path = join(path, t.Name)
	t.MaxFailures = max(t.MaxFailures, b.spare)
	now := &batch{}
	if old := b.batches[path]; old != nil {
		now = old
	} else if t.Serial > 0 {
		b.batches[path] = now
	}
	var exits []ID
	for _, h := range t.Hosts {
		if only != nil && !only[h] {
			continue
		}
		if t.Serial > 0 && now.hosts > 0 && now.hosts%t.Serial == 0 {
			now.gate, now.exits = b.barrier(t, path, fmt.Sprintf("%s/batch-%d", path, now.hosts/t.Serial), now.exits), nil
		}
		now.hosts++
		last := unique(slices.Concat(after, now.gate), nil)
		for _, s := range t.Steps(h) {
			last = []ID{b.add(path, h, s, last)}
		}
		now.exits = append(now.exits, last...)
		exits = append(exits, last...)
	}
	if len(exits) == 0 {
		return after
	}
	if only == nil && t.Serial > 0 {
		exits = now.exits // the last batch has waited for all others
	}
	return b.barrier(t, path, path+"/done", exits)
}

// barrier joins what comes before into one node.
func (b *builder) barrier(t Task, path, id string, after []ID) []ID {
	after = unique(after, nil)
	if len(after) <= 1 && t.MaxFailures == 0 {
		return after
	}
	name := id
	for n := 2; b.seen[ID(id)]; n++ {
		id = fmt.Sprintf("%s-%d", name, n)
	}
	b.seen[ID(id)] = true
	b.g.Nodes = append(b.g.Nodes, Node{ID: ID(id), Task: path, After: after, MaxFailures: t.MaxFailures})
	return []ID{ID(id)}
}

func (b *builder) add(path, host string, s step.Step, after []ID) ID {
	on, about := host, ""
	if d, ok := step.Unwrap(s).(delegated); ok {
		on, about = d.host, host
		if _, bare := s.(delegated); bare {
			s = d.Step
		} else {
			s = step.With(d.Step, step.OptionsOf(s))
		}
	}
	name := strings.ReplaceAll(s.String(), " ", "-")
	if about != "" {
		name += "-for-" + about
	}
	id := ID(path + "/" + name + "@" + on)
	spec, err := json.Marshal(s)
	digest, err2 := step.Digest(s)
	if err := errors.Join(err, err2); err != nil {
		b.errs = append(b.errs, fmt.Errorf("%s: %w", id, err))
	}
	if b.seen[id] {
		b.errs = append(b.errs, fmt.Errorf("%s: two steps with one description", id))
	}
	b.seen[id] = true
	reads, writes := step.Refs(s)
	after = slices.Clone(after)
	for _, r := range reads {
		w, ok := b.writer[r]
		if !ok {
			b.errs = append(b.errs, fmt.Errorf("%s: reads a value that no earlier step writes", id))
			continue
		}
		after = append(after, w)
	}
	for _, w := range writes {
		b.writer[w] = id
	}
	b.g.Nodes = append(b.g.Nodes, Node{
		ID: id, Task: path, Host: on, For: about, What: s.String(), Kind: step.Kind(s), Spec: spec, Digest: digest,
		After: unique(after, nil), Step: s,
	})
	return id
}

// unique returns ids without repetition, or otherwise when there are none.
func unique(ids, otherwise []ID) []ID {
	if len(ids) == 0 {
		return otherwise
	}
	seen := make(map[ID]bool, len(ids))
	return slices.DeleteFunc(ids, func(id ID) bool {
		dup := seen[id]
		seen[id] = true
		return dup
	})
}

func join(a, b string) string { return strings.Trim(a+"/"+b, "/") }

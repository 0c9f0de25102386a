package plan

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/step"
)

// New plans a pipeline. It reports every fault it finds in it: a step that does
// not marshal, two steps of a host with one description, a gate that nobody opens.
//
// Digests that the graph tells are keyed with p.Key.
func New(p Pipeline) (*ExecutionGraph, error) {
	b := &builder{key: p.Key, g: &ExecutionGraph{Name: p.Name}, index: map[ID]int{}, open: map[*Gate][]ID{}, scopes: map[string]bool{}, batches: map[string]*batches{}}
	Module{p.Name, p.Parts}.build(b, "", nil, nil)
	b.completeInventories()
	return b.g, errors.Join(b.errs...)
}

type builder struct {
	key     []byte
	g       *ExecutionGraph
	index   map[ID]int // of nodes
	open    map[*Gate][]ID
	in      place               // of the nodes that are added
	enters  []int               // nodes where the scopes that are being built begin
	scopes  map[string]bool     // that there are
	batches map[string]*batches // by the path of their part
	spare   int                 // hosts that may fail in each task, see Tolerate
	errs    []error
}

// hostFilter limits a build to some hosts; nil: all.
type hostFilter map[string]bool

func (f hostFilter) allows(host string) bool { return f == nil || f[host] }

// union returns the hosts of parts, each once.
func union(only hostFilter, parts ...Part) (hosts []string) {
	seen := map[string]bool{}
	for _, p := range parts {
		if p == nil {
			continue
		}
		for _, h := range p.hosts(only) {
			if !seen[h] {
				seen[h] = true
				hosts = append(hosts, h)
			}
		}
	}
	return hosts
}

func (m Module) hosts(only hostFilter) []string { return union(only, m.Parts...) }

func (m Module) build(b *builder, path string, only hostFilter, after []ID) []ID {
	for _, p := range m.Parts {
		after = p.build(b, join(path, m.Name), only, after)
	}
	return after
}

func (p Parallel) hosts(only hostFilter) []string { return union(only, p...) }

func (p Parallel) build(b *builder, path string, only hostFilter, after []ID) (exits []ID) {
	for _, q := range p {
		exits = append(exits, q.build(b, path, only, after)...)
	}
	return unique(exits, after)
}

func (p PerHost) hosts(only hostFilter) []string { return union(only, p...) }

func (p PerHost) build(b *builder, path string, only hostFilter, after []ID) (exits []ID) {
	for _, h := range p.hosts(only) {
		one, last := hostFilter{h: true}, after
		for _, q := range p {
			last = q.build(b, path, one, last)
		}
		exits = append(exits, last...)
	}
	// Joined, so that edges to what follows grow with the hosts and not with their square.
	return b.barrier(0, path, path+"/joined", unique(exits, after))
}

func (t tolerant) build(b *builder, path string, only hostFilter, after []ID) []ID {
	outer := b.spare
	b.spare = t.most
	defer func() { b.spare = outer }()
	return t.Part.build(b, path, only, after)
}

func (t Task) hosts(only hostFilter) []string {
	if only == nil {
		return t.Hosts
	}
	return slices.DeleteFunc(slices.Clone(t.Hosts), func(h string) bool { return !only[h] })
}

func (t Task) build(b *builder, path string, only hostFilter, after []ID) (exits []ID) {
	path = join(path, t.Name)
	for _, h := range t.Hosts {
		if !only.allows(h) {
			continue
		}
		last := after
		for _, s := range t.Steps(h) {
			last = []ID{b.add(path, h, s, last)}
		}
		exits = append(exits, last...)
	}
	if len(exits) == 0 {
		return after
	}
	return b.barrier(max(t.MaxFailures, b.spare), path, path+"/done", exits)
}

// barrier joins what comes before into one node, where that takes one.
func (b *builder) barrier(maxFailures int, path, id string, after []ID) []ID {
	after = unique(after, nil)
	if len(after) <= 1 && maxFailures == 0 {
		return after
	}
	return []ID{b.wait(maxFailures, path, id, after)}
}

// wait adds a node without a step.
func (b *builder) wait(maxFailures int, path, id string, after []ID) ID {
	name := id
	for n := 2; b.has(ID(id)); n++ {
		id = fmt.Sprintf("%s-%d", name, n)
	}
	b.append(Node{ID: ID(id), Task: path, After: unique(after, nil), MaxFailures: maxFailures})
	return ID(id)
}

func (b *builder) has(id ID) bool {
	_, ok := b.index[id]
	return ok
}

func (b *builder) append(n Node) {
	n.Scope, n.Role = b.in.scope, b.in.role
	b.index[n.ID] = len(b.g.Nodes)
	b.g.Nodes = append(b.g.Nodes, n)
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
	if b.has(id) {
		b.errs = append(b.errs, fmt.Errorf("%s: two steps with one description", id))
	}
	n := Node{ID: id, Task: path, Host: on, For: about, What: s.String(), Kind: step.Kind(s), After: unique(after, nil), Step: s}
	b.describe(&n)
	b.append(n)
	return id
}

// describe puts down in a node what its step is.
func (b *builder) describe(n *Node) {
	spec, err := json.Marshal(n.Step)
	if err != nil {
		b.errs = append(b.errs, fmt.Errorf("%s: %w", n.ID, err))
	}
	n.Spec = b.keyed(spec)
	n.Digest = hex.EncodeToString(b.mac([]byte(n.Kind+" "), n.Spec)[:8])
}

// content matches a step.Content in the JSON of a step.
var content = regexp.MustCompile(`"sha256:[0-9a-f]{64}"`)

// keyed replaces the plain digests of contents: whoever has the plan could try guesses of a password on them.
func (b *builder) keyed(spec []byte) []byte {
	return content.ReplaceAllFunc(spec, func(plain []byte) []byte {
		return fmt.Appendf(nil, `"hmac-sha256:%x"`, b.mac(plain))
	})
}

func (b *builder) mac(texts ...[]byte) []byte {
	h := hmac.New(sha256.New, b.key)
	for _, t := range texts {
		h.Write(t)
	}
	return h.Sum(nil)
}

// unique returns ids without repetition, or otherwise when there are none.
func unique(ids, otherwise []ID) []ID {
	if len(ids) == 0 {
		return otherwise
	}
	if len(ids) == 1 {
		return ids
	}
	seen, once := make(map[ID]bool, len(ids)), make([]ID, 0, len(ids))
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			once = append(once, id)
		}
	}
	return once
}

func join(a, b string) string { return strings.Trim(a+"/"+b, "/") }

// Package progress shows how far a run is: live on a terminal, or as plain lines.
// It knows runs by their graph and their events alone.
package progress

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
)

// State is what the events of a run add up to.
type State struct {
	mu      sync.Mutex
	begun   time.Time
	order   []*host // as the graph has them
	tasks   []*task // likewise
	counts  engine.Summary
	slow    []Timed // slowest first
	host    map[string]*host
	task    map[string]*task
	node    map[plan.ID]*plan.Node
	place   map[plan.ID]int // in the graph
	running map[plan.ID]*step
	ended   map[plan.ID]bool
}

type host struct {
	name    string
	nodes   []plan.ID
	total   int // steps
	done    int // steps that ended, in whatever way
	changed int
	failed  int
	skipped int
	running []*step // in the order of their start
	err     string  // of the first step that failed
}

// step is a step that runs.
type step struct {
	host, what string
	since      time.Time
	text       string // how far it is, or why it is tried again
}

type task struct {
	name                         string // without that of the pipeline
	total, done, running, failed int
}

// Sort puts events in the order that their steps have in the graph.
func (s *State) Sort(events []engine.Event) {
	slices.SortStableFunc(events, func(a, b engine.Event) int { return cmp.Compare(s.place[a.Node], s.place[b.Node]) })
}

// Timed is a step that ended.
type Timed struct {
	Host, What string
	Took       time.Duration
}

// slowest is how many slow steps are remembered.
const slowest = 3

// NewState makes the state of a run that begins.
func NewState(g *plan.ExecutionGraph, begun time.Time) *State {
	s := &State{
		begun: begun, host: map[string]*host{}, task: map[string]*task{},
		node: map[plan.ID]*plan.Node{}, place: map[plan.ID]int{}, running: map[plan.ID]*step{}, ended: map[plan.ID]bool{},
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		s.node[n.ID], s.place[n.ID] = n, i
		if n.Barrier() {
			continue
		}
		h, t := s.host[n.Host], s.task[n.Task]
		if h == nil {
			h = &host{name: n.Host}
			s.host[n.Host], s.order = h, append(s.order, h)
		}
		if t == nil {
			t = &task{name: strings.TrimPrefix(n.Task, g.Name+"/")}
			s.task[n.Task], s.tasks = t, append(s.tasks, t)
		}
		h.nodes = append(h.nodes, n.ID)
		h.total++
		t.total++
		s.counts.Total++
	}
	return s
}

// Apply takes in an event of the run.
func (s *State) Apply(ev engine.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, t := s.host[ev.Host], s.task[ev.Task]
	if h == nil || t == nil {
		return // of another graph
	}
	now := s.running[ev.Node]
	switch ev.Status {
	case engine.Started:
		now = &step{host: ev.Host, what: ev.What, since: ev.Time}
		s.running[ev.Node] = now
		h.running = append(h.running, now)
		t.running++
	case engine.Progress:
		if now != nil {
			now.text = ev.Text
		}
	case engine.Retry:
		if now != nil {
			now.text = "again, after: " + firstLine(ev.Error)
		}
	case engine.Restored:
		if ev.Error == "" {
			s.counts.Restored++
		}
	default:
		s.count(ev, h, t)
		s.ended[ev.Node] = true
		h.done++
		t.done++
		if now != nil {
			delete(s.running, ev.Node)
			h.running = slices.DeleteFunc(h.running, func(r *step) bool { return r == now })
			t.running--
		}
		s.timed(Timed{ev.Host, ev.What, ev.Duration})
	}
}

// count counts a step that ended.
func (s *State) count(ev engine.Event, h *host, t *task) {
	switch ev.Status {
	case engine.OK:
		s.counts.OK++
	case engine.Changed:
		s.counts.Changed++
		h.changed++
	case engine.Pending:
		s.counts.Pending++
		h.changed++
	case engine.Failed:
		s.counts.Failed++
		h.failed++
		t.failed++
		h.err = cmp.Or(h.err, ev.What+": "+firstLine(ev.Error))
	case engine.Skipped:
		s.counts.Skipped++
		h.skipped++
	default: // is no end
	}
}

func (s *State) timed(t Timed) {
	at, _ := slices.BinarySearchFunc(s.slow, t, func(a, b Timed) int { return cmp.Compare(b.Took, a.Took) })
	if at < slowest {
		s.slow = slices.Insert(s.slow, at, t)
		s.slow = s.slow[:min(len(s.slow), slowest)]
	}
}

// Slow returns the slowest steps that ended, the slowest first.
func (s *State) Slow() []Timed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.slow)
}

// Running is how many steps run.
func (s *State) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// waitsFor is the running step that the next step of a host, or what that comes
// after, waits for; nil: no step, only its turn.
func (s *State) waitsFor(h *host) *step {
	seen := map[plan.ID]bool{}
	var search func(plan.ID) *step
	search = func(id plan.ID) *step {
		for _, before := range s.node[id].After {
			if s.ended[before] || seen[before] || s.node[before] == nil {
				continue
			}
			seen[before] = true
			if running := s.running[before]; running != nil {
				return running
			}
			if running := search(before); running != nil {
				return running
			}
		}
		return nil
	}
	if next := slices.IndexFunc(h.nodes, func(id plan.ID) bool { return !s.ended[id] }); next >= 0 {
		return search(h.nodes[next])
	}
	return nil
}

// done is how many steps ended.
func (s *State) done() int {
	c := s.counts
	return c.OK + c.Changed + c.Pending + c.Failed + c.Skipped
}

// longest returns the steps that run, the one that runs longest first.
func (s *State) longest() []*step {
	var all []*step
	for _, h := range s.order {
		all = append(all, h.running...)
	}
	slices.SortStableFunc(all, func(a, b *step) int { return a.since.Compare(b.since) })
	return all
}

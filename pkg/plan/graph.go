package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/step"
)

// ID is the readable, stable name of a node: pipeline/module/task/step@host.
type ID string

// Node is one step on one host; or, without a step, the place where the hosts
// of a task wait for one another.
type Node struct {
	ID          ID              `json:"id"`
	Task        string          `json:"task"` // pipeline/module/task
	Host        string          `json:"host,omitempty"`
	For         string          `json:"for,omitempty"` // the host that the step is about, when it runs on another
	What        string          `json:"what,omitempty"`
	Kind        string          `json:"kind,omitempty"`
	Spec        json.RawMessage `json:"spec,omitempty"`
	Digest      string          `json:"digest,omitempty"`
	After       []ID            `json:"after,omitempty"`
	MaxFailures int             `json:"maxFailures,omitempty"` // of a barrier: hosts that may have failed
	Step        step.Step       `json:"-"`
}

// Subject is the host that the node is about.
func (n *Node) Subject() string {
	if n.For != "" {
		return n.For
	}
	return n.Host
}

// Barrier reports whether the node is a place to wait, without a step.
func (n *Node) Barrier() bool { return n.Step == nil && n.Kind == "" }

// ExecutionGraph is a list of nodes, dependencies first.
type ExecutionGraph struct {
	Name  string `json:"name"`
	Nodes []Node `json:"nodes"`
}

// Hosts returns the hosts of the graph, sorted.
func (g *ExecutionGraph) Hosts() []string {
	var hosts []string
	for i := range g.Nodes {
		if !g.Nodes[i].Barrier() {
			hosts = append(hosts, g.Nodes[i].Host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// WriteText writes the graph as an indented list for people: each step of a
// task once, with the hosts it runs on.
func (g *ExecutionGraph) WriteText(w io.Writer) error {
	type line struct {
		what  string
		hosts []string
	}
	var tasks []string
	lines := map[string][]*line{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Barrier() {
			continue
		}
		if lines[n.Task] == nil {
			tasks = append(tasks, n.Task)
		}
		at := slices.IndexFunc(lines[n.Task], func(l *line) bool { return l.what == n.What })
		if at < 0 {
			at = len(lines[n.Task])
			lines[n.Task] = append(lines[n.Task], &line{what: n.What})
		}
		lines[n.Task][at].hosts = append(lines[n.Task][at].hosts, n.Host)
	}
	for _, t := range tasks {
		if _, err := fmt.Fprintln(w, t); err != nil {
			return err
		}
		for _, l := range lines[t] {
			if _, err := fmt.Fprintf(w, "  %-52s %s\n", l.what, strings.Join(l.hosts, " ")); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteMermaid draws the graph for Mermaid.
func (g *ExecutionGraph) WriteMermaid(w io.Writer) error {
	quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, "#quot;") + `"` }
	return g.draw(w, "flowchart LR\n", "  n%d[%s]\n", "  n%d --> n%d\n", "", quote)
}

// WriteDOT draws the graph for Graphviz.
func (g *ExecutionGraph) WriteDOT(w io.Writer) error {
	return g.draw(w, "digraph kubexm {\n  rankdir=LR; node [shape=box];\n", "  n%d [label=%s];\n", "  n%d -> n%d;\n", "}\n", strconv.Quote)
}

func (g *ExecutionGraph) draw(w io.Writer, head, node, edge, tail string, quote func(string) string) error {
	var s strings.Builder
	s.WriteString(head)
	num := make(map[ID]int, len(g.Nodes))
	for i := range g.Nodes {
		n := &g.Nodes[i]
		num[n.ID] = i
		fmt.Fprintf(&s, node, i, quote(label(n)))
		for _, a := range n.After {
			fmt.Fprintf(&s, edge, num[a], i)
		}
	}
	s.WriteString(tail)
	_, err := io.WriteString(w, s.String())
	return err
}

func label(n *Node) string {
	if n.Barrier() {
		return string(n.ID)
	}
	return n.Host + ": " + n.What
}

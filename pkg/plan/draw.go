package plan

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// WriteText writes the graph as an indented list for people: each step of a
// task once, with the hosts it runs on.
func (g *ExecutionGraph) WriteText(w io.Writer) error {
	type line struct {
		what  string
		hosts []string
	}
	type block struct {
		scopes []string // instances that the task is part of
		role   Role
		lines  []*line
	}
	var tasks []string
	blocks := map[string]*block{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Barrier() {
			continue
		}
		t := blocks[n.Task]
		if t == nil {
			t = &block{role: n.Role}
			tasks, blocks[n.Task] = append(tasks, n.Task), t
		}
		if n.Scope != "" && !slices.Contains(t.scopes, n.Scope) {
			t.scopes = append(t.scopes, n.Scope)
		}
		at := slices.IndexFunc(t.lines, func(l *line) bool { return l.what == n.What })
		if at < 0 {
			at = len(t.lines)
			t.lines = append(t.lines, &line{what: n.What})
		}
		t.lines[at].hosts = append(t.lines[at].hosts, n.Host)
	}
	for _, name := range tasks {
		t := blocks[name]
		switch len(t.scopes) {
		case 0:
		case 1:
			name += fmt.Sprintf(" (%s of %s)", t.role, t.scopes[0])
		default:
			name += fmt.Sprintf(" (%s of %s and %d more)", t.role, t.scopes[0], len(t.scopes)-1)
		}
		if _, err := fmt.Fprintln(w, name); err != nil {
			return err
		}
		for _, l := range t.lines {
			if _, err := fmt.Fprintf(w, "  %-52s %s\n", l.what, strings.Join(l.hosts, " ")); err != nil {
				return err
			}
		}
	}
	return nil
}

// drawing is a language that graphs are drawn in.
type drawing struct {
	head, node, edge, tail string
	begin, end             string // of a scope: begin takes its number and its name
	quote                  func(string) string
}

// WriteMermaid draws the graph for Mermaid, with a frame around each scope.
func (g *ExecutionGraph) WriteMermaid(w io.Writer) error {
	return g.draw(w, drawing{
		"flowchart LR\n", "  n%d[%s]\n", "  n%d --> n%d\n", "", "  subgraph s%d[%s]\n", "  end\n",
		func(s string) string { return `"` + strings.ReplaceAll(s, `"`, "#quot;") + `"` },
	})
}

// WriteDOT draws the graph for Graphviz, with a frame around each scope.
func (g *ExecutionGraph) WriteDOT(w io.Writer) error {
	return g.draw(w, drawing{
		"digraph kubexm {\n  rankdir=LR; node [shape=box];\n", "  n%d [label=%s];\n", "  n%d -> n%d;\n", "}\n",
		"  subgraph cluster_%d { label=%s;\n", "  }\n", strconv.Quote,
	})
}

func (g *ExecutionGraph) draw(w io.Writer, d drawing) error {
	var s strings.Builder
	s.WriteString(d.head)
	num, nodes, inner := make(map[ID]int, len(g.Nodes)), map[string][]int{}, map[string][]int{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		num[n.ID], nodes[n.Scope] = i, append(nodes[n.Scope], i)
	}
	for i, sc := range g.Scopes {
		inner[sc.Parent] = append(inner[sc.Parent], i)
	}
	var frame func(scope string)
	frame = func(scope string) {
		for _, i := range nodes[scope] {
			fmt.Fprintf(&s, d.node, i, d.quote(label(&g.Nodes[i])))
		}
		for _, i := range inner[scope] {
			fmt.Fprintf(&s, d.begin, i, d.quote(g.Scopes[i].ID))
			frame(g.Scopes[i].ID)
			s.WriteString(d.end)
		}
	}
	frame("")
	for i := range g.Nodes {
		for _, a := range g.Nodes[i].After {
			fmt.Fprintf(&s, d.edge, num[a], i)
		}
	}
	s.WriteString(d.tail)
	_, err := io.WriteString(w, s.String())
	return err
}

func label(n *Node) string {
	if n.Barrier() {
		return string(n.ID)
	}
	return n.Host + ": " + n.What
}

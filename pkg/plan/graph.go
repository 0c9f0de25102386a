package plan

import (
	"encoding/json"
	"slices"

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
	Scope       string          `json:"scope,omitempty"`       // innermost one, an ID of ExecutionGraph.Scopes
	Role        Role            `json:"role,omitempty"`        // in Scope
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
	Name   string      `json:"name"`
	Nodes  []Node      `json:"nodes"`
	Scopes []ScopeInfo `json:"scopes,omitempty"` // outer ones first
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

// Package plan turns a pipeline into an ExecutionGraph: which step runs on
// which host after which others. It knows nothing of Kubernetes.
package plan

import "github.com/kubexm/kubexm/pkg/step"

// Control is the name that stands for the control machine, where kubexm runs.
const Control = "control"

// API is the name that stands for the API of a cluster: any master of it that answers.
const API = "api"

// Part is a Task, a Module, Parallel, PerHost, a Scope or Batches.
type Part interface {
	// build adds the nodes of the part about the hosts of only, which come after the given ones, and
	// returns those that what follows waits for.
	build(b *builder, path string, only hostFilter, after []ID) (exits []ID)
	// hosts are those of only that the part is about, in the order of their first task.
	hosts(only hostFilter) []string
}

// Task is a small goal: Steps in order on each of Hosts.
type Task struct {
	Name        string
	Hosts       []string
	MaxFailures int // hosts that may fail before what comes after is held back
	Steps       func(host string) []step.Step
}

// Module is a stage: its Parts one after the other.
type Module struct {
	Name  string
	Parts []Part
}

// Pipeline is what the user asks for: its Parts one after the other.
type Pipeline struct {
	Name  string
	Parts []Part
	Key   []byte // of the digests in the graph; a plan with files of passwords needs one that is secret
}

// Parallel runs its parts side by side.
type Parallel []Part

// PerHost sends each host through the parts on its own: a host goes on while
// others are still at an earlier part.
type PerHost []Part

// Tolerate lets up to n hosts fail in each task of p before what comes after is held back.
// A host that failed is left alone from there on.
func Tolerate(n int, p Part) Part { return tolerant{p, n} }

type tolerant struct {
	Part
	most int
}

type delegated struct {
	step.Step
	host string
}

// On runs s on another host than the one that the task is planned for: a drain
// on a master, a signature on the control machine.
func On(host string, s step.Step) step.Step { return delegated{s, host} }

// If returns the parts when cond holds, and none otherwise.
func If(cond bool, parts ...Part) Part {
	if cond {
		return Module{Parts: parts}
	}
	return Module{}
}

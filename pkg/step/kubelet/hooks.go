package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Hooks are commands of the user's around the work on a node, one after the other. Those that come after it run where it has begun, whatever came of it.
type Hooks struct {
	When   string // beforeNode, afterNode
	Leaves bool   `json:",omitempty"` // the node goes: none come after it
	List   []v1alpha1.Hook
	Env    []string `json:"-"`
}

// before returns the step that runs hooks before a node is drained, and after the one for those after it; none for none.
func before(c *cluster.Cluster, host string, leaves bool) []step.Step {
	return hooks(c, host, Hooks{When: "beforeNode", Leaves: leaves, List: c.Spec.Hooks.BeforeNode})
}

func after(c *cluster.Cluster, host string) []step.Step {
	return hooks(c, host, Hooks{When: "afterNode", List: c.Spec.Hooks.AfterNode})
}

func hooks(c *cluster.Cluster, host string, s Hooks) []step.Step {
	if len(s.List) == 0 {
		return nil
	}
	most := time.Minute // for what is noted around them
	for _, h := range s.List {
		most += h.Timeout.Duration
	}
	s.Env = []string{
		"KUBEXM_HOOK=" + s.When, "KUBEXM_CLUSTER=" + c.Name, "KUBEXM_NODE=" + host, "KUBEXM_ADDRESS=" + c.IP(host),
		"KUBEXM_KUBERNETES_VERSION=" + c.Spec.Kubernetes.Version, "KUBEXM_KUBECONFIG=" + filepath.Join(c.Dir, cluster.AdminConf),
	}
	return []step.Step{step.With(s, step.Options{Timeout: most, Retries: -1})}
}

func (s Hooks) String() string { return s.When + " " + human.Names(s.names(), 5) }

func (s Hooks) names() (all []string) {
	for _, h := range s.List {
		all = append(all, h.Name)
	}
	return all
}

// Precheck finds hooks before a node always to be run, and those after it where the node was begun.
func (s Hooks) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	is, err := r.Drained(ctx)
	after := s.When == "afterNode"
	if err != nil || after && is == runner.NotDrained {
		return nil, err
	}
	var diff strings.Builder
	for _, h := range s.List {
		fmt.Fprintf(&diff, "run hook %s, %s: %s\n", h.Name, places[h.Where], h.Command)
	}
	return &step.Change{Diff: diff.String(), Apart: true, Verify: step.Verified, Run: func(ctx context.Context) error {
		if !after && !s.Leaves && is == runner.NotDrained {
			if err := r.MarkDrained(ctx, runner.Begun); err != nil {
				return err
			}
		}
		for _, h := range s.List {
			if err := s.run(ctx, r, h); err != nil {
				return err
			}
		}
		if after {
			return r.MarkDrained(ctx, runner.NotDrained)
		}
		return nil
	}}, nil
}

// places are where hooks run, for users.
var places = map[string]string{v1alpha1.HookControl: "on the control machine", v1alpha1.HookHost: "as root on the host"}

func (s Hooks) run(whole context.Context, r *runner.Runner, h v1alpha1.Hook) error {
	ctx, cancel := context.WithTimeoutCause(whole, h.Timeout.Duration, fmt.Errorf("it did not end within %s", h.Timeout.Duration))
	defer cancel()
	script := "export " + runner.Quote(s.Env...) + "\n" + h.Command
	var out string
	var err error
	if h.Where == v1alpha1.HookHost {
		out, err = r.Sh(ctx, script)
	} else {
		here := runner.New(plan.Control, connector.Local())
		out, err = here.User(ctx, script, nil)
		_ = here.Close() // nothing is owed to it
	}
	if out = human.Line(out); out != "" {
		step.Tell(ctx, h.Name+": "+out)
	}
	switch {
	case err == nil:
		return nil
	case h.FailurePolicy == v1alpha1.HookIgnore && whole.Err() == nil:
		step.Tell(ctx, fmt.Sprintf("%s failed, which is ignored: %v", h.Name, err))
		return nil
	}
	return fault.Advise(fmt.Errorf("hook %s of %s, %s: %w", h.Name, s.When, places[h.Where], err), "fix its command in spec.hooks, or let it fail: failurePolicy: Ignore; then run it again")
}

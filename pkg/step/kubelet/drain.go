package kubelet

import (
	"context"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// evicting is how long pods of a node that leaves the cluster may take.
const evicting = 10 * time.Minute

// Drain runs the user's hooks, and takes the pods off a node whose kubelet gets another minor version, or gives processors and memory to pods in another way from now on: it does so
// only when they start. For that it then stops the kubelet and removes what it remembers of the old way, with which it would not start.
//
// Facts: https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies
func Drain(c *cluster.Cluster, host string) []step.Step {
	steps := Evict(c, host)
	if !c.OtherManagers(host) {
		return steps
	}
	return append(steps, step.Command{
		What:   "kubelet forgets who had which processors",
		Unless: "[ ! -e " + cpuState + " ] && [ ! -e " + memoryState + " ]",
		Run:    "systemctl stop kubelet; rm -f " + cpuState + " " + memoryState,
		Undo:   "systemctl start kubelet",
	})
}

// Evict runs the user's hooks, and takes the pods off a node.
func Evict(c *cluster.Cluster, host string) []step.Step {
	how := c.Spec.Upgrade.Drain
	return append(before(c, host, false),
		step.With(Drained{Node: host, Force: how.Force, Keep: !*how.DeleteEmptyDir, API: c.AnyAPI()}, step.Options{Timeout: how.Timeout.Duration, Retries: -1}))
}

const (
	cpuState    = runner.KubeletDir + "/cpu_manager_state"
	memoryState = runner.KubeletDir + "/memory_manager_state"
)

// Drained is a node without pods, but for those of DaemonSets and static ones, that gets no new ones.
type Drained struct {
	Node   string
	Leaves bool        `json:",omitempty"` // the node goes, or is gone already
	Others []string    `json:"-"`          // that leave, too
	Force  bool        `json:",omitempty"` // pods that cannot move, or are not let go in time, are deleted
	Keep   bool        `json:",omitempty"` // pods with data on the node stop it
	API    kube.Access `json:"-"`
}

// Emptied runs the user's hooks, and takes the pods off a node that leaves the cluster. Those that cannot move, or are not let go, are deleted where that is forced.
func Emptied(c *cluster.Cluster, host string) []step.Step {
	return append(before(c, host, true),
		step.With(Drained{Node: host, Leaves: true, Others: c.GoneNodes(), Force: c.Forced, API: c.AnyAPI()}, step.Options{Timeout: evicting, Retries: -1}))
}

func (Drained) String() string { return "drain the node" }

// Precheck asks which pods there are.
func (d Drained) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	client, err := step.Kube(r, d.API)
	if err != nil {
		return nil, err
	}
	cordoned, err := client.Cordoned(ctx, d.Node)
	if err == nil && d.Leaves && !d.Force {
		err = client.Leavable(ctx, d.Node, d.Others)
	}
	if err != nil {
		if d.Leaves && kube.NotFound(err) {
			err = nil
		}
		return nil, err
	}
	pods, err := client.Evictable(ctx, d.Node, kube.Lose{Lone: d.Force, Local: !d.Keep})
	if err != nil || cordoned && len(pods) == 0 {
		return nil, err
	}
	var evicted []string
	if len(pods) > 0 {
		evicted = []string{"pods (drained)"}
	}
	return &step.Change{
		Diff:     strings.Join(append([]string{"drain " + d.Node}, pods...), "\n+ evict "), // which pods is no part of a saved plan
		Restarts: evicted, Verify: step.Verified,
		Run: func(ctx context.Context) error {
			if !cordoned { // by somebody else
				if err := r.MarkDrained(ctx, runner.Cordoned); err != nil {
					return err
				}
				if err := client.Cordon(ctx, d.Node, true); err != nil {
					return err
				}
			}
			return d.evict(ctx, client)
		},
	}, nil
}

// given is how long pods of a node are asked to go before they are deleted, where that is forced, and how long these may then take to end; a third of what is left of the time for
// the step, if that is less.
const given = 2 * time.Minute

func (d Drained) evict(ctx context.Context, client *kube.Client) error {
	drain := func(ctx context.Context) error {
		return client.Drain(ctx, d.Node, func(text string) { step.Tell(ctx, text) })
	}
	if !d.Force {
		return drain(ctx)
	}
	most := given
	if end, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(end)/3)
	}
	asking, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := drain(asking)
	if err == nil || ctx.Err() != nil || asking.Err() == nil {
		return err
	}
	step.Tell(ctx, "deleting pods: "+err.Error())
	if err := client.DeletePods(ctx, d.Node); err != nil || d.Leaves { // that node may be gone, and nobody ends them
		return err
	}
	ending, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if err = drain(ending); err != nil && ctx.Err() == nil && ending.Err() != nil {
		step.Tell(ctx, "going on without them: "+err.Error())
		return nil
	}
	return err
}

// Uncordoned is a node that gets pods again, unless somebody else does not want that.
type Uncordoned struct {
	Node  string
	Hooks bool        `json:",omitempty"` // they come after it
	Early bool        `json:",omitempty"` // unless its kubelet is to start with another program, or no API server answers
	API   kube.Access `json:"-"`
}

// asBefore says yes where the kubelet that runs is the one that is installed: one that was replaced is named "/usr/local/bin/kubelet (deleted)".
const asBefore = "p=$(systemctl show kubelet -p MainPID); case $(readlink /proc/${p#*=}/exe) in '' | *' (deleted)') ;; *) echo yes ;; esac"

func (Uncordoned) String() string { return "uncordon the node" }

// Precheck asks the host whether the node was cordoned by Drained.
func (u Uncordoned) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	then := runner.NotDrained
	if u.Hooks {
		then = runner.Begun
	}
	is, err := r.Drained(ctx)
	if err != nil || is == runner.NotDrained || is == then {
		return nil, err
	}
	if u.Early {
		if same, err := r.Sh(ctx, asBefore); err != nil || same == "" {
			return nil, err
		}
	}
	change := &step.Change{Diff: "uncordon " + u.Node, Run: func(ctx context.Context) error {
		if is == runner.Cordoned {
			client, err := step.Kube(r, u.API)
			if err == nil {
				err = client.Cordon(ctx, u.Node, false)
			}
			if err != nil && u.Early && ctx.Err() == nil {
				step.Tell(ctx, "left for later: "+err.Error())
				return nil
			}
			if err != nil {
				return err
			}
		}
		return r.MarkDrained(ctx, then)
	}}
	if u.Early {
		change.Verify = step.Verified
	}
	return change, nil
}

// LetBack takes back the cordon of a node that an earlier run left, before this one changes anything. What the user wants to run after it waits for the end of the work on the node.
func LetBack(c *cluster.Cluster, host string) []step.Step {
	return []step.Step{Uncordoned{Node: host, Hooks: after(c, host) != nil, Early: true, API: c.AnyAPI()}}
}

// Uncordon takes back the cordon of a node that Drain or Evict made, and runs the user's hooks after it.
func Uncordon(c *cluster.Cluster, host string) []step.Step {
	hooks := after(c, host)
	return append([]step.Step{Uncordoned{Node: host, Hooks: hooks != nil, API: c.AnyAPI()}}, hooks...)
}

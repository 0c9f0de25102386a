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

// evicting is how long pods of a node may take to leave it.
const evicting = 10 * time.Minute

// Drain takes the pods off a node whose kubelet gives processors and memory to pods in another way from now on: it does so only when
// they start. Then it stops the kubelet and removes what it remembers of the old way, with which it would not start.
//
// Facts: https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies
func Drain(c *cluster.Cluster, host string) []step.Step {
	return []step.Step{
		step.With(Drained{Node: host, API: c.AnyAPI()}, step.Options{Timeout: evicting, Retries: -1}),
		step.Command{
			What:   "kubelet forgets who had which processors",
			Unless: "[ ! -e " + cpuState + " ] && [ ! -e " + memoryState + " ]",
			Run:    "systemctl stop kubelet; rm -f " + cpuState + " " + memoryState,
			Undo:   "systemctl start kubelet",
		},
	}
}

const (
	cpuState    = runner.KubeletDir + "/cpu_manager_state"
	memoryState = runner.KubeletDir + "/memory_manager_state"
)

// Drained is a node without pods, but for those of DaemonSets and static ones, that gets no new ones.
type Drained struct {
	Node   string
	Leaves bool        `json:",omitempty"` // the node goes, or is gone already
	Force  bool        `json:",omitempty"` // pods that cannot move, or are not let go in time, are deleted
	API    kube.Access `json:"-"`
}

// Emptied takes the pods off a node that leaves the cluster. Those that cannot move, or are not let go, are deleted where that is forced.
func Emptied(c *cluster.Cluster, host string) step.Step {
	return step.With(Drained{Node: host, Leaves: true, Force: c.Forced, API: c.AnyAPI()}, step.Options{Timeout: evicting, Retries: -1})
}

func (Drained) String() string { return "drain the node" }

// Precheck asks which pods there are.
func (d Drained) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	client, err := step.Kube(r, d.API)
	if err != nil {
		return nil, err
	}
	cordoned, err := client.Cordoned(ctx, d.Node)
	if err != nil {
		if d.Leaves && kube.NotFound(err) {
			err = nil
		}
		return nil, err
	}
	pods, err := client.Evictable(ctx, d.Node, d.Force)
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
				if err := r.MarkDrained(ctx, true); err != nil {
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

// given is how long pods of a node are asked to go before they are deleted, where that is forced.
const given = 2 * time.Minute

func (d Drained) evict(ctx context.Context, client *kube.Client) error {
	if !d.Force {
		return client.Drain(ctx, d.Node)
	}
	asking, cancel := context.WithTimeout(ctx, given)
	defer cancel()
	err := client.Drain(asking, d.Node)
	if err == nil || ctx.Err() != nil || asking.Err() == nil {
		return err
	}
	step.Tell(ctx, "deleting pods: "+err.Error())
	return client.DeletePods(ctx, d.Node)
}

// Uncordoned is a node that gets pods again, unless somebody else does not want that.
type Uncordoned struct {
	Node string
	API  kube.Access `json:"-"`
}

func (Uncordoned) String() string { return "uncordon the node" }

// Precheck asks the host whether the node was cordoned by Drained.
func (u Uncordoned) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	ours, err := r.Drained(ctx)
	if err != nil || !ours {
		return nil, err
	}
	return &step.Change{Diff: "uncordon " + u.Node, Run: func(ctx context.Context) error {
		client, err := step.Kube(r, u.API)
		if err == nil {
			err = client.Cordon(ctx, u.Node, false)
		}
		if err != nil {
			return err
		}
		return r.MarkDrained(ctx, false)
	}}, nil
}

// Uncordon takes back the cordon of a node that Drain made.
func Uncordon(c *cluster.Cluster, host string) step.Step {
	return Uncordoned{Node: host, API: c.AnyAPI()}
}

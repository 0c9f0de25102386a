package kubelet

import (
	"context"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// NoNode is a host that is no node of the cluster any more. What ran there is deleted with it.
type NoNode struct {
	Node string
	API  kube.Access `json:"-"`
}

// Gone removes the node of a host that has left, whose kubelet has stopped or is out of reach: one that runs does not notice, and one that starts
// registers its node again.
func Gone(c *cluster.Cluster, host string) step.Step { return NoNode{Node: host, API: c.AnyAPI()} }

func (n NoNode) String() string { return "no node " + n.Node }

// Precheck reads the node.
func (n NoNode) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	client, err := step.Kube(r, n.API)
	if err != nil {
		return nil, err
	}
	left, err1 := client.PodsOf(ctx, n.Node)
	if _, err = client.Cordoned(ctx, n.Node); kube.NotFound(err) && len(left) == 0 {
		return nil, err1
	} else if err != nil && !kube.NotFound(err) {
		return nil, err
	}
	node, err := kube.ReadObjects([]byte("{apiVersion: v1, kind: Node, metadata: {name: " + n.Node + "}}"))
	if err != nil {
		return nil, err
	}
	return &step.Change{Diff: "- node " + n.Node, Run: func(ctx context.Context) error {
		if err := client.Delete(ctx, node...); err != nil {
			return err
		}
		return client.ForgetPods(ctx, n.Node)
	}}, nil
}

// Stopped ends the kubelet of a host that is no node any more.
func Stopped() step.Step {
	return step.Command{
		What: "no kubelet", Unless: "! systemctl is-active -q kubelet", Run: "systemctl disable --now kubelet", Undo: "systemctl enable --now kubelet",
	}
}

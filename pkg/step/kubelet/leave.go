package kubelet

import (
	"context"
	"slices"
	"time"

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

// NoFormer are machines that a backup has and that are gone, whose names others may have now: what there is of them is deleted.
type NoFormer struct {
	Nodes []string    // that others take the places of
	Gone  []string    // that nobody does
	Keep  string      `json:",omitempty"` // its kubelet has registered by then, together with the API server: only pods go
	Begun time.Time   // when the restore had
	API   kube.Access `json:"-"`
}

// FormerMachines takes the nodes of a backup away, the pods on them, and leases of those who led, before other machines become nodes. Machines that have the cluster, as they have survived, stay.
func FormerMachines(c *cluster.Cluster) step.Step {
	n := NoFormer{Begun: time.UnixMilli(c.Restore.Bump), API: c.AnyAPI()}
	for _, name := range c.Restore.Nodes {
		switch _, live := c.SplitNodes([]string{name}); {
		case !slices.Contains(c.Nodes(), name):
			n.Gone = append(n.Gone, name)
		case c.Kubeadm() && name == c.FirstMaster():
			n.Keep = name
		case live == nil:
			n.Nodes = append(n.Nodes, name)
		}
	}
	return n
}

func (NoFormer) String() string { return "nothing of former machines" }

// Precheck lists nodes and pods.
func (n NoFormer) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	client, err := step.Kube(r, n.API)
	if err != nil {
		return nil, err
	}
	former, err := client.Former(ctx, n.Nodes, n.Gone, n.Keep, n.Begun)
	if err != nil || len(former.Nodes)+len(former.Pods)+len(former.Leases) == 0 {
		return nil, err
	}
	text := ""
	for _, name := range former.Nodes {
		text += "- node " + name + "\n"
	}
	for _, p := range former.Pods {
		text += "- pod " + p.Namespace + "/" + p.Name + " on " + p.Spec.NodeName + "\n"
	}
	for _, l := range former.Leases {
		text += "- lease " + l.Namespace + "/" + l.Name + "\n"
	}
	return &step.Change{Diff: text, Verify: step.Verified, Run: func(ctx context.Context) error { return client.Forget(ctx, former) }}, nil
}

// Stopped ends the kubelet of a host that is no node any more.
func Stopped() step.Step {
	return step.Command{
		What: "no kubelet", Unless: "! systemctl is-active -q kubelet", Run: "systemctl disable --now kubelet", Undo: "systemctl enable --now kubelet",
	}
}

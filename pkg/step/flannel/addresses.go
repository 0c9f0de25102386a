package flannel

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Where flannel notes the address at which others send what is for the pods of a node
// (github.com/flannel-io/flannel/blob/master/Documentation/kubernetes.md).
const (
	publicIP = "flannel.alpha.coreos.com/public-ip"
	chosenIP = publicIP + "-overwrite" // by somebody
)

// NodeAddresses are those of nodes, which flannel asks for as it starts, and not again.
type NodeAddresses struct {
	Of  map[string]string // by node
	API kube.Access       `json:"-"`
}

// Addresses starts flannel again on nodes whose addresses have changed.
func Addresses(c *cluster.Cluster) step.Step {
	a := NodeAddresses{Of: map[string]string{}, API: c.AnyAPI()}
	for _, n := range c.Nodes() {
		a.Of[n] = c.IP(n)
	}
	return step.With(a, step.Options{Timeout: 3 * time.Minute})
}

func (NodeAddresses) String() string { return "addresses of nodes for flannel" }

// Precheck reads the nodes. One where flannel has not begun yet finds its address itself.
func (a NodeAddresses) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	client, err := step.Kube(r, a.API)
	if err != nil {
		return nil, err
	}
	diff, _, err := a.differ(ctx, client)
	if err != nil || diff == "" {
		return nil, err
	}
	return &step.Change{Diff: diff, Verify: step.Verified, Run: func(ctx context.Context) error { return a.follow(ctx, client) }}, nil
}

// follow replaces pods once their kubelets tell the new addresses. A pod that has begun just before has the former one: it is replaced again.
func (a NodeAddresses) follow(ctx context.Context, client *kube.Client) error {
	begun := map[string]time.Time{}
	for {
		diff, ready, err := a.differ(ctx, client)
		if err != nil || diff == "" {
			return err
		}
		for _, n := range ready {
			if time.Since(begun[n]) < 20*time.Second {
				continue
			}
			if err := client.ReplacePods(ctx, n, "kube-flannel", "app", "flannel"); err != nil {
				return err
			}
			begun[n] = time.Now()
		}
		select {
		case <-ctx.Done():
			err := fmt.Errorf("%w: flannel has still another address:\n%s", context.Cause(ctx), diff)
			return fault.Advise(err, "see what it says: kubectl -n kube-flannel logs -l app=flannel --prefix")
		case <-time.After(time.Second):
		}
	}
}

// differ tells for which nodes flannel has another address, and which of them tell theirs already.
func (a NodeAddresses) differ(ctx context.Context, client *kube.Client) (diff string, ready []string, err error) {
	nodes, err := client.Nodes(ctx)
	for _, n := range slices.Sorted(maps.Keys(a.Of)) {
		node := nodes[n]
		if node == nil || node.Annotations[publicIP] == "" || node.Annotations[publicIP] == a.Of[n] || node.Annotations[chosenIP] != "" {
			continue
		}
		diff += fmt.Sprintf("%s: %s -> %s\n", n, node.Annotations[publicIP], a.Of[n])
		if slices.ContainsFunc(node.Status.Addresses, func(at corev1.NodeAddress) bool { return at.Address == a.Of[n] }) {
			ready = append(ready, n)
		}
	}
	return diff, ready, err
}

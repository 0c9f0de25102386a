package step

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// NodeAddresses are those of nodes, at which others send what is for their pods. A network plugin asks for them as it starts, and not again:
// it is started again on nodes whose addresses have changed.
type NodeAddresses struct {
	Of         map[string][]string // by node, one of each family
	Plugin     string
	Namespace  string // of its pods
	Label      string // which they have
	Value      string
	Annotation []string    // of nodes, in which it notes the addresses, maybe with the length of a prefix
	Kind       string      `json:",omitempty"` // or apiVersion and kind of its own objects, named like nodes, that have it among spec.addresses
	Chosen     string      // annotation by which somebody has chosen another one; empty: there is none
	API        kube.Access `json:"-"`
}

func (a NodeAddresses) String() string { return "addresses of nodes for " + a.Plugin }

// Precheck reads the nodes. One where the plugin has not begun yet finds its address itself.
func (a NodeAddresses) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	client, err := Kube(r, a.API)
	if err != nil {
		return nil, err
	}
	diff, _, err := a.differ(ctx, client)
	if err != nil || diff == "" {
		return nil, err
	}
	return &Change{Diff: diff, Verify: Verified, Run: func(ctx context.Context) error { return a.follow(ctx, client) }}, nil
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
			if err := client.ReplacePods(ctx, n, a.Namespace, a.Label, a.Value); err != nil {
				return err
			}
			begun[n] = time.Now()
		}
		select {
		case <-ctx.Done():
			err := fmt.Errorf("%w: %s has still another address:\n%s", context.Cause(ctx), a.Plugin, diff)
			return fault.Advise(err, fmt.Sprintf("see what it says: kubectl -n %s logs -l %s=%s --prefix", a.Namespace, a.Label, a.Value))
		case <-time.After(time.Second):
		}
	}
}

// differ tells for which nodes the plugin has another address, and which of them tell theirs already.
func (a NodeAddresses) differ(ctx context.Context, client *kube.Client) (diff string, ready []string, err error) {
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return "", nil, err
	}
	own := map[string][]string{}
	if apiVersion, kind, ok := strings.Cut(a.Kind, " "); ok {
		if own, err = client.InternalIPs(ctx, apiVersion, kind); err != nil {
			return "", nil, err
		}
	}
	for _, n := range slices.Sorted(maps.Keys(a.Of)) {
		node := nodes[n]
		if node == nil {
			continue
		}
		noted := own[n]
		for _, key := range a.Annotation {
			if at, _, _ := strings.Cut(node.Annotations[key], "/"); at != "" {
				noted = append(noted, at)
			}
		}
		lacks := func(all []string) bool {
			return slices.ContainsFunc(a.Of[n], func(ip string) bool { return !slices.Contains(all, ip) })
		}
		if noted == nil || !lacks(noted) || node.Annotations[a.Chosen] != "" {
			continue
		}
		diff += fmt.Sprintf("%s: %s -> %s\n", n, strings.Join(noted, ", "), strings.Join(a.Of[n], ", "))
		var told []string
		for _, at := range node.Status.Addresses {
			told = append(told, at.Address)
		}
		if !lacks(told) {
			ready = append(ready, n)
		}
	}
	return diff, ready, err
}

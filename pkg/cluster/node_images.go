package cluster

import (
	"context"
	"fmt"

	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// NodeImages are the images that the container runtime of a node is to have, under their names.
type NodeImages struct {
	Names []string
	Arch  string
	Store *resource.Store
	Pull  bool   `json:",omitempty"` // the runtime gets them from the private registry; else kubexm brings them
	Keep  bool   `json:",omitempty"` // what the host needed before it needs still
	Unit  string `json:"-"`          // of that registry, on its host
}

// NodeImages are those of a host.
func (c *Cluster) NodeImages(host string) NodeImages {
	return NodeImages{Names: c.Images(host), Arch: c.Arch(host), Store: c.Store, Pull: c.RegistryHost() != "", Keep: c.HoldsNodes(), Unit: plugin.RegistryOf(c.Spec).Unit}
}

// Digests are what the name of each image may stand for in the runtime.
func (i NodeImages) Digests(ctx context.Context) (map[string][]string, error) {
	all := map[string][]string{}
	for _, n := range i.Names {
		digest, err := i.Store.Digest(n, i.Arch)
		if err != nil {
			return nil, err
		}
		all[n] = []string{digest}
		if i.Pull { // then it may be the index of several architectures
			if digest, err = i.Store.TopDigest(ctx, n); err != nil {
				return nil, err
			}
			all[n] = append(all[n], digest)
		}
	}
	return all, nil
}

// NotPulled says what to look at where the private registry did not give an image.
func (i NodeImages) NotPulled(name string, err error) error {
	return fault.Advise(fmt.Errorf("pulling %s: %w", name, err),
		"kubexm registry list shows what the private registry has; check that this host reaches it, and see journalctl -u "+i.Unit+" on its own")
}

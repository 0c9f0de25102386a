package cluster

import (
	"slices"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// Restore is what a cluster begins anew with.
type Restore struct {
	ID       string    // of this restoration: another one of the same backup has another
	InPlace  bool      // the machines have the cluster
	Snapshot string    `json:"-"` // of etcd, a file on the control machine
	Size     int64     // of it, bytes
	SHA256   string    // of it, lower-case hex
	Bump     int64     // by how much revisions of etcd are higher than in the snapshot: higher than any that was seen before
	Nodes    []string  // that the backup has
	Taken    time.Time // when the backup was
}

// RestoredMembers are the hosts whose members of etcd begin with the snapshot; together: a member of an etcd that kubeadm runs is on each of them already, else the
// others join the first one.
func (c *Cluster) RestoredMembers(together bool) []string {
	if c.Restore == nil || c.ExternalEtcd() {
		return nil
	}
	all := c.All(v1alpha1.RoleEtcd)
	if c.Spec.Etcd.Type == v1alpha1.TypeKubeadm {
		if all = c.Masters(); !together {
			all = all[:1]
		}
	}
	return all
}

// GoneSince are the nodes that a backup has, and the configuration of a cluster that it is restored to in place has not.
func (c *Cluster) GoneSince() []string {
	if c.Restore == nil || !c.Restore.InPlace {
		return nil
	}
	nodes := c.Nodes()
	return slices.DeleteFunc(slices.Clone(c.Restore.Nodes), func(n string) bool { return slices.Contains(nodes, n) })
}

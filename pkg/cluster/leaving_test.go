package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/runner"
)

// TestKeepsMajorityOnce takes a member away that is broken, and leaves: it counts once.
func TestKeepsMajorityOnce(t *testing.T) {
	c := clustertest.Parse(t, strings.Replace(clustertest.Masters, "{name: node3, address: 10.0.0.13, roles: [master, etcd]}", "{name: node3, address: 10.0.0.13, roles: [worker]}", 1)+
		"  kubernetes: {type: kubexm}\n  etcd: {type: kubexm}\n", func(_ string, f *runner.Facts) { f.Running = []string{"etcd", "kube-apiserver"} })
	for i, h := range []string{"node1", "node2", "node3"} {
		c.Observed.Members = append(c.Observed.Members, cluster.EtcdMember{Host: h, Name: h, ID: uint64(i + 1), Healthy: h != "node3", Started: true})
	}
	if lost, leave := c.LostMembers(), c.FormerEtcd(); len(lost) != 1 || !slices.Equal(leave, []string{"node3"}) {
		t.Fatalf("lost: %v, leave: %v", lost, leave)
	}
	c.Observed.Members[1].Healthy = true
	if err := c.KeepsMajority(); err != nil {
		t.Error(err)
	}
}

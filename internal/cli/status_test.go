package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/observe"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestStatus(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	nodes := []app.Node{
		{
			Name: "node1", Status: "Ready", Roles: []string{"master", "etcd"}, Version: "v1.37.1", Address: "192.0.2.1",
			OS: "Debian GNU/Linux 12 (bookworm)", Runtime: "containerd://2.3.4",
		}, {
			Name: "node2", Status: "Ready", Roles: []string{"worker"}, Version: "v1.37.1", Address: "192.0.2.2",
			OS: "Debian GNU/Linux 13 (trixie)", Runtime: "containerd://2.3.4",
		},
	}
	parts := func(host string, healthy bool) []cluster.Component {
		return []cluster.Component{
			{Host: host, Name: "etcd", Healthy: true, Version: "3.6.4"},
			{Host: host, Name: "kube-apiserver", Healthy: true, Version: "v1.37.1"},
			{Host: host, Name: "kube-controller-manager", Healthy: true},
			{Host: host, Name: "kube-scheduler", Healthy: healthy},
		}
	}
	well := app.ClusterStatus{
		Cluster: "prod", Healthy: true, Kubernetes: "v1.37.1", Type: "kubeadm", Server: "v1.37.1", Endpoint: "https://lb.kubexm.local:6443",
		Nodes: nodes, ControlPlane: parts("node1", true),
		Etcd:        []cluster.EtcdMember{{Host: "node1", Name: "node1", ID: 1, Healthy: true, Leader: true, Version: "3.6.4", DBSize: 21 << 20}},
		Addons:      []cluster.Addon{{Name: "kube-system/coredns", Ready: 2, Wanted: 2}},
		Certificate: &cluster.Certificate{Host: "node1", Path: "/etc/kubernetes/pki/apiserver.crt", Expires: now.AddDate(1, 0, 0)},
		LastRun:     &store.Run{ID: "20260102T030405.000Z-create", Result: "ok"},
	}
	badly := well
	badly.Healthy, badly.Server = false, "v1.36.4"
	badly.Nodes = []app.Node{
		nodes[0],
		{Name: "node2", Status: "unreachable", Roles: []string{"worker"}, Address: "192.0.2.2"},
		{Name: "node3", Status: "NotReady, cordoned", Roles: []string{"worker"}, Version: "v1.36.4", Address: "192.0.2.3"},
		{Name: "db1", Status: "not a node", Roles: []string{"etcd"}, Address: "192.0.2.4"},
	}
	badly.ControlPlane = append(parts("node1", false), cluster.Component{Host: "db1", Name: "etcd"})
	badly.Etcd = append(badly.Etcd[:1:1],
		cluster.EtcdMember{Host: "db1", Name: "db1", ID: 2, Err: "connection refused"},
		cluster.EtcdMember{Host: "db2", Name: "db2", ID: 3, Healthy: true, Version: "3.6.3", Behind: 4321, DBSize: 5 << 20},
		cluster.EtcdMember{ID: 0xabcdef, Healthy: true, Learner: true, Version: "3.6.4"})
	badly.Addons = []cluster.Addon{{Name: "kube-system/coredns", Ready: 0, Wanted: 2}}
	badly.Problems = []string{"etcd on db1: connection refused", "host node2: not reachable", "kube-scheduler on node1: 500 Internal Server Error: [-]leaderElection failed"}
	gone := app.ClusterStatus{
		Cluster: "gone", Kubernetes: "v1.37.1", Type: "kubexm", Endpoint: "https://lb.kubexm.local:6443",
		Nodes: []app.Node{{Name: "node1", Status: "unreachable"}}, Problems: []string{"host node1: not reachable"},
	}
	verified := gone
	verified.Checks = []observe.Check{
		{What: "member of etcd", Where: "node1", Result: observe.OK, Found: "node1 at https://192.0.2.1:2380", Wanted: "node1 at https://192.0.2.1:2380"},
		{What: "node", Where: "node1", Result: observe.OK, Found: "192.0.2.1", Wanted: "192.0.2.1"},
		{What: "node", Where: "node9", Result: observe.Differs, Found: "192.0.2.9", Wanted: "no node"},
		{What: "names in /etc/hosts", Where: "node2", Result: observe.Unknown, Found: "connection refused"},
	}
	var b strings.Builder
	for _, is := range []*app.ClusterStatus{&well, &badly, &gone, &verified} {
		for _, width := range []int{120, 60} {
			b.WriteString(statusText(is, style.Style{}, width, now) + "\n====\n")
		}
	}
	golden.Equal(t, b.String())
}

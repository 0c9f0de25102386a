package kubelet_test

import (
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step/kubelet"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestKubexm(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		edit func(string, *runner.Facts)
	}{
		"defaults":            {spec: "  kubernetes: {type: kubexm}\n  etcd: {type: kubexm}\n"},
		"configured":          {spec: "  etcd: {type: kubexm}\n  kubernetes: {type: kubexm, kubelet: {extraArgs: {v: \"4\"}, config: {shutdownGracePeriod: 30s}}}\n"},
		"cannot raise limits": {spec: "  kubernetes: {type: kubexm}\n  etcd: {type: kubexm}\n", edit: func(_ string, f *runner.Facts) { f.Capabilities = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			k := clustertest.New(t, c.spec, c.edit)
			golden.Equal(t, clustertest.Text(kubelet.Config(k, "node1"), kubelet.Config(k, "node2"), kubelet.Service(k, "node2")))
		})
	}
}

// TestFamilies shows what IPv6 changes, with kubeadm as well.
func TestFamilies(t *testing.T) {
	golden.Equal(t, clustertest.Families(t, "", func(c *cluster.Cluster) string {
		return clustertest.Text(kubelet.Config(c, "node2"), kubelet.Service(c, "node2"), kubelet.Prepared(c, "node2"), kubelet.CacheAddress(c))
	}))
}

func TestKubeadm(t *testing.T) {
	k := clustertest.New(t, "  kubernetes: {kubelet: {extraArgs: {v: \"4\"}}}\n", nil)
	golden.Equal(t, clustertest.Text(kubelet.Prepared(k, "node2")))
}

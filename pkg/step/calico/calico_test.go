package calico_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/step/calico"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestRendered(t *testing.T) {
	for name, network := range map[string]string{
		"defaults":   "",
		"configured": ", podCIDR: 10.100.0.0/16, calico: {encapsulation: VXLAN, mtu: 1400, blockSize: 24, felix: {logSeverityScreen: Warning, xdpEnabled: true}}",
		"by BGP":     ", calico: {encapsulation: IPIPCrossSubnet, typha: 2}",
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(t, "  network: {plugin: calico"+network+"}\n", nil)
			golden.Equal(t, clustertest.Text(calico.Steps(c)...))
		})
		t.Run(name+", families", func(t *testing.T) {
			if strings.Contains(network, "podCIDR") {
				return // of one family
			}
			spec := "  network: {plugin: calico" + network + "}\n"
			golden.Equal(t, clustertest.Families(t, spec, func(c *cluster.Cluster) string { return clustertest.Text(calico.Steps(c)...) }))
		})
	}
}

// TestTypha has as many of it as nodes need.
func TestTypha(t *testing.T) {
	for nodes, want := range map[int]string{50: "", 51: "replicas: 3\n", 1000: "replicas: 5\n"} {
		var hosts strings.Builder
		for n := range nodes {
			role := "worker"
			if n == 0 {
				role = "master, etcd"
			}
			fmt.Fprintf(&hosts, "  - {name: node%d, address: 10.0.%d.%d, roles: [%s]}\n", n, n/200, n%200+1, role)
		}
		c := clustertest.Parse(t, `apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: one}
spec:
  network: {plugin: calico, podCIDR: 10.100.0.0/14}
  hosts:
`+hosts.String(), nil)
		_, typha, is := strings.Cut(clustertest.Text(calico.Steps(c)...), "kind: Deployment\nmetadata:\n  name: calico-typha")
		if is != (want != "") || !strings.Contains(typha, want) {
			t.Errorf("for %d nodes: %s", nodes, typha)
		}
	}
}

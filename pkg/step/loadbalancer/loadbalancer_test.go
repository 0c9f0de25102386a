package loadbalancer_test

import (
	"testing"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/loadbalancer"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

const frame = clustertest.Masters + "  - {name: node4, address: 10.0.0.14, roles: [worker]}\n"

const balancers = `  - {name: lb1, address: 10.0.0.21, roles: [loadbalancer]}
  - {name: lb2, address: 10.0.0.22, roles: [loadbalancer]}
  loadBalancer: {mode: external, vip: 10.0.0.100, port: 8443, external: {type: `

func TestRendered(t *testing.T) {
	local := func(c *cluster.Cluster) []step.Step {
		return []step.Step{loadbalancer.Pod(c, "node4", "127.0.0.1"), loadbalancer.Packages(c, "node4"), loadbalancer.Service(c, "node4", "127.0.0.1")}
	}
	external := func(c *cluster.Cluster) (steps []step.Step) {
		for _, h := range c.Hosts(v1alpha1.RoleLoadBalancer) {
			steps = append(steps, loadbalancer.Packages(c, h), loadbalancer.Service(c, h, loadbalancer.Everywhere(c)), loadbalancer.Keepalived(c, h))
		}
		return steps
	}
	vip := func(c *cluster.Cluster) []step.Step { return []step.Step{loadbalancer.KubeVIP(c, "node2")} }
	for name, test := range map[string]struct {
		config string
		steps  func(*cluster.Cluster) []step.Step
	}{
		"haproxy":   {"  loadBalancer: {mode: internal}\n", local},
		"nginx":     {"  loadBalancer: {mode: internal, internal: {type: nginx}}\n", local},
		"kubexm-kh": {balancers + "kubexm-kh}}\n", external},
		"kubexm-kn": {balancers + "kubexm-kn}}\n", external},
		"arp":       {"  loadBalancer: {mode: kube-vip, vip: 10.0.0.100}\n", vip},
		"bgp": {
			"  loadBalancer: {mode: kube-vip, vip: 10.0.0.100, kubeVip: {mode: bgp, interface: lo, asn: 64512, " +
				"peers: [{address: 10.0.0.1, asn: 64513}, {address: 10.0.0.2, asn: 64514, holdTime: 15s}]}}\n", vip,
		},
	} {
		t.Run(name, func(t *testing.T) {
			addresses := map[string]string{"node2": "10.0.0.12/24", "lb1": "10.0.0.21/24", "lb2": "10.0.0.22/24"}
			c := clustertest.Parse(t, frame+test.config, func(host string, f *runner.Facts) {
				f.Interfaces = []runner.Interface{{Name: "lo", Addresses: []string{"127.0.0.1/8"}}, {Name: "eth1", Addresses: []string{addresses[host]}}}
			})
			golden.Equal(t, clustertest.Text(test.steps(c)...))
		})
		if name == "bgp" {
			continue // which is for IPv4
		}
		t.Run(name+", families", func(t *testing.T) {
			golden.Equal(t, clustertest.Families(t, frame+test.config, func(c *cluster.Cluster) string { return clustertest.Text(test.steps(c)...) }))
		})
	}
}

// TestNoInterface has a machine that does not know the address under which others reach it.
func TestNoInterface(t *testing.T) {
	c := clustertest.Parse(t, frame+"  loadBalancer: {mode: kube-vip, vip: 10.0.0.100, kubeVip: {interface: eth7}}\n", nil)
	if got := c.Interface("node2"); got != "eth7" {
		t.Errorf("interface %q, want the configured one", got)
	}
}

package cluster_test

import (
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/runner"
)

// TestVIP has virtual addresses that no network would deliver, or that somebody has.
func TestVIP(t *testing.T) {
	const balancers = "  - {name: lb1, address: 10.0.1.21, roles: [loadbalancer]}\n  - {name: lb2, address: 10.0.0.22, roles: [loadbalancer]}\n"
	for name, test := range map[string]struct{ config, taken, want string }{
		"kube-vip":             {"  loadBalancer: {mode: kube-vip, vip: 10.0.0.100}\n", "", ""},
		"kube-vip elsewhere":   {"  loadBalancer: {mode: kube-vip, vip: 10.0.7.100}\n", "", "node1 node2 node3"},
		"kube-vip with BGP":    {"  loadBalancer: {mode: kube-vip, vip: 10.0.7.100, kubeVip: {mode: bgp, asn: 1, peers: [{address: 10.0.0.1, asn: 2}]}}\n", "", ""},
		"one balancer too far": {balancers + "  loadBalancer: {mode: external, vip: 10.0.0.100}\n", "", "lb1"},
		"somebody's":           {"  loadBalancer: {mode: external, vip: 10.0.7.100, external: {type: external}}\n", "", ""},
		"an address of a host": {"  loadBalancer: {mode: kube-vip, vip: 10.0.0.100}\n", "node2", "node2"},
		"on workers, without":  {"  loadBalancer: {mode: internal}\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			own := map[string]string{"node1": "10.0.0.11/24", "node2": "10.0.0.12/24", "node3": "10.0.0.13/24", "lb1": "10.0.1.21/24", "lb2": "10.0.0.22/24"}
			c := clustertest.Parse(t, clustertest.Masters+test.config, func(host string, f *runner.Facts) {
				f.Interfaces = []runner.Interface{{Name: "eth0", Addresses: []string{own[host]}}}
				if host == test.taken {
					f.Interfaces[0].Addresses = append(f.Interfaces[0].Addresses, "10.0.0.100/32")
				}
			})
			var hosts []string
			for _, f := range c.Preflight(nil) {
				if f.Check == "vip" {
					hosts = append(hosts, f.Host)
				}
			}
			if got := strings.Join(hosts, " "); got != test.want {
				t.Errorf("found on %q, want %q", got, test.want)
			}
		})
	}
}

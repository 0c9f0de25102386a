package preflight_test

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/preflight"
	"github.com/kubexm/kubexm/pkg/runner"
)

// TestVIP has virtual addresses that no network would deliver, or that somebody has.
func TestVIP(t *testing.T) {
	const balancers = "  - {name: lb1, address: 10.0.1.21, roles: [loadbalancer]}\n  - {name: lb2, address: 10.0.0.22, roles: [loadbalancer]}\n"
	for name, test := range map[string]struct{ config, taken, answers, want string }{
		"kube-vip":             {"  loadBalancer: {mode: kube-vip, vip: 10.0.0.100}\n", "", "", ""},
		"kube-vip elsewhere":   {"  loadBalancer: {mode: kube-vip, vip: 10.0.7.100}\n", "", "", "node1 node2 node3"},
		"kube-vip with BGP":    {"  loadBalancer: {mode: kube-vip, vip: 10.0.7.100, kubeVip: {mode: bgp, asn: 1, peers: [{address: 10.0.0.1, asn: 2}]}}\n", "", "", ""},
		"one balancer too far": {balancers + "  loadBalancer: {mode: external, vip: 10.0.0.100}\n", "", "", "lb1"},
		"somebody's":           {"  loadBalancer: {mode: external, vip: 10.0.7.100, external: {type: external}}\n", "", "", ""},
		"an address of a host": {"  loadBalancer: {mode: kube-vip, vip: 10.0.0.100}\n", "node2", "", "node2"},
		"on another machine":   {"  loadBalancer: {mode: kube-vip, vip: 10.0.0.100}\n", "", "node3", "node3"},
		"on workers, without":  {"  loadBalancer: {mode: internal}\n", "", "", ""},
	} {
		for family, rewrite := range map[string]*strings.Replacer{
			"IPv4": strings.NewReplacer(),
			"IPv6": strings.NewReplacer("10.0.0.", "fd00::", "10.0.1.", "fd00:1::", "10.0.7.", "fd00:7::", "/24", "/64", "/32", "/128"),
		} {
			if family == "IPv6" && strings.Contains(test.config, "bgp") {
				continue // which is for IPv4
			}
			t.Run(name+"/"+family, func(t *testing.T) {
				own := map[string]string{"node1": "10.0.0.11/24", "node2": "10.0.0.12/24", "node3": "10.0.0.13/24", "lb1": "10.0.1.21/24", "lb2": "10.0.0.22/24"}
				shared := net.JoinHostPort(rewrite.Replace("10.0.0.100"), "6443")
				c := clustertest.Parse(t, rewrite.Replace(clustertest.Masters+test.config), func(host string, f *runner.Facts) {
					f.Interfaces = []runner.Interface{{Name: "eth0", Addresses: []string{rewrite.Replace(own[host])}}}
					if host == test.answers {
						f.Tried = map[string]string{shared: ""}
					} else {
						f.Tried = map[string]string{shared: "no route to host"}
					}
					if host == test.taken {
						f.Interfaces[0].Addresses = append(f.Interfaces[0].Addresses, rewrite.Replace("10.0.0.100/32"))
					}
				})
				var hosts []string
				for _, f := range preflight.Facts(c, nil) {
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
}

// TestBalancers has machines on which load balancers of others work.
func TestBalancers(t *testing.T) {
	const external = "  - {name: lb1, address: 10.0.0.21, roles: [loadbalancer]}\n  - {name: lb2, address: 10.0.0.22, roles: [loadbalancer]}\n" +
		"  loadBalancer: {mode: external, vip: 10.0.0.100}\n"
	proxy := func(f *runner.Facts) { f.Listening[8443] = "haproxy" }
	keepalived := func(f *runner.Facts) { f.Running = []string{"keepalived"} }
	for name, test := range map[string]struct {
		config, host string
		spoil        func(*runner.Facts)
		want         string // check and what it found
	}{
		"nothing":               {external, "lb1", func(*runner.Facts) {}, ""},
		"proxy":                 {external, "lb1", proxy, "load-balancer: somebody's haproxy on port 8443"},
		"both":                  {external, "lb2", func(f *runner.Facts) { proxy(f); keepalived(f) }, "load-balancer: somebody's haproxy on port 8443, keepalived"},
		"another proxy":         {external, "lb1", func(f *runner.Facts) { f.Listening[8443] = "nginx" }, ""},
		"ours":                  {external, "lb1", func(f *runner.Facts) { proxy(f); keepalived(f); f.Env = map[string]string{"cluster": "demo"} }, "owner: part of a kubexm cluster demo whose keys are not in DIR"},
		"of another cluster":    {external, "lb1", func(f *runner.Facts) { keepalived(f); f.Env = map[string]string{"cluster": "other"} }, "owner: part of the kubexm cluster other"},
		"on a master":           {external, "node1", func(f *runner.Facts) { proxy(f); keepalived(f) }, ""},
		"on a worker":           {"  - {name: lb1, address: 10.0.0.21, roles: [worker]}\n  kubernetes: {type: kubexm}\n  loadBalancer: {mode: internal}\n", "lb1", func(f *runner.Facts) { proxy(f); keepalived(f) }, "load-balancer: somebody's haproxy on port 8443"},
		"beside a static pod":   {"  - {name: lb1, address: 10.0.0.21, roles: [worker]}\n  loadBalancer: {mode: internal}\n", "lb1", proxy, ""},
		"without load balancer": {"  - {name: lb1, address: 10.0.0.21, roles: [worker]}\n  loadBalancer: {enabled: false}\n", "lb1", proxy, ""},
	} {
		t.Run(name, func(t *testing.T) {
			addresses := map[string]string{"lb1": "10.0.0.21/24", "lb2": "10.0.0.22/24"}
			c := clustertest.Parse(t, clustertest.Masters+test.config, func(host string, f *runner.Facts) {
				f.Interfaces = []runner.Interface{{Name: "eth0", Addresses: []string{addresses[host]}}}
				f.Listening = map[int]string{}
				if host == test.host {
					test.spoil(f)
				}
			})
			var got []string
			for _, f := range preflight.Facts(c, nil) {
				if f.Severity == preflight.SeverityError && (f.Check == "load-balancer" || f.Check == "owner") {
					got = append(got, strings.ReplaceAll(f.Check+": "+f.Found, c.Certs.Dir, "DIR"))
				}
			}
			if text := strings.Join(got, "; "); text != test.want {
				t.Errorf("found %s", text)
			}
		})
	}
}

// TestSecondFamily tries kubelets of nodes at both of their addresses.
func TestSecondFamily(t *testing.T) {
	var at []string
	for _, l := range preflight.Links(clustertest.Parse(t, clustertest.DualStack, nil), "node1") {
		at = append(at, l.Address)
	}
	if want := []string{"10.0.0.12:10250", "[fd00::12]:10250"}; !slices.Equal(at, want) {
		t.Errorf("%q", at)
	}
}

// TestStrayAddresses warns of members of etcd that may call from another address than their certificates have.
func TestStrayAddresses(t *testing.T) {
	const third = "  - {name: node3, address: 10.0.0.13, roles: [etcd]}\n"
	for config, want := range map[string]int{clustertest.IPv6 + clustertest.ToIPv6(third): 2, clustertest.DualStack + third: 0} {
		c := clustertest.Parse(t, config, func(_ string, f *runner.Facts) {
			for i := range f.Interfaces {
				if f.Interfaces[i].Name == "eth0" {
					f.Interfaces[i].Addresses = append(f.Interfaces[i].Addresses, "fe80::1/64", "fd00::5054:ff:fe12:3456/64")
				}
			}
		})
		n := 0
		for _, f := range preflight.Facts(c, nil) {
			if f.Check == "addresses" {
				n++
			}
		}
		if n != want {
			t.Errorf("%d findings with\n%s", n, config)
		}
	}
}

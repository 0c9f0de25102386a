package testbed

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/test/testbed/build"
)

// Nodes, the gateway and configurations have addresses of the testbed's family, which it keeps.
func TestFamilies(t *testing.T) {
	b := &build.Builder{Sets: "components"}
	const four, six = "10.77.0.13", "fd00:10:77::13"
	for _, c := range []struct {
		family, gateway string
		node            []string
		wants, not      []string // in the configuration
	}{
		{"", "10.77.0.1", []string{four}, []string{"address: " + four + "\n"}, []string{"internalAddress", "CIDR", "fd00"}},
		{Dual, "10.77.0.1", []string{four, six}, []string{
			"address: " + four + "\n    internalAddress: \"" + four + "," + six + "\"\n", "vip: 10.77.0.100\n", "http://10.77.0.1:8099/",
			"podCIDR: \"10.233.64.0/18,fd00:10:233:40::/58\"\n    serviceCIDR: \"10.233.0.0/18,fd00:10:233::/112\"\n",
		}, nil},
		{IPv6, "fd00:10:77::1", []string{six}, []string{
			"address: " + six + "\n", "vip: fd00:10:77::100\n", `"http://[fd00:10:77::1]:8099/dl.k8s.io/"`, `"http://[fd00:10:77::1]:5000/docker.io"`,
			"podCIDR: \"fd00:10:233:40::/58\"\n    serviceCIDR: \"fd00:10:233::/112\"\n",
		}, []string{"internalAddress", "10.77.", "10.233."}},
	} {
		t.Run(c.family, func(t *testing.T) {
			tb := fakeOf(t, 4, settings{User: "root", Family: c.family})
			n, err := tb.Node("node3")
			if err != nil || tb.Gateway() != c.gateway || !slices.Equal(n.Addresses(), c.node) {
				t.Errorf("%v, %v, gateway %s", err, n, tb.Gateway())
			}
			var out bytes.Buffer
			if err := tb.Config(&out, b, ConfigOptions{Nodes: 4, Row: 13}); err != nil {
				t.Fatal(err)
			}
			for _, text := range append(c.wants, c.not...) {
				if strings.Contains(out.String(), text) != slices.Contains(c.wants, text) {
					t.Errorf("%q is in it: %t\n%s", text, strings.Contains(out.String(), text), out.String())
				}
			}
			for _, other := range append(Families, "") {
				err := tb.set(Options{User: "kube", Family: other})
				if want := other == "" || other == cmp.Or(c.family, IPv4); want != (err == nil) || tb.Family() != cmp.Or(c.family, IPv4) {
					t.Errorf("asked for %q it is %s: %v", other, tb.Family(), err)
				}
			}
		})
	}
}

// Machines of each family reach one another and the gateway at all addresses, have the settings of routers for their own, and can be cut off, slow and isolated.
func TestMachineFamilies(t *testing.T) {
	for _, family := range []string{Dual, IPv6} {
		t.Run(family, func(t *testing.T) {
			tb := real(t, "tbf")
			nodes, err := tb.Up(t.Context(), Options{Nodes: 2, OS: "mixed", Family: family})
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range nodes {
				for _, a := range slices.Concat(nodes[0].Addresses(), nodes[1].Addresses(), tb.addresses(1)) {
					must(t, tb, n, "ping -c 1 -W 1 -q "+a)
				}
				must(t, tb, n, "cd /proc/sys/net/ipv6/conf/all; grep -q 0 forwarding; echo 1 > forwarding; echo 0 > forwarding")
				if four := must(t, tb, n, "ip -4 -o addr show scope global; ip -4 route"); (four != "") != (family == Dual) {
					t.Errorf("%s has of IPv4: %s", n.Name, four)
				}
			}
			if family == IPv6 {
				t.Run("served", func(t *testing.T) { testServed(t, tb, nodes[1]) })
			}
			t.Run("network", func(t *testing.T) { testNetwork(t, tb, nodes[0], nodes[1]) })
			t.Run("isolated", func(t *testing.T) { testIsolated(t, tb, nodes[0], nodes[1]) })
			t.Run("power", func(t *testing.T) { testPower(t, tb, nodes[1]) })
			t.Run("snapshot", func(t *testing.T) { testSnapshot(t, tb, nodes[0]) })
		})
	}
}

// testServed wants a node to find names and packages at the gateway.
func testServed(t *testing.T, tb *Testbed, n Node) {
	b, err := build.NewBuilder(t.Context(), tb.Cache, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tb.Serve(ctx, b, nil) }()
	must(t, tb, n, "i=0; until getent ahosts deb.debian.org; do i=$((i + 1)); [ $i -lt 20 ] || exit 1; sleep 0.1; done; apt-get -qq update && apt-get -qq install -y --download-only ipvsadm >&2")
	must(t, tb, n, "curl -fsS -g 'http://"+tb.ImagesAddress()+"/v2/'")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

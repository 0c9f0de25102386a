//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/test/testbed"
)

// network is one that pods may have, other than flannel's.
type network struct {
	name    string
	plugin  string
	mode    string         // of kube-proxy; empty: the default
	section map[string]any // of the configuration
	change  map[string]any // of that, on a cluster that runs
}

var networks = []network{
	{"calico", "calico", "", map[string]any{}, map[string]any{"encapsulation": "VXLAN"}},
	{"cilium", "cilium", "", values(nil), values(hubble)},
	{"cilium-alone", "cilium", "none", legacy(values(nil)), legacy(values(hubble))},
}

// edits choose the network.
func (n network) edits() []edit {
	all := []edit{impatient, set("network", map[string]any{"plugin": n.plugin, n.plugin: n.section})}
	if n.mode != "" {
		all = append(all, set("kubernetes.proxyMode", n.mode))
	}
	return all
}

// eachNetwork tests all networks, or the one that E2E_NETWORK=NAME chooses.
func eachNetwork(t *testing.T, row int, test func(t *testing.T, n network)) {
	for _, n := range networks {
		if only := os.Getenv("E2E_NETWORK"); only == "" || only == n.name {
			t.Run(fmt.Sprint(n.name, " row", row), func(t *testing.T) {
				provideFor(t, "", find(t, n.plugin))
				test(t, n)
			})
		}
	}
}

// TestNetworks makes clusters whose pods have other networks than flannel's, from nothing and back to nothing: network policies hold, packets are as large as
// interfaces or routes of pods promise, and what can be changed is while pods ask each other. E2E_ROW=ROW chooses another row than 1.
func TestNetworks(t *testing.T) {
	row, err := strconv.Atoi(cmp.Or(os.Getenv("E2E_ROW"), "1"))
	must(t, err)
	eachNetwork(t, row, func(t *testing.T, n network) {
		the.resize(t, testbed.Rows[row-1].Nodes()+1) // two workers
		c := newCluster(t, row, where{}, n.edits()...)
		c.also = func() {
			must(t, prover(t, c).Policies(t.Context()))
			asks := c.ask(t, c.serve(t), 2)
			c.packets(t)
			c.change(t, set("network."+n.plugin, n.change))
			changed := c.run(t, "apply", "--yes", "-o", "json").ok(t)
			if changed.result.Summary.Changed == 0 {
				t.Error("nothing was changed")
			}
			t.Logf("changed %v in %.0f s: %s", n.change, changed.took.Seconds(), asks(t))
			c.packets(t)
			must(t, c.client(t).AppsV1().Deployments("default").Delete(t.Context(), "guests", metav1.DeleteOptions{}))
		}
		cycle(t, c)
	})
}

// TestNetworksOffline makes them from bundles, with the cable cut.
func TestNetworksOffline(t *testing.T) {
	eachNetwork(t, 1, func(t *testing.T, n network) { offline(t, 1, n.name, n.edits()...) })
}

// hubble has no certificates: the program that makes them is not to be had here.
var hubble = map[string]any{"enabled": true, "tls": map[string]any{"enabled": false}}

// values are the section of Cilium, whose pods ask by name for capabilities that a node has not all of.
func values(hubble any) map[string]any {
	all := map[string]any{"securityContext": map[string]any{"privileged": true}}
	if hubble != nil {
		all["hubble"] = hubble
	}
	return map[string]any{"values": all}
}

// legacy lets Cilium put its programs where kernels before 6.6 have them.
func legacy(section map[string]any) map[string]any {
	section["values"].(map[string]any)["bpf"] = map[string]any{"enableTCX": false}
	return section
}

// packets sends from guests to others on another machine, and back, what just fits into their interface, and a byte more.
func (c *cluster) packets(t *testing.T) {
	t.Helper()
	pods, err := c.client(t).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=guests"})
	must(t, err)
	one := pods.Items[0]
	elsewhere := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName != one.Spec.NodeName })
	if elsewhere < 0 {
		t.Fatal("all guests are on one node")
	}
	for _, pair := range [][2]corev1.Pod{{one, pods.Items[elsewhere]}, {pods.Items[elsewhere], one}} {
		for _, to := range pair[1].Status.PodIPs {
			c.packetsTo(t, pair[0], to.IP, pair[1].Spec.NodeName)
		}
	}
}

func (c *cluster) packetsTo(t *testing.T, from corev1.Pod, ip, node string) {
	t.Helper()
	headers := 28 // of IP, and of the question
	if strings.Contains(ip, ":") {
		headers = 48
	}
	out := the.on(t, the.node(t, from.Spec.NodeName), fmt.Sprintf(`pid=$(crictl inspect -o go-template --template '{{.info.pid}}' "$(crictl ps -q --pod "$(crictl pods -q --name %[1]s)")")
mtu() { nsenter -t "$pid" -n ip "$@" | sed -n 's/.* mtu \([0-9]*\).*/\1/p'; }
mtu=$(mtu route get %[2]s); mtu=${mtu:-$(mtu link show eth0)} # plugins limit the one or the other
fits() { nsenter -t "$pid" -n ping -q -c 1 -W 2 -M do -s "$1" %[2]s >/dev/null 2>&1; }
fits $((mtu - %[3]d)) && ! fits $((mtu - %[3]d + 1)) && echo "MTU $mtu" || echo "not with $mtu"`, from.Name, ip, headers))
	if !strings.HasPrefix(out, "MTU ") {
		t.Errorf("packets of the MTU do not get from %s to %s: %s", from.Spec.NodeName, node, out)
	}
	t.Logf("from %s to %s at %s: %s", from.Spec.NodeName, node, ip, out)
}

// Package calico holds the steps that install the network plugin Calico.
package calico

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
)

// Steps install Calico: the definitions of its kinds as they are published, then what is of these kinds, and its programs.
func Steps(c *cluster.Cluster) []step.Step {
	return []step.Step{
		step.ApplyFile{What: "calico definitions", File: c.Artifact(plugin.CalicoCRDs, c.FirstMaster()), Store: c.Store, API: c.AnyAPI()},
		step.Apply{What: "calico", API: c.AnyAPI(), Objects: objects(c)},
	}
}

func objects(c *cluster.Cluster) []byte {
	of := c.Spec.Network.Calico
	data := struct {
		PodCIDR, PodCIDRv6, VXLAN, IPIP, Backend, Felix string
		Node, CNI, Controllers, TyphaImage              string
		APIHost                                         string
		APIPort, BlockSize, MTU, Typha                  int
		Accounts                                        []string
	}{
		PodCIDR: c.PodCIDR(4), PodCIDRv6: c.PodCIDR(6), BlockSize: of.BlockSize, MTU: of.MTU, Typha: typha(of.Typha, len(c.All(v1alpha1.RoleMaster, v1alpha1.RoleWorker))),
		Node: c.Image("calico-node"), CNI: c.Image("calico-cni"), Controllers: c.Image("calico-kube-controllers"), TyphaImage: c.Image("calico-typha"),
		APIHost: c.Spec.LoadBalancer.Domain, APIPort: c.Spec.LoadBalancer.Port,
		Accounts: []string{"calico-node", "calico-cni-plugin", "calico-kube-controllers"},
	}
	data.VXLAN, data.IPIP, data.Backend = modes(of.Encapsulation)
	felix, err := json.Marshal(settings(of.MTU, c.PodCIDR(6) != "", of.Felix))
	c.Check(err)
	data.Felix = string(felix)
	return templates.Render("calico/calico", data)
}

// modes are those of the pool of addresses, and what tells nodes the routes to each other: Felix alone, or BIRD by BGP.
func modes(encapsulation string) (vxlan, ipip, backend string) {
	mode := func(name string) string {
		switch rest, is := strings.CutPrefix(encapsulation, name); {
		case !is:
			return "Never"
		case rest == "":
			return "Always"
		default:
			return rest
		}
	}
	vxlan, ipip, backend = mode("VXLAN"), mode("IPIP"), "bird"
	if vxlan != "Never" {
		backend = "vxlan"
	}
	return vxlan, ipip, backend
}

// settings are those of Felix. XDP is for policies of hosts' own interfaces alone.
func settings(mtu int, ipv6 bool, chosen map[string]any) map[string]any {
	all := map[string]any{"defaultEndpointToHostAction": "Accept", "healthEnabled": true, "ipv6Support": ipv6, "xdpEnabled": false}
	if mtu > 0 {
		all["vxlanMTU"], all["ipipMTU"] = mtu, mtu
		if ipv6 {
			all["vxlanMTUV6"] = mtu
		}
	}
	maps.Copy(all, chosen)
	return all
}

// typha is how many of it there are for so many nodes (https://docs.tigera.io/calico/latest/getting-started/kubernetes/self-managed-onprem/onpremises).
func typha(chosen *int, nodes int) int {
	switch {
	case chosen != nil:
		return *chosen
	case nodes <= 50:
		return 0
	default:
		return max(3, (nodes+199)/200)
	}
}

// Addresses starts Calico again on nodes whose addresses have changed.
func Addresses(c *cluster.Cluster) step.Step {
	// See github.com/projectcalico/calico/blob/master/libcalico-go/lib/backend/k8s/conversion/constants.go.
	noted := c.ByFamily("projectcalico.org/IPv4Address", "projectcalico.org/IPv6Address")
	return step.NodeAddresses{Of: c.NodeIPs(), Plugin: "calico", Namespace: "calico-system", Label: "k8s-app", Value: "calico-node", Annotation: noted, API: c.AnyAPI()}
}

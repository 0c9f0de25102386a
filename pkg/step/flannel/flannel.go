// Package flannel holds the steps that install the network plugin flannel.
package flannel

import (
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
)

// Steps install flannel.
func Steps(c *cluster.Cluster) []step.Step {
	const template = "flannel/flannel"
	data := struct {
		PodCIDR, PodCIDRv6, Backend, Image, CNIImage, Digest, APIHost string
		APIPort                                                       int
		NFTables, IPv6, Dual                                          bool
	}{
		PodCIDR: c.PodCIDR(4), PodCIDRv6: c.PodCIDR(6), IPv6: c.IPv6(), Dual: c.DualStack(), Backend: c.Spec.Network.Flannel.Backend, Image: c.Image("flannel"), CNIImage: c.Image("flannel-cni"),
		APIHost: c.Spec.LoadBalancer.Domain, APIPort: c.Spec.LoadBalancer.Port, NFTables: c.ProxyMode() == v1alpha1.ProxyNFTables,
	}
	data.Digest = templates.Digest(templates.Render(template, data))
	return []step.Step{step.Apply{What: "flannel", API: c.AnyAPI(), Objects: templates.Render(template, data)}}
}

// Addresses starts flannel again on nodes whose addresses have changed.
func Addresses(c *cluster.Cluster) step.Step {
	const publicIP = "flannel.alpha.coreos.com/public-ip" // see github.com/flannel-io/flannel/blob/master/Documentation/kubernetes.md
	noted := c.ByFamily(publicIP, publicIP+"v6")
	return step.NodeAddresses{
		Of: c.NodeIPs(), Plugin: "flannel", Namespace: "kube-flannel", Label: "app", Value: "flannel", Annotation: noted, Chosen: noted[0] + "-overwrite", API: c.AnyAPI(),
	}
}

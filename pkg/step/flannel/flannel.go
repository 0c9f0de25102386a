// Package flannel holds the step that installs the network plugin flannel.
package flannel

import (
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
)

// Objects installs flannel.
func Objects(c *cluster.Cluster) step.Step {
	const template = "flannel/flannel"
	data := struct {
		PodCIDR, Backend, Image, CNIImage, Digest, APIHost string
		APIPort                                            int
		NFTables                                           bool
	}{
		PodCIDR: c.Spec.Network.PodCIDR, Backend: c.Spec.Network.Flannel.Backend, Image: c.Image("flannel"), CNIImage: c.Image("flannel-cni"),
		APIHost: c.Spec.LoadBalancer.Domain, APIPort: c.Spec.LoadBalancer.Port, NFTables: c.ProxyMode() == v1alpha1.ProxyNFTables,
	}
	data.Digest = templates.Digest(templates.Render(template, data))
	return step.Apply{What: "flannel", API: c.AnyAPI(), Objects: templates.Render(template, data)}
}

package plugin

import (
	"cmp"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

var calico = Network{
	Plugin: Plugin{
		Name: v1alpha1.PluginCalico,
		Parts: []Component{
			{Name: "calico-node", Version: "v3.28.5", Image: "docker.io/calico/node:v{version}"},
			{Name: "calico-cni", Image: "docker.io/calico/cni:v{version}"},
			{Name: "calico-kube-controllers", Image: "docker.io/calico/kube-controllers:v{version}"},
			{Name: "calico-typha", Image: "docker.io/calico/typha:v{version}"},
			// Nothing with a SHA-256 is beside it: the versions that can be had are those of pkg/resource/pins.json.
			{Name: CalicoCRDs, Base: "https://raw.githubusercontent.com/projectcalico/calico/v{version}/manifests/", File: "crds.yaml"},
		},
		Together: true,
		Version: Field{"spec.network.calico.version", func(s *v1alpha1.Spec) *string {
			if s.Network.Calico == nil {
				return nil
			}
			return &s.Network.Calico.Version
		}},
		Section: &Section{
			Path: "spec.network.calico", Only: "is only for plugin calico",
			Given: func(s *v1alpha1.Spec) bool { return s.Network.Calico != nil },
		},
		Default: func(s *v1alpha1.Spec) {
			c := cmp.Or(s.Network.Calico, &v1alpha1.Calico{})
			c.Encapsulation, c.BlockSize = cmp.Or(c.Encapsulation, "VXLANCrossSubnet"), cmp.Or(c.BlockSize, 26)
			s.Network.Calico = c
		},
		Left: Left{
			Mounts:   []string{"/run/calico/*"},
			Links:    []string{"vxlan.calico", "vxlan-v6.calico", "cali???????????"},
			Chains:   []string{"cali-"},
			Comments: []string{"cali:.*"},
			Tables:   []string{"calico"},
			Sets:     []string{"cali"},
			Paths: []string{
				"/run/calico", "/var/lib/calico", "/var/log/calico", "/etc/cni/net.d/10-calico.conflist", "/etc/cni/net.d/10-calico.installed",
				"/etc/cni/net.d/calico-kubeconfig", "/opt/cni/bin/calico", "/opt/cni/bin/calico-ipam",
			},
		},
	},
	Namespace: "calico-system",
	Ready: `{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: calico-system, name: calico-node}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: calico-system, name: calico-kube-controllers}}`,
	Asks: "/etc/cni/net.d/10-calico.conflist",
	Kernel: func(s *v1alpha1.Spec) []string {
		kernel := []string{"ip_set"}
		if strings.HasPrefix(s.Network.Calico.Encapsulation, "VXLAN") {
			kernel = append(kernel, "vxlan")
		}
		return kernel
	},
}

// CalicoCRDs is the part of Calico with the definitions of its kinds of objects.
const CalicoCRDs = "calico-crds"

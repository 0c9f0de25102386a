package plugin

import "github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"

var flannel = Network{
	Plugin: Plugin{
		Name: v1alpha1.PluginFlannel,
		Parts: []Component{
			{Name: "flannel", Version: "v0.28.9", Image: "ghcr.io/flannel-io/flannel:v{version}"},
			{Name: "flannel-cni", Version: "v1.9.1-flannel3", Image: "ghcr.io/flannel-io/flannel-cni-plugin:v{version}"},
		},
		Version: Field{"spec.network.flannel.version", func(s *v1alpha1.Spec) *string { return &s.Network.Flannel.Version }},
		Left: Left{
			Mounts:   []string{"/run/flannel/*"},
			Links:    []string{"flannel.1", "flannel-v6.1"},
			Chains:   []string{"FLANNEL-"},
			Comments: []string{"flanneld (forward|masq)"},
			Tables:   []string{"flannel-ipv[46]"},
			Paths:    []string{"/run/flannel", "/etc/cni/net.d/10-flannel.conflist", "/opt/cni/bin/flannel"},
		},
	},
	Namespace: "kube-flannel",
	Ready:     "{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: kube-flannel, name: kube-flannel-ds}}",
	Kernel: func(s *v1alpha1.Spec) []string {
		if s.Network.Flannel.Backend != "vxlan" {
			return nil
		}
		return []string{"vxlan"}
	},
}

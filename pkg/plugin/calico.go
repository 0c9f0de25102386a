package plugin

import (
	"cmp"
	"net/netip"
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
			Given: func(s *v1alpha1.Spec) bool { return s.Network.Calico != nil }, Check: checkCalico,
		},
		Default: func(s *v1alpha1.Spec) {
			c := cmp.Or(s.Network.Calico, &v1alpha1.Calico{})
			c.Encapsulation, c.BlockSize = cmp.Or(c.Encapsulation, "VXLANCrossSubnet"), cmp.Or(c.BlockSize, 26)
			s.Network.Calico = c
		},
		Left: Left{
			Mounts:   []string{"/run/calico/*"},
			Links:    []string{"vxlan.calico", "vxlan-v6.calico", "wireguard.cali", "wg-v6.cali", "bpfin.cali", "bpfout.cali", "cali???????????", "bwp????????????"},
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
	Conf: "/etc/cni/net.d/10-calico.conflist",
	Kernel: func(s *v1alpha1.Spec) []string {
		kernel := []string{"ip_set"}
		if strings.HasPrefix(s.Network.Calico.Encapsulation, "VXLAN") {
			kernel = append(kernel, "vxlan")
		}
		return kernel
	},
}

func checkCalico(s *v1alpha1.Spec, k Checker) {
	const path = "spec.network.calico"
	c := s.Network.Calico
	for _, cidr := range s.Network.PodCIDRs() {
		pods, err := netip.ParsePrefix(cidr)
		if err != nil || !pods.Addr().Is4() { // what is none is said elsewhere
			continue
		}
		if more := c.BlockSize - pods.Bits(); more < 0 || more < 31 && 1<<more < len(s.Hosts) {
			k.Fail(path+".blockSize", c.BlockSize, "podCIDR has fewer blocks of this size than there are hosts")
		}
	}
	for _, field := range []string{"bpfEnabled", "healthEnabled", "healthHost", "healthPort"} {
		if value, given := c.Felix[field]; given {
			k.Fail(path+".felix."+field, value, "is what kubexm's manifest relies on")
		}
	}
}

// CalicoCRDs is the part of Calico with the definitions of its kinds of objects.
const CalicoCRDs = "calico-crds"

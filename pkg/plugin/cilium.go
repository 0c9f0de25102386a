package plugin

import (
	"cmp"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

var cilium = Network{
	Plugin: Plugin{
		Name: v1alpha1.PluginCilium,
		Parts: []Component{
			{Name: "cilium", Version: "v1.20.2", Image: "quay.io/cilium/cilium:v{version}"},
			{Name: "cilium-operator", Image: "quay.io/cilium/operator-generic:v{version}"},
			{Name: CiliumChart, Base: "https://helm.cilium.io/", File: "cilium-{version}.tgz", Sums: "index.yaml"},
		},
		Together: true,
		Version: Field{"spec.network.cilium.version", func(s *v1alpha1.Spec) *string {
			if s.Network.Cilium == nil {
				return nil
			}
			return &s.Network.Cilium.Version
		}},
		Section: &Section{
			Path: "spec.network.cilium", Only: "is only for plugin cilium",
			Given: func(s *v1alpha1.Spec) bool { return s.Network.Cilium != nil }, Check: checkCilium,
		},
		Default: func(s *v1alpha1.Spec) { s.Network.Cilium = cmp.Or(s.Network.Cilium, &v1alpha1.Cilium{}) },
		Left: Left{
			Mounts:  []string{"/run/cilium/cgroupv2"},
			Links:   []string{"cilium_host", "cilium_net", "cilium_vxlan", "cilium_geneve", "cilium_wg0", "lxc_health", "lxc????????????"},
			Chains:  []string{"CILIUM_", "OLD_CILIUM_"},
			Sets:    []string{"cilium_"},
			Rules:   []string{`9:\s.* fwmark 0x200/0xf00 lookup 2004`, `10:\s.* fwmark 0xa00/0xf00 lookup 2005`, `100:\s.* lookup local`}, // it moves the last one there
			Filters: []string{"cil_"},
			Pins:    []string{"/sys/fs/bpf/cilium", "/sys/fs/bpf/tc/globals/cilium_*"},
			Paths: []string{
				"/run/cilium", "/var/lib/cilium", "/etc/cni/net.d/05-cilium.conflist", "/opt/cni/bin/cilium-cni", "/etc/sysctl.d/99-zzz-override_cilium.conf",
			},
			Empty: []string{"/sys/fs/bpf/tc/globals", "/sys/fs/bpf/tc"},
		},
	},
	Namespace: "kube-system",
	Ready: `{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: kube-system, name: cilium}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kube-system, name: cilium-operator}}`,
	Services: true,
	// See github.com/cilium/cilium/blob/main/pkg/datapath/loader/base.go. It also forbids BPF to ordinary users, which nobody can allow again before the next boot.
	Sysctl: map[string]string{"net.ipv4.conf.all.rp_filter": "0", "net.ipv4.fib_multipath_use_neigh": "1", "kernel.timer_migration": "0"},
	Kernel: func(s *v1alpha1.Spec) []string {
		if v := s.Network.Cilium.Values; v["routingMode"] == "native" || v["tunnelProtocol"] == "geneve" {
			return nil
		}
		return []string{"vxlan"}
	},
	Least: "5.10", // see github.com/cilium/cilium/blob/main/Documentation/operations/system_requirements.rst; Red Hat's 4.18 of 8.10 has what it needs
}

func checkCilium(s *v1alpha1.Spec, k Checker) {
	for _, value := range []string{"ipam", "k8sServiceHost", "k8sServicePort", "kubeProxyReplacement"} {
		if given, is := s.Network.Cilium.Values[value]; is {
			k.Fail("spec.network.cilium.values."+value, given, "follows from the rest of the configuration")
		}
	}
}

// CiliumChart is the part of Cilium with the templates of its objects.
const CiliumChart = "cilium-chart"

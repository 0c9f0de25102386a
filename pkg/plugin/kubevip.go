package plugin

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

var kubeVIP = VIP{
	Plugin: Plugin{
		Name: v1alpha1.BalancerKubeVIP, Unit: "kube-vip",
		Parts: []Component{{Name: "kube-vip", Version: "v1.2.2", Image: "ghcr.io/kube-vip/kube-vip:v{version}"}},
		Section: &Section{
			Path: "spec.loadBalancer.kubeVip", Only: "only with a load balancer of mode kube-vip",
			Given: func(s *v1alpha1.Spec) bool { return s.LoadBalancer.KubeVIP != nil }, Check: checkKubeVIP,
		},
		Default: func(s *v1alpha1.Spec) {
			k := cmp.Or(s.LoadBalancer.KubeVIP, &v1alpha1.KubeVIP{})
			k.Mode, s.LoadBalancer.KubeVIP = cmp.Or(k.Mode, "arp"), k
		},
	},
	Mode: v1alpha1.BalancerKubeVIP, Role: v1alpha1.RoleMaster, Pod: true, Lease: "plndr-cp-lock",
	Interface: Field{"spec.loadBalancer.kubeVip.interface", func(s *v1alpha1.Spec) *string { return &s.LoadBalancer.KubeVIP.Interface }},
	Holds:     func(s *v1alpha1.Spec) bool { return s.LoadBalancer.KubeVIP.Mode == "arp" },
}

func checkKubeVIP(s *v1alpha1.Spec, k Checker) {
	const path = "spec.loadBalancer.kubeVip"
	v := s.LoadBalancer.KubeVIP
	if v.Mode == "bgp" && (v.ASN == 0 || len(v.Peers) == 0) {
		k.Fail(path, "", "mode bgp needs asn and peers")
	}
	if v.Mode == "bgp" && strings.Contains(s.LoadBalancer.VIP, ":") {
		k.Fail(path+".mode", v.Mode, "is for IPv4: a speaker of BGP is known by an IPv4 address")
	}
	k.Interface(path+".interface", v.Interface)
	for i, p := range v.Peers {
		k.IP(fmt.Sprintf("%s.peers[%d].address", path, i), p.Address)
	}
}

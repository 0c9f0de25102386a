package config

import (
	"cmp"
	"reflect"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// Defaults where addresses are of IPv6; those of IPv4 are in the tags of the fields. Pods cannot ask a DNS cache at a link-local address.
const (
	podsIPv6, servicesIPv6 = "fd69:10:233::/48", "fd69:10:232::/112"
	cacheIPv6              = "fd69:254:25::10"
)

// defaultNetworks chooses networks of the families that one of them, or else the first node, has.
func defaultNetworks(s *v1alpha1.Spec) {
	n, like := &s.Network, ""
	for i := range s.Hosts {
		if h := &s.Hosts[i]; h.Is(v1alpha1.RoleMaster) || h.Is(v1alpha1.RoleWorker) {
			like = h.InternalAddress
			break
		}
	}
	like = cmp.Or(n.PodCIDR, n.ServiceCIDR, like)
	if !strings.Contains(like, ":") {
		return
	}
	of := func(v4, v6 string) string {
		var all []string
		for one := range strings.SplitSeq(like, ",") {
			all = append(all, map[bool]string{true: v6, false: v4}[strings.Contains(one, ":")])
		}
		return strings.Join(all, ",")
	}
	var plain v1alpha1.Network
	setDefaults(reflect.ValueOf(&plain))
	n.PodCIDR, n.ServiceCIDR = cmp.Or(n.PodCIDR, of(plain.PodCIDR, podsIPv6)), cmp.Or(n.ServiceCIDR, of(plain.ServiceCIDR, servicesIPv6))
	s.Kubernetes.NodeCIDRMaskSizeIPv6 = cmp.Or(s.Kubernetes.NodeCIDRMaskSizeIPv6, 64)
	if strings.Contains(n.PodCIDRs()[0], ":") {
		s.DNS.NodeLocalDNS.IP = cmp.Or(s.DNS.NodeLocalDNS.IP, cacheIPv6)
	}
}

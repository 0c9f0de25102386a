package config

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/plugin"
)

// looksNumeric finds broken IP addresses that would pass as DNS names.
var looksNumeric = regexp.MustCompile(`^[0-9.]+$`)

// networks parses a network in its canonical form, or one of each family; none: there is an error.
func (k *checker) networks(path, value string) (all []netip.Prefix) {
	for text := range strings.SplitSeq(value, ",") {
		p, ok := k.network(path, text)
		if !ok {
			return nil
		}
		all = append(all, p)
	}
	if len(all) > 2 || len(all) == 2 && all[0].Addr().Is4() == all[1].Addr().Is4() {
		k.fail(path, value, "must be one network, or one of IPv4 and one of IPv6")
		return nil
	}
	return all
}

func (k *checker) network(path, value string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(value)
	switch {
	case err != nil:
		k.fail(path, value, "must be a network like 10.233.0.0/18 or fd00:10:233::/112, or one of each family with a comma between them")
	case p != p.Masked():
		k.errs = append(k.errs, Error{Path: path, Value: value, Msg: "has host bits set", Suggestion: p.Masked().String()})
	case p.String() != value:
		k.errs = append(k.errs, Error{Path: path, Value: value, Msg: notShortest, Suggestion: p.String()})
	default:
		for _, r := range reserved {
			if net := netip.MustParsePrefix(r.net); p.Overlaps(net) {
				k.fail(path, value, "holds %s addresses (%s)", r.what, net)
				return p, false
			}
		}
		return p, true
	}
	return netip.Prefix{}, false
}

// reserved are networks whose addresses no pod, no service and no machine can have (RFC 6890).
var reserved = []struct{ net, what string }{
	{"0.0.0.0/8", "this host's own"},
	{"127.0.0.0/8", "loopback"},
	{"169.254.0.0/16", "link-local"},
	{"224.0.0.0/4", "multicast"},
	{"240.0.0.0/4", "reserved"},
	{"::/127", "this host's own"},
	{"::ffff:0:0/96", "IPv4"},
	{"fe80::/10", "link-local"},
	{"ff00::/8", "multicast"},
}

func (k *checker) checkNetwork() {
	const podPath, servicePath = "spec.network.podCIDR", "spec.network.serviceCIDR"
	pods, services := k.networks(podPath, k.Network.PodCIDR), k.networks(servicePath, k.Network.ServiceCIDR)
	for _, p := range pods {
		for _, s := range services {
			if p.Overlaps(s) {
				k.fail(podPath, p, "overlaps serviceCIDR %s", s)
			}
		}
	}
	if pods != nil && services != nil && families(pods) != families(services) {
		k.fail(servicePath, k.Network.ServiceCIDR, "must have the families of podCIDR, in its order: %s", families(pods))
	}
	for _, s := range services { // The API server takes 20 bits at most; kubeadm wants the 10th address for DNS.
		if bits := s.Addr().BitLen(); s.Bits() < bits-20 || s.Bits() > bits-4 {
			k.fail(servicePath, s, "must be between /%d and /%d", bits-20, bits-4)
		}
	}
	for _, p := range pods {
		k.checkNodeNetworks(p)
	}
	inside := func(path, address string) {
		ip, err := netip.ParseAddr(address)
		if err != nil {
			return
		}
		for i, what := range []string{"pods", "services"} {
			for _, net := range [][]netip.Prefix{pods, services}[i] {
				if net.Contains(ip) {
					k.fail(path, address, "is in the network of the %s %s (%s)", what, net, []string{podPath, servicePath}[i])
				}
			}
		}
	}
	for i, h := range k.Hosts {
		inside(hostPath(i)+".address", h.Address)
		for _, ip := range h.IPs() {
			if ip != h.Address {
				inside(hostPath(i)+".internalAddress", ip)
			}
		}
		if pods != nil {
			k.checkFamilies(hostPath(i)+".internalAddress", &h, pods)
		}
	}
	inside("spec.loadBalancer.vip", k.LoadBalancer.VIP)
	inside("spec.dns.nodeLocalDNS.ip", k.DNS.NodeLocalDNS.IP)
	for _, primary := range []struct{ path, address string }{
		{"spec.loadBalancer.vip", k.LoadBalancer.VIP}, {"spec.dns.nodeLocalDNS.ip", k.DNS.NodeLocalDNS.IP},
	} {
		if ip, err := netip.ParseAddr(primary.address); err == nil && pods != nil && ip.Is4() != pods[0].Addr().Is4() {
			k.fail(primary.path, primary.address, "must be an %s address, as the first podCIDR is", family(pods[0].Addr()))
		}
	}
}

// checkFamilies looks whether a host has addresses of the families that the networks of pods and services have: a node of each, others of the first at least.
func (k *checker) checkFamilies(path string, h *v1alpha1.Host, pods []netip.Prefix) {
	var is []netip.Prefix
	for _, text := range h.IPs() {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return // which is said elsewhere
		}
		is = append(is, netip.PrefixFrom(ip, 0))
	}
	want, have := families(pods), families(is)
	switch node := h.Is(v1alpha1.RoleMaster) || h.Is(v1alpha1.RoleWorker); {
	case len(pods) == 1 && have != want:
		k.fail(path, h.InternalAddress, "must be one %s address, as podCIDR %s is of that family", want, pods[0])
	case node && have != want:
		k.fail(path, h.InternalAddress, "must be an address of each family of podCIDR, in its order: %s", want)
	case !strings.HasPrefix(want, have):
		k.fail(path, h.InternalAddress, "must begin with an %s address, as podCIDR does", family(pods[0].Addr()))
	}
}

// families are those of networks, in order: "IPv4,IPv6".
func families(all []netip.Prefix) string {
	var names []string
	for _, p := range all {
		names = append(names, family(p.Addr()))
	}
	return strings.Join(names, ",")
}

func family(ip netip.Addr) string {
	if ip.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// checkNodeNetworks checks that every node gets its share of a network of the pods
// and that its pods fit in it.
func (k *checker) checkNodeNetworks(pods netip.Prefix) {
	path, size, most := "spec.kubernetes.nodeCidrMaskSize", k.Kubernetes.NodeCIDRMaskSize, 30
	if !pods.Addr().Is4() {
		path, size, most = "spec.kubernetes.nodeCidrMaskSizeIPv6", k.Kubernetes.NodeCIDRMaskSizeIPv6, 120
	}
	bits := size - pods.Bits()
	if bits < 0 || bits > 16 { // kube-controller-manager's limit
		k.fail(path, size, "must be between %d and %d with podCIDR %s", pods.Bits(), min(pods.Bits()+16, most), pods)
		return
	}
	if n := len(k.Hosts); n > 1<<bits {
		k.fail(path, size, "podCIDR %s holds networks for %d nodes, there are %d hosts", pods, 1<<bits, n)
	}
	if room := 1<<min(pods.Addr().BitLen()-size, 31) - 2; room < k.Kubernetes.MaxPods {
		k.warn(path, size, "holds %d pods, less than maxPods %d", room, k.Kubernetes.MaxPods)
	}
}

func (k *checker) checkDNS() {
	taken := map[string]bool{k.Kubernetes.DNSDomain: true, "in-addr.arpa": true, "ip6.arpa": true, ".": true}
	for i, server := range k.DNS.CoreDNS.Upstream {
		k.server(fmt.Sprintf("spec.dns.coredns.upstream[%d]", i), server)
	}
	for i, z := range k.DNS.CoreDNS.ExternalZones {
		path := fmt.Sprintf("spec.dns.coredns.externalZones[%d]", i)
		for j, zone := range z.Zones {
			at := fmt.Sprintf("%s.zones[%d]", path, j)
			if k.domain(at, zone); taken[zone] {
				k.fail(at, zone, "is resolved by the cluster's DNS server already, or by another zone")
			}
			taken[zone] = true
		}
		for j, server := range z.Nameservers {
			k.server(fmt.Sprintf("%s.nameservers[%d]", path, j), server)
		}
	}
	if ip := k.DNS.NodeLocalDNS.IP; ip != "" {
		a, err := netip.ParseAddr(ip)
		if ok := a.Is4() && a.IsLinkLocalUnicast() || a.Is6() && a.IsPrivate() && a.String() == ip; err != nil || !ok || ip == "169.254.169.254" { // which clouds have for metadata
			k.fail("spec.dns.nodeLocalDNS.ip", ip, "must be a free address: link-local like 169.254.25.10, or of fd00::/8 like %s", cacheIPv6)
		}
	}
}

func (k *checker) domain(path, value string) {
	if len(validation.IsDNS1123Subdomain(value)) > 0 {
		k.fail(path, value, "must be a DNS name: small letters, digits, - and .")
	}
}

// server checks a name server: an IP address, optionally with a port.
func (k *checker) server(path, value string) {
	if isIP(value) {
		return
	}
	host, port, err := net.SplitHostPort(value)
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || !isIP(host) || portErr != nil || n == 0 {
		k.fail(path, value, "must be an IP address, optionally with :port")
	}
}

// takenPorts are those of sshd, etcd, kubelet, kube-proxy, controller-manager and scheduler.
var takenPorts = []int{22, 2379, 2380, 2381, 10248, 10249, 10250, 10256, 10257, 10259}

func (k *checker) checkLoadBalancer() {
	const path = "spec.loadBalancer"
	lb := k.LoadBalancer
	k.domain(path+".domain", lb.Domain)
	if slices.Contains(takenPorts, lb.Port) {
		k.fail(path+".port", lb.Port, "is used on masters by sshd, etcd or Kubernetes itself; take another, like 6443")
	}
	enabled := lb.Enabled != nil && *lb.Enabled
	if enabled && len(k.masters) == 1 {
		k.fail(path+".enabled", true, "must be false with one master: there is nothing to balance")
	}
	for i, h := range k.Hosts {
		if lb.Domain == h.Name {
			k.fail(path+".domain", lb.Domain, "is the name of a host (%s)", hostPath(i))
		}
		if lb.VIP != "" && (lb.VIP == h.Address || slices.Contains(h.IPs(), lb.VIP)) {
			k.fail(path+".vip", lb.VIP, "is the address of %s (%s); it must be a free one", h.Name, hostPath(i))
		}
	}
	if lb.VIP != "" {
		k.IP(path+".vip", lb.VIP)
	}
	k.checkBalancerSections(enabled)
	k.checkBalancerHosts(enabled && lb.Mode == v1alpha1.BalancerExternal && lb.External.Type != v1alpha1.ExternalOwn)
	if !enabled {
		return
	}
	if lb.VIP == "" && lb.Mode != v1alpha1.BalancerInternal {
		k.fail(path+".vip", "", "required with mode %s", lb.Mode)
	}
}

// checkBalancerHosts looks at the hosts that have the role loadbalancer: whether there
// are to be any, and whether they have the port free.
func (k *checker) checkBalancerHosts(needed bool) {
	hosts, path := hostsWith(k.Spec, v1alpha1.RoleLoadBalancer), k.rolePath(v1alpha1.RoleLoadBalancer)
	switch {
	case needed && len(hosts) == 0:
		k.fail(path, "", "no host has the role loadbalancer, which mode external needs")
	case needed && len(hosts) == 1:
		k.warn(path, hosts[0], "one load balancer survives no failure; use 2")
	case !needed && len(hosts) > 0:
		k.warn(path, hosts[0], "idle: the role loadbalancer is for mode external with type kubexm-kh or kubexm-kn")
	}
	for i, h := range k.Hosts {
		if h.Is(v1alpha1.RoleLoadBalancer) && len(h.Roles) > 1 {
			k.fail(hostPath(i)+".roles", h.Name, "a load balancer has no other role: API servers and proxies listen on one port, %d", k.LoadBalancer.Port)
		}
	}
}

// checkBalancerSections refuses what another mode would act on.
func (k *checker) checkBalancerSections(enabled bool) {
	const path = "spec.loadBalancer"
	lb := k.LoadBalancer
	var modes []string // with a virtual address
	for _, v := range plugin.VIPs() {
		modes = append(modes, v.Mode)
	}
	for _, section := range []struct {
		name  string
		given bool
		modes string
	}{
		{"internal", lb.Internal != nil, v1alpha1.BalancerInternal},
		{"external", lb.External != nil, v1alpha1.BalancerExternal},
		{"vip", lb.VIP != "", strings.Join(modes, " or ")},
	} {
		switch {
		case section.given && !enabled && len(k.masters) == 1:
			k.fail(path+"."+section.name, "", "there is no load balancer with one master")
		case section.given && (!enabled || !slices.Contains(strings.Split(section.modes, " or "), lb.Mode)):
			k.fail(path+"."+section.name, "", "only with a load balancer of mode %s", section.modes)
		}
	}
}

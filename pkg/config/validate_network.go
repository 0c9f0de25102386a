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

// network parses an IPv4 network in its canonical form.
func (k *checker) network(path, value string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(value)
	switch {
	case err != nil || !p.Addr().Is4():
		k.fail(path, value, "must be an IPv4 network like 10.233.0.0/18")
	case p != p.Masked():
		k.errs = append(k.errs, Error{Path: path, Value: value, Msg: "has host bits set", Suggestion: p.Masked().String()})
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
}

func (k *checker) checkNetwork() {
	const podPath, servicePath = "spec.network.podCIDR", "spec.network.serviceCIDR"
	pods, podsOK := k.network(podPath, k.Network.PodCIDR)
	services, servicesOK := k.network(servicePath, k.Network.ServiceCIDR)
	if podsOK && servicesOK && pods.Overlaps(services) {
		k.fail(podPath, pods, "overlaps serviceCIDR %s", services)
	}
	// The API server takes 20 bits at most; kubeadm wants the 10th address for DNS.
	if servicesOK && (services.Bits() < 12 || services.Bits() > 28) {
		k.fail(servicePath, services, "must be between /12 and /28")
	}
	if podsOK {
		k.checkNodeNetworks(pods)
	}
	inside := func(path, address string) {
		ip, err := netip.ParseAddr(address)
		if err != nil {
			return
		}
		if podsOK && pods.Contains(ip) {
			k.fail(path, address, "is in the network of the pods %s (%s)", pods, podPath)
		}
		if servicesOK && services.Contains(ip) {
			k.fail(path, address, "is in the network of the services %s (%s)", services, servicePath)
		}
	}
	for i, h := range k.Hosts {
		inside(hostPath(i)+".address", h.Address)
		if h.InternalAddress != h.Address {
			inside(hostPath(i)+".internalAddress", h.InternalAddress)
		}
	}
	inside("spec.loadBalancer.vip", k.LoadBalancer.VIP)
	inside("spec.dns.nodeLocalDNS.ip", k.DNS.NodeLocalDNS.IP)
}

// checkNodeNetworks checks that every node gets its share of the pods' network
// and that its pods fit in it.
func (k *checker) checkNodeNetworks(pods netip.Prefix) {
	const path = "spec.kubernetes.nodeCidrMaskSize"
	size := k.Kubernetes.NodeCIDRMaskSize
	bits := size - pods.Bits()
	if bits < 0 || bits > 16 { // kube-controller-manager's limit
		k.fail(path, size, "must be between %d and %d with podCIDR %s", pods.Bits(), min(pods.Bits()+16, 30), pods)
		return
	}
	if n := len(k.Hosts); n > 1<<bits {
		k.fail(path, size, "podCIDR %s holds networks for %d nodes, there are %d hosts", pods, 1<<bits, n)
	}
	if room := 1<<(32-size) - 2; room < k.Kubernetes.MaxPods {
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
		if a, err := netip.ParseAddr(ip); err != nil || !a.Is4() || !a.IsLinkLocalUnicast() || ip == "169.254.169.254" { // which clouds have for metadata
			k.fail("spec.dns.nodeLocalDNS.ip", ip, "must be a free link-local IPv4 address like 169.254.25.10")
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
		if lb.VIP != "" && (lb.VIP == h.Address || lb.VIP == h.InternalAddress) {
			k.fail(path+".vip", lb.VIP, "is the address of %s (%s); it must be a free one", h.Name, hostPath(i))
		}
	}
	if ip, err := netip.ParseAddr(lb.VIP); lb.VIP != "" && (err != nil || !ip.Is4()) {
		k.fail(path+".vip", lb.VIP, "must be an IPv4 address")
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

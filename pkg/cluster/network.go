package cluster

import (
	"net/netip"
	"strings"
)

// IP is the address at which other hosts reach the host.
func (c *Cluster) IP(host string) string { return c.Host(host).IP() }

// NodeIPs are the addresses of nodes, by name, one of each family.
func (c *Cluster) NodeIPs() map[string][]string {
	all := map[string][]string{}
	for _, n := range c.Nodes() {
		all[n] = c.Host(n).IPs()
	}
	return all
}

// IPv6 reports whether the primary addresses of the cluster are of IPv6: those of API servers, of members of etcd, of the DNS service.
func (c *Cluster) IPv6() bool { return strings.Contains(c.Spec.Network.PodCIDRs()[0], ":") }

// OwnIP is where a host reaches a proxy of its own. In IPv6 alone it is none of IPv4: a machine that has but that on its loopback finds no name that leads there
// (AI_ADDRCONFIG of getaddrinfo(3)).
func (c *Cluster) OwnIP() string {
	if c.IPv6() {
		return "::1"
	}
	return "127.0.0.1"
}

// DualStack reports whether pods and services have addresses of both families.
func (c *Cluster) DualStack() bool { return len(c.Spec.Network.PodCIDRs()) > 1 }

// PodCIDR is the network of the pods of a family, 4 or 6; empty: they have no addresses of it.
func (c *Cluster) PodCIDR(family int) string {
	for _, cidr := range c.Spec.Network.PodCIDRs() {
		if strings.Contains(cidr, ":") == (family == 6) {
			return cidr
		}
	}
	return ""
}

// ByFamily are the values that are for the families of addresses that nodes have, the primary one first.
func (c *Cluster) ByFamily(v4, v6 string) (all []string) {
	for _, cidr := range c.Spec.Network.PodCIDRs() {
		all = append(all, map[bool]string{false: v4, true: v6}[strings.Contains(cidr, ":")])
	}
	return all
}

// DNSIP is the address of the cluster's DNS service: the tenth of the primary service
// network, as kubeadm has it.
func (c *Cluster) DNSIP() string {
	ip := c.ServiceNets()[0].Addr()
	for range 10 {
		ip = ip.Next()
	}
	return ip.String()
}

// ServiceNets are the networks of the services, the primary one first.
func (c *Cluster) ServiceNets() (all []netip.Prefix) {
	for _, cidr := range c.Spec.Network.ServiceCIDRs() {
		p, err := netip.ParsePrefix(cidr)
		c.Check(err)
		all = append(all, p.Masked())
	}
	return all
}

package preflight

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
)

// Checks whose facts are asked for apart: hosts try ports of each other, and let kubexm listen on their loopback.
const (
	Reachability = "reachability"
	Forwarding   = "forwarding"
)

// Forwards reports whether kubexm listens on a host while it brings images there.
func Forwards(c *cluster.Cluster, host string) bool {
	return plugin.RuntimeOf(c.Spec).Pulls && c.RegistryHost() == "" && slices.Contains(c.Nodes(), host)
}

// Etcd is the check of an external etcd, which is no host.
const Etcd = "external-etcd"

var networkChecks = []check{
	{"addresses", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		if f.Env["cluster"] != "" || !h.Is(v1alpha1.RoleEtcd) && !c.IsNode(h.Name) {
			return Finding{} // it works somehow, or nothing listens at that address alone
		}
		var lacks []string
		for _, ip := range h.IPs() {
			if !f.HasAddress(ip) {
				lacks = append(lacks, ip)
			}
		}
		if lacks == nil {
			return strayAddresses(c, h, f)
		}
		return Finding{
			Found: "no network interface has " + strings.Join(lacks, ", "), Needed: "the addresses at which other hosts reach it",
			Fix: "give those that it has (ip addr) as spec.hosts[].internalAddress, or add these to an interface",
		}
	}},
	{"vip", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		vip := c.Spec.LoadBalancer.VIP
		if sharesVIP(c, h) && !slices.ContainsFunc(f.Interfaces, func(i runner.Interface) bool {
			return slices.ContainsFunc(i.Addresses, func(a string) bool {
				return addr(a) == h.IP() && (prefix(a).IsSingleIP() || prefix(a).Contains(netip.MustParseAddr(vip))) // DHCPv6 tells no network
			})
		}) {
			return Finding{
				Found: fmt.Sprintf("%s is not in the subnet of %s", vip, h.IP()), Needed: "a virtual address that the host's network delivers to it",
				Fix: "choose a free address of that subnet for spec.loadBalancer.vip",
			}
		}
		if vip != "" && f.Env["cluster"] == "" && slices.ContainsFunc(f.Interfaces, func(i runner.Interface) bool {
			return slices.ContainsFunc(i.Addresses, func(a string) bool { return addr(a) == vip })
		}) {
			return Finding{Found: vip + " is an address of the host", Needed: "an unused address", Fix: "choose another spec.loadBalancer.vip, or remove the address from the host"}
		}
		if why, tried := f.Tried[vipAddress(c, h.Name)]; tried && why == "" {
			return Finding{
				Found: vip + " answers: another machine already has it, perhaps of another cluster", Needed: "an unused address",
				Fix: "choose another spec.loadBalancer.vip, or remove the address from that machine (ip neigh show " + vip + " shows its MAC address)",
			}
		}
		return Finding{}
	}},
	{"load-balancer", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		proxy, vip := plugin.ProxyOf(c.Spec).Name, plugin.VIPOf(c.Spec)
		programs := proxy
		if c.Balances(h) {
			programs += " and " + vip.Name
		} else if c.Kubeadm() || c.EndpointIP(h.Name) != c.OwnIP() {
			return Finding{} // ours is a static pod, or none
		}
		if f.Env["cluster"] != "" || proxy == "" {
			return Finding{} // ours runs there, or none is to
		}
		found := Finding{
			Needed: "a machine on which only this cluster uses " + programs,
			Fix:    "use another machine, or remove what they serve there: kubexm would replace their configuration",
		}
		var runs []string
		for _, port := range slices.Sorted(maps.Keys(f.Listening)) {
			if f.Listening[port] == proxy {
				runs = append(runs, fmt.Sprintf("%s on port %d", proxy, port))
			}
		}
		if c.Balances(h) && f.Runs(vip.Unit) {
			runs = append(runs, vip.Name)
		}
		if runs != nil {
			found.Found = "somebody's " + strings.Join(runs, ", ")
		}
		return found
	}},
	{"resolv-conf", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		_, chosen := c.Spec.Kubernetes.Kubelet.Config["resolvConf"]
		if !c.IsNode(h.Name) || chosen || len(c.Spec.DNS.CoreDNS.Upstream) > 0 || len(c.Spec.Extra.Resolves) > 0 {
			return Finding{} // pods get their servers from elsewhere
		}
		found := Finding{Needed: "a name server that pods can reach, too", Fix: "name one in /etc/resolv.conf, or set spec.dns.coredns.upstream"}
		switch {
		case len(f.NameServers) == 0:
			found.Found = "no name server in /etc/resolv.conf"
		// In a pod loopback is the pod: CoreDNS would ask itself, see it and end. Of
		// systemd-resolved the kubelet knows where the real ones stand.
		case !f.Features[runner.FeatureResolved] && !slices.ContainsFunc(f.NameServers, func(s string) bool { return !isLoopback(s) }):
			found.Found = "only " + strings.Join(f.NameServers, ", ") + " in /etc/resolv.conf"
		}
		return found
	}},
	{"name-servers", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		var why []string
		for _, a := range nameServers(c, h.Name) {
			if f.Tried[a] == "" { // it answers, or that is not known
				return Finding{}
			}
			server, _, _ := net.SplitHostPort(a)
			why = append(why, server+" ("+f.Tried[a]+")")
		}
		if why == nil {
			return Finding{}
		}
		return warning(Finding{
			Found: "no name server can be reached: " + strings.Join(why, ", "), Needed: "one that answers",
			Fix: "correct /etc/resolv.conf, or set spec.extra.resolves; where there is none, names outside the cluster are unknown to its pods",
		})
	}},
	{"routes", func(c *cluster.Cluster, _ *v1alpha1.Host, f *runner.Facts) Finding {
		if f.Env["cluster"] != "" {
			return Finding{} // the pods' own
		}
		var taken, wide []string
		for _, r := range f.Routes {
			to := prefix(r.To)
			for _, own := range ownNetworks(c) {
				text := fmt.Sprintf("route to %s (%s) overlaps %s", r.To, r.Dev, own)
				switch {
				case to.Bits() <= 1 || !to.Overlaps(prefix(own)): // the default route, in two halves too, is for all else
				case to.Bits() < prefix(own).Bits():
					wide = append(wide, text)
				default:
					taken = append(taken, text)
				}
			}
		}
		found := Finding{Needed: "networks that nothing else uses", Fix: "choose another spec.network.podCIDR or serviceCIDR, or remove the route"}
		if taken == nil { // the cluster's narrower routes win: only what is in both is lost
			found.Found = strings.Join(wide, "; ")
			return warning(found)
		}
		found.Found = strings.Join(taken, "; ")
		return found
	}},
	{"proxy", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		if !f.Proxied {
			return Finding{}
		}
		direct := append(ownNetworks(c), internalAddresses(c)...)
		if h.Is(v1alpha1.RoleMaster) {
			direct = append(direct, etcdAddresses(c)...)
		}
		var lacks []string
		for _, to := range direct {
			if !bypassed(f.NoProxy, prefix(to)) {
				lacks = append(lacks, to)
			}
		}
		if lacks == nil {
			return Finding{}
		}
		// kubeadm hands its proxy on to the API server.
		return warning(Finding{
			Found: "a proxy is set, and no_proxy lacks " + strings.Join(lacks, ", "), Needed: "direct connections within the cluster",
			Fix: "add them to no_proxy where the proxy is set (/etc/environment)",
		})
	}},
	{Forwarding, func(c *cluster.Cluster, _ *v1alpha1.Host, f *runner.Facts) Finding {
		if f.Deaf == "" {
			return Finding{}
		}
		return Finding{
			Found: f.Deaf, Needed: "a port of the host's loopback that sshd forwards: " + plugin.RuntimeOf(c.Spec).Name + " takes images from registries alone, and kubexm is one",
			Fix: "set \"AllowTcpForwarding yes\" in sshd_config there and reload sshd, or give a host the role registry",
		}
	}},
	{Reachability, func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		ports := map[string][]string{} // by what came of them
		excused := true
		for _, l := range Links(c, h.Name) {
			if why := f.Tried[l.Address]; why != "" {
				ports[why] = append(ports[why], fmt.Sprintf("port %d of %s", l.Port, l.Host))
				excused = excused && len(f.Firewalls)+len(c.FactsOf(l.Host).Firewalls) > 0
			}
		}
		var each []string
		for _, why := range slices.Sorted(maps.Keys(ports)) {
			each = append(each, strings.Join(ports[why], ", ")+": "+why)
		}
		found := Finding{Found: strings.Join(each, "; "), Needed: "connections between hosts to these ports"}
		if excused { // the firewall that is a finding of its own may be all that it is
			found.Fix = "kubexm turns the hosts' firewalls off; look for others in the network (security groups)"
			return warning(found)
		}
		found.Fix = "allow them in all packet filters, of the hosts and of the network (security groups); check routes"
		return found
	}},
}

// strayAddresses finds addresses of IPv6 from which a member of etcd may call others, instead of from the one that its certificate has: Linux sends from the
// address that a machine got last.
func strayAddresses(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
	own := slices.IndexFunc(f.Interfaces, func(i runner.Interface) bool { return i.Has(h.IP()) })
	if !c.IPv6() || !h.Is(v1alpha1.RoleEtcd) || len(c.All(v1alpha1.RoleEtcd)) == 1 || own < 0 {
		return Finding{}
	}
	var stray []string
	for _, a := range f.Interfaces[own].Addresses {
		if ip, err := netip.ParseAddr(addr(a)); err == nil && ip.Is6() && ip.IsGlobalUnicast() && addr(a) != h.IP() {
			stray = append(stray, addr(a))
		}
	}
	if stray == nil {
		return Finding{}
	}
	return warning(Finding{
		Found: "besides " + h.IP() + " there is " + strings.Join(stray, ", "), Needed: "no other address from which Linux may send: members of etcd refuse each other then",
		Fix: "turn off what makes it, like router advertisements (autoconf) and privacy addresses (use_tempaddr)",
	})
}

// prefix reads a network or an address; what is neither overlaps nothing.
func prefix(s string) netip.Prefix {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Masked()
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, a.BitLen())
}

// bypassed reports whether no_proxy, as programs in Go read it, has all of a network.
func bypassed(noProxy string, to netip.Prefix) bool {
	return slices.ContainsFunc(strings.Split(noProxy, ","), func(entry string) bool {
		entry = strings.TrimSpace(entry)
		p := prefix(entry)
		return entry == "*" || p.IsValid() && p.Bits() <= to.Bits() && p.Contains(to.Addr())
	})
}

// ownNetworks are those of pods and services.
func ownNetworks(c *cluster.Cluster) []string {
	return slices.Concat(c.Spec.Network.PodCIDRs(), c.Spec.Network.ServiceCIDRs())
}

func internalAddresses(c *cluster.Cluster) []string {
	var all []string
	for i := range c.Spec.Hosts {
		all = append(all, c.Spec.Hosts[i].IPs()...)
	}
	return all
}

// etcdAddresses are those of an external etcd, as far as its endpoints are no names.
func etcdAddresses(c *cluster.Cluster) (all []string) {
	if !c.ExternalEtcd() {
		return nil
	}
	for _, e := range c.Spec.Etcd.External.Endpoints {
		if u, err := url.Parse(e); err == nil && prefix(u.Hostname()).IsValid() && !slices.Contains(internalAddresses(c), u.Hostname()) {
			all = append(all, u.Hostname())
		}
	}
	return all
}

// Link is a TCP port of a host that another must reach.
type Link struct {
	Host    string
	Port    int
	Address string // where it is tried
}

// flows say who must reach which port of whom.
var flows = []struct {
	from, to []v1alpha1.Role
	port     func(*cluster.Cluster) int
	all      bool // at each address, where hosts have two
}{
	{from: roles("master worker loadbalancer"), to: roles("master"), port: (*cluster.Cluster).APIPort},
	{from: roles("worker"), to: roles("loadbalancer"), port: (*cluster.Cluster).APIPort},
	{from: roles("master etcd"), to: roles("etcd"), port: func(*cluster.Cluster) int { return 2379 }},
	{from: roles("etcd"), to: roles("etcd"), port: func(*cluster.Cluster) int { return 2380 }},
	{from: roles("master"), to: roles("master worker"), port: func(*cluster.Cluster) int { return 10250 }, all: true}, // kubelets: logs, exec
	{from: roles("master worker"), to: roles("registry"), port: (*cluster.Cluster).RegistryPort},
}

func roles(names string) (all []v1alpha1.Role) {
	for n := range strings.FieldsSeq(names) {
		all = append(all, v1alpha1.Role(n))
	}
	return all
}

// mostLinks is how many hosts one host tries for each of flows. Each begins
// elsewhere: three masters together try the kubelets of 150 nodes. Firewalls tell
// networks apart rather than machines, so that a part of more shows what is wrong.
const mostLinks = 50

// Links are the ports that a host must reach, and that are tried before anything is
// installed. What members of a cluster have of each other has long been tried.
func Links(c *cluster.Cluster, from string) []Link {
	var all []Link
	for _, flow := range flows {
		senders, targets := c.Hosts(flow.from...), c.Hosts(flow.to...)
		i := slices.Index(senders, from)
		if i < 0 {
			continue
		}
		first := i * len(targets) / len(senders)
		for n := range min(len(targets), mostLinks) {
			to := targets[(first+n)%len(targets)]
			tried := c.IsTouched(from) && c.IsTouched(to)
			if to == from || c.Facts[to] == nil || tried {
				continue
			}
			at := c.Host(to).IPs()
			if !flow.all {
				at = at[:1]
			}
			for _, ip := range at {
				all = append(all, Link{to, flow.port(c), net.JoinHostPort(ip, strconv.Itoa(flow.port(c)))})
			}
		}
	}
	return all
}

// Addresses are those that a host tries: of its links, and the virtual address that nobody may have yet.
func Addresses(c *cluster.Cluster, host string) (all []string) {
	for _, l := range Links(c, host) {
		all = append(all, l.Address)
	}
	if vip := vipAddress(c, host); vip != "" {
		all = append(all, vip)
	}
	return append(all, nameServers(c, host)...)
}

// nameServers are where a host that has not begun tries its name servers, at the port for long answers, which has the packets' way in common with
// the usual one. There are none where nobody asks them: the cluster has others, and packages are not downloaded.
func nameServers(c *cluster.Cluster, host string) (all []string) {
	if c.IsTouched(host) || c.Spec.Source.Offline && len(c.Spec.DNS.CoreDNS.Upstream) > 0 {
		return nil
	}
	for _, s := range c.FactsOf(host).NameServers {
		if !isLoopback(s) {
			all = append(all, net.JoinHostPort(s, "53"))
		}
	}
	return all
}

// vipAddress is where a host that is to hold the virtual address tries whether anybody has
// it yet; empty: it does not, or the cluster may have it.
func vipAddress(c *cluster.Cluster, host string) string {
	began := func(h string) bool { return sharesVIP(c, c.Host(h)) && c.IsTouched(h) }
	if !sharesVIP(c, c.Host(host)) || slices.ContainsFunc(c.All(), began) {
		return ""
	}
	return net.JoinHostPort(c.Spec.LoadBalancer.VIP, strconv.Itoa(c.APIPort()))
}

// sharesVIP reports whether the host may hold the virtual address on one of its interfaces.
func sharesVIP(c *cluster.Cluster, h *v1alpha1.Host) bool {
	vip := plugin.VIPOf(c.Spec)
	return h.Is(vip.Role) && vip.Holds(c.Spec)
}

// addr is the address of one with the length of its network: 10.0.0.11 of 10.0.0.11/24.
func addr(a string) string {
	ip, _, _ := strings.Cut(a, "/")
	return ip
}

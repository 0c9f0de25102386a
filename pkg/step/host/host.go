// Package host holds the steps that prepare a machine's operating system.
package host

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// Record notes on the host which cluster it belongs to: its name, and its ID, as
// names can be alike; and what kubexm makes there.
func Record(c *cluster.Cluster, host string) step.Step {
	text := "cluster=" + c.Name + "\nid=" + c.ID() + "\n"
	var has []string
	if f := c.Facts[host]; f != nil {
		has = f.Inventory
	}
	return step.Inventory{With: []step.File{{Path: runner.StateDir + "/env", Content: step.Content(text), Mode: 0o644}}, Has: has}
}

// Hosts keeps the names of all hosts, of the API endpoint, of the private registry and of the
// configuration's further hosts in /etc/hosts. The name of the endpoint stays where it leads, and a former name of it stays, until
// Endpoint turns them; so do several masters that a node asks itself. kubeadm joins
// a host through another master; when the file joined is there the name of the endpoint leads where it is to lead.
func Hosts(c *cluster.Cluster, host, joined string) step.Step {
	_, live := c.SplitNodes([]string{host})
	if at := c.LedTo(host); at != "" && (live != nil || !c.IsNode(host)) {
		if c.Detoured(host) {
			return detoured(c, host)
		}
		return hosts(c, at, c.FormerNames(host)...)
	}
	block := hosts(c, c.EndpointIP(host))
	if master := c.IP(c.AnyMaster()); c.Kubeadm() && c.IsNode(host) && c.EndpointIP(host) != master {
		block.Until, block.Meanwhile = joined, hostLines(c, master)
	}
	return block
}

// Endpoint lets the name of the endpoint lead where it is to lead on a host.
func Endpoint(c *cluster.Cluster, host string) step.Step { return hosts(c, c.EndpointIP(host)) }

// detour is the block of a host that asks masters itself.
type detour struct{ step.Block }

func (detour) String() string { return "straight to masters" }

// Writes is nothing that stays.
func (detour) Writes() ([]step.File, error) { return nil, nil }

// Detour lets it lead to masters: a client that one of them refuses goes on to the next.
func Detour(c *cluster.Cluster, host string) step.Step {
	return detour{detoured(c, host)}
}

func detoured(c *cluster.Cluster, host string) step.Block {
	return hosts(c, strings.Join(c.Detour(host), " "), c.FormerNames(host)...)
}

func hosts(c *cluster.Cluster, endpoint string, former ...string) step.Block {
	return step.Block{
		Depends: depends(c, former...), Path: "/etc/hosts", Begin: runner.HostsBegin, End: runner.HostsEnd, Mode: 0o644,
		Content: c.Shared(strings.Join(append([]string{"hosts", endpoint}, former...), " "), func() []byte { return hostLines(c, endpoint, former...) }),
	}
}

// depends are the names in /etc/hosts by which kubexm, and what it runs, reach something. Hosts are reached by their addresses.
func depends(c *cluster.Cluster, former ...string) []string {
	names := append([]string{c.Spec.LoadBalancer.Domain}, former...)
	if c.RegistryHost() != "" {
		names = append(names, c.RegistryDomain())
	}
	for _, e := range c.Spec.Extra.Hosts {
		names = append(names, e.Domain)
	}
	return names
}

// PodHosts turns the name of the endpoint in the copies of /etc/hosts that pods on the host's network have: the kubelet makes a
// copy when it starts a container. It is a file that is mounted, so that it is written in place, and no container restarts.
func PodHosts(c *cluster.Cluster, host, endpoint string) step.Step {
	return step.Command{
		What:   "pods know the API server",
		Inputs: runner.Inputs("NAME", c.Spec.LoadBalancer.Domain, "ADDRESS", endpoint), Script: script("pods"),
		Unless: `[ -z "$(stale)" ]`, Run: "renew",
	}
}

// hostLines are the lines of /etc/hosts. The endpoint may be several addresses with spaces between them.
func hostLines(c *cluster.Cluster, endpoint string, former ...string) []byte {
	var lines bytes.Buffer
	for i := range c.Spec.Hosts {
		h := &c.Spec.Hosts[i]
		for _, ip := range h.IPs() {
			fmt.Fprintf(&lines, "%s %s.%s.%s %s\n", ip, h.Name, c.Name, c.Spec.Kubernetes.DNSDomain, h.Name)
		}
	}
	for _, name := range append([]string{c.Spec.LoadBalancer.Domain}, former...) {
		for at := range strings.FieldsSeq(endpoint) {
			fmt.Fprintf(&lines, "%s %s\n", at, name)
		}
	}
	if registry := c.RegistryHost(); registry != "" {
		fmt.Fprintf(&lines, "%s %s\n", c.IP(registry), c.RegistryDomain())
	}
	for _, e := range c.Spec.Extra.Hosts {
		fmt.Fprintf(&lines, "%s %s\n", e.Address, e.Domain)
	}
	return lines.Bytes()
}

// SwapOff turns swap off now and in /etc/fstab; a kubelet does not start with it.
func SwapOff() step.Command {
	return step.Command{
		What: "swap off", Script: script("swap"),
		Unless: "is_off", Run: "turn_off", Undo: "turn_on",
		Makes: []string{"fstab /etc/fstab"},
	}
}

// Modules loads the kernel modules that Kubernetes needs, and the configuration's.
func Modules(c *cluster.Cluster) step.Step {
	names := []string{runner.FeatureOverlay, runner.FeatureBridgeNF}
	if c.ProxyMode() == "ipvs" {
		names = append(names, runner.FeatureIPVS, "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh")
	}
	for _, m := range c.Spec.System.Modules {
		if !slices.Contains(names, m) {
			names = append(names, m)
		}
	}
	return step.Modules{Path: "/etc/modules-load.d/kubexm.conf", Names: names}
}

// kernelParameters are those without which Kubernetes does not work well; docs/adr/0039 has the reason of each. The
// last five are what the kubelet itself sets and checks
// (k8s.io/component-helpers/node/util/sysctl); they stand here so that
// they are put back one day.
var kernelParameters = map[string]string{
	"net.ipv4.ip_forward":                "1",
	"net.bridge.bridge-nf-call-iptables": "1",
	"fs.inotify.max_user_instances":      "8192",
	"fs.inotify.max_user_watches":        "1048576",
	"vm.max_map_count":                   "1048576",
	"net.ipv4.neigh.default.gc_thresh1":  "512",
	"net.ipv4.neigh.default.gc_thresh2":  "2048",
	"net.ipv4.neigh.default.gc_thresh3":  "4096",
	"vm.overcommit_memory":               "1",
	"vm.panic_on_oom":                    "0",
	"kernel.panic":                       "10",
	"kernel.panic_on_oops":               "1",
	"kernel.keys.root_maxkeys":           "1000000",
	"kernel.keys.root_maxbytes":          "25000000",
}

// optionalParameters are those of them that a network namespace does not have, or a container may not set.
var optionalParameters = []string{"net.ipv4.neigh.default.gc_thresh1", "net.ipv4.neigh.default.gc_thresh2", "net.ipv4.neigh.default.gc_thresh3"}

// learned are the parameters by which a host keeps what it has learned from routers: a machine that is one itself forgets that, unless they are 2. Interfaces
// that pods bring learn nothing.
func learned(c *cluster.Cluster, host string) map[string]string {
	values, pods := map[string]string{}, netip.MustParsePrefix(c.PodCIDR(6))
	for _, i := range c.FactsOf(host).Interfaces {
		global := slices.ContainsFunc(i.Addresses, func(a string) bool {
			p, err := netip.ParsePrefix(a)
			return err == nil && p.Addr().Is6() && p.Addr().IsGlobalUnicast() && !pods.Contains(p.Addr())
		})
		name := "net.ipv6.conf." + i.Name + ".accept_ra"
		if strings.Contains(i.Name, ".") {
			name = "net/ipv6/conf/" + i.Name + "/accept_ra"
		}
		if i.Learns && global && i.Name != "lo" {
			values[name] = "2"
		}
	}
	return values
}

// Sysctl sets the kernel parameters that Kubernetes needs, and the configuration's; and the limits of log-ins.
func Sysctl(c *cluster.Cluster, host string) step.Step {
	values, optional, last := maps.Clone(kernelParameters), slices.Clone(optionalParameters), ""
	for name, value := range plugin.NetworkOf(c.Spec).Sysctl {
		values[name], optional = value, append(optional, name)
	}
	if c.PodCIDR(6) != "" {
		for name, value := range kernelParameters {
			if rest, is := strings.CutPrefix(name, "net.ipv4.neigh."); is {
				values["net.ipv6.neigh."+rest], optional = value, append(optional, "net.ipv6.neigh."+rest)
			}
		}
		last = "net.ipv6.conf.all.forwarding"
		values[last], values["net.bridge.bridge-nf-call-ip6tables"] = "1", "1"
		maps.Copy(values, learned(c, host))
	}
	slices.Sort(optional)
	maps.Copy(values, c.Spec.System.Sysctl)
	return step.Sysctl{
		Path: "/etc/sysctl.d/99-kubexm.conf", Values: values, Optional: optional, Last: last,
		Files: []step.File{{Path: "/etc/security/limits.d/kubexm.conf", Content: step.Content(limits), Mode: 0o644}},
	}
}

// Kubectl lets kubectl of root's login shell on a master reach the cluster, unless root has a configuration of its own.
func Kubectl() step.Step {
	const text = "if [ \"$(id -u)\" = 0 ] && [ -z \"${KUBECONFIG-}\" ] && [ ! -e ~/.kube/config ]; then\n\texport KUBECONFIG=/etc/kubernetes/admin.conf\nfi\n"
	return step.File{Path: "/etc/profile.d/kubexm-kubectl.sh", Content: step.Content(text), Mode: 0o644}
}

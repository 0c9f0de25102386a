package observe

import (
	"context"
	"embed"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
)

//go:embed scripts/*.sh
var scripts embed.FS

// said is where a host names other hosts.
type said struct {
	hostname string
	drained  bool              // kubexm took the pods off the node, and has not let them back
	block    [][]string        // kubexm's lines in /etc/hosts, each an address and names
	leads    []string          // addresses of the endpoint's name in /etc/hosts, kubexm's or not
	pods     []string          // those in its copies for pods
	calls    [][2]string       // kubeconfigs, and the server of each
	servers  []string          // the flags of API servers that run, with a space behind each
	former   []string          // addresses by which others knew it, and "route to" those of others
	files    map[string]string // content of the load balancer's files
}

// hear asks a host, in one round trip.
func (v *verification) hear(ctx context.Context, r *runner.Runner) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	domain := v.Spec.LoadBalancer.Domain
	files := []string{plugin.ProxyOf(v.Spec).Config, plugin.VIPOf(v.Spec).Config}
	inputs := runner.Inputs("S", runner.StateDir, "NAME", domain, "PROTOCOL", runner.FormerRoutes, "FILES", strings.Join(files, " "))
	out, err := r.Sh(ctx, inputs+"former() { "+runner.FormerMark.List()+"; }\n"+runner.Script(scripts, "names"))
	sections := map[string]string{}
	for section := range strings.SplitSeq("\n"+out, "\n@") {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
	}
	s := said{
		hostname: strings.TrimSpace(sections["hostname"]), drained: strings.TrimSpace(sections["drained"]) == "yes", files: sections,
		servers: strings.Split(strings.TrimSpace(sections["apiservers"]), "\n"),
	}
	s.names(sections["names"], domain)
	for l := range strings.Lines(sections["former"]) {
		if l = strings.TrimSpace(l); l != "" {
			s.former = append(s.former, l)
		}
	}
	for l := range strings.Lines(sections["pods"]) {
		if at := strings.Fields(l)[0]; !slices.Contains(s.pods, at) {
			s.pods = append(s.pods, at)
		}
	}
	for l := range strings.Lines(sections["kubeconfigs"]) {
		if f := strings.Fields(l); len(f) == 2 {
			s.calls = append(s.calls, [2]string{f[0], f[1]})
		}
	}
	kept(&v.mu, r.Host, s, err, v.said, v.mute)
}

// names reads /etc/hosts.
func (s *said) names(text, domain string) {
	ours := false
	for l := range strings.SplitSeq(text, "\n") {
		ours = l == runner.HostsBegin || ours && l != runner.HostsEnd
		l, _, _ = strings.Cut(l, "#")
		f := strings.Fields(l)
		switch {
		case len(f) < 2:
		case slices.Contains(f[1:], domain):
			s.leads = append(s.leads, f[0])
		case ours:
			s.block = append(s.block, f)
		}
	}
}

// etcdServers are those with which API servers run.
func etcdServers(v *verification) []Check {
	wanted, port := v.EtcdURLs(), fmt.Sprintf("--secure-port=%d ", v.APIPort())
	if v.Spec.Etcd.Type == v1alpha1.TypeKubeadm {
		wanted = []string{"https://127.0.0.1:2379"}
	}
	return v.each(v.masters(), func(host string, s said) []Check {
		i := slices.IndexFunc(s.servers, func(flags string) bool { return strings.Contains(flags+" ", port) })
		if i < 0 {
			return []Check{same(host, fmt.Sprintf("no API server runs at port %d", v.APIPort()), listed(wanted))}
		}
		_, urls, _ := strings.Cut(s.servers[i], "--etcd-servers=")
		urls, _, _ = strings.Cut(urls, " ")
		return []Check{v.calling(host, strings.FieldsFunc(urls, func(r rune) bool { return r == ',' }), wanted)}
	})
}

// Where load balancers name masters, and each other.
var (
	backEnd   = regexp.MustCompile(`(?m)^[ \t]*server[ \t].*?([0-9]+(?:\.[0-9]+){3}:[0-9]+|\[[0-9a-f:]+\]:[0-9]+)`)
	peerBlock = regexp.MustCompile(`unicast_peer\s*\{([^}]*)\}`)
)

// balancers are the hosts that run a proxy in front of the masters.
func (v *verification) balancers() []string {
	switch {
	case plugin.ProxyOf(v.Spec).Name == "":
		return nil
	case v.Balancer() == v1alpha1.BalancerInternal:
		return v.Workers()
	}
	return slices.DeleteFunc(v.All(), func(h string) bool { return !v.Balances(v.Host(h)) })
}

func backEnds(v *verification) []Check {
	return v.each(v.balancers(), func(host string, s said) []Check {
		var found []string
		for _, m := range backEnd.FindAllStringSubmatch(s.files[plugin.ProxyOf(v.Spec).Config], -1) {
			found = append(found, m[1])
		}
		return []Check{v.calling(host, found, v.apiServers())}
	})
}

func peers(v *verification) []Check {
	file := plugin.VIPOf(v.Spec).Config
	if file == "" {
		return nil
	}
	return v.each(v.balancers(), func(host string, s said) []Check {
		var found, wanted []string
		if m := peerBlock.FindStringSubmatch(s.files[file]); m != nil {
			found = strings.Fields(m[1])
		}
		for _, h := range v.balancers() {
			if h != host {
				wanted = append(wanted, v.IP(h))
			}
		}
		return []Check{v.calling(host, found, wanted)}
	})
}

// hostNames are all names that kubexm has written there, but for that of the endpoint.
func hostNames(v *verification) []Check {
	var wanted []string
	for _, h := range v.All() {
		for _, ip := range v.Host(h).IPs() {
			wanted = append(wanted, h+" "+ip)
		}
	}
	if registry := v.RegistryHost(); registry != "" {
		wanted = append(wanted, v.RegistryDomain()+" "+v.IP(registry))
	}
	for _, e := range v.Spec.Extra.Hosts {
		if e.Domain != v.Spec.LoadBalancer.Domain {
			wanted = append(wanted, e.Domain+" "+e.Address)
		}
	}
	return v.each(v.All(), func(host string, s said) []Check {
		var found []string
		for _, f := range s.block {
			found = append(found, f[len(f)-1]+" "+f[0])
		}
		return []Check{lists(host, found, wanted)}
	})
}

func endpoints(v *verification) []Check {
	return v.each(v.All(), func(host string, s said) []Check {
		return []Check{v.calling(host, s.leads, []string{v.EndpointIP(host)})}
	})
}

// podEndpoints are in the copies of /etc/hosts that pods on the host's network have, from when their containers started.
func podEndpoints(v *verification) []Check {
	return v.each(v.Nodes(), func(host string, s said) []Check {
		if s.pods == nil {
			return nil
		}
		return []Check{v.calling(host, s.pods, []string{v.EndpointIP(host)})}
	})
}

// kubeconfigs call the endpoint by its name. Those that kubeadm makes on a master may call its own API server.
func kubeconfigs(v *verification) []Check {
	return v.each(v.Nodes(), func(host string, s said) []Check {
		found := []string{"no kubelet.conf"}
		for _, c := range s.calls {
			file, server := path.Base(c[0]), c[1]
			if file == "kubelet.conf" {
				found = without(found, []string{"no kubelet.conf"})
			}
			own := v.Kubeadm() && v.Host(host).Is(v1alpha1.RoleMaster) && server == "https://"+v.APIAddress(host)
			if server != v.Endpoint() && !own {
				found = append(found, file+": "+server)
			}
		}
		if len(found) == 0 {
			found = []string{v.Endpoint()}
		}
		return []Check{lists(host, found, []string{v.Endpoint()})}
	})
}

// formerAddresses are those by which a machine that has moved was known, and routes to those of others: until all know the new ones.
func formerAddresses(v *verification) []Check {
	return v.each(v.All(), func(host string, s said) []Check {
		var wanted []string
		if v.Moving {
			wanted = s.former
		}
		return []Check{lists(host, s.former, wanted)}
	})
}

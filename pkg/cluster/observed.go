package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
)

// Observed is how a cluster was found at one look; its zero value says that nobody has looked. Texts that come
// from hosts are fit for a terminal.
type Observed struct {
	Members      []EtcdMember      // of the etcd that kubexm keeps, in the order of the configuration, others behind
	API          []APIServer       // of masters, in the order of the configuration
	Endpoint     map[string]string // by worker: why it does not reach an API server by the name of the endpoint; empty: it does
	Server       string            // version of the API server that was asked for nodes and addons: "v1.37.0"
	Nodes        map[string]Node   // by name, as that API server has them; nil: none could be asked
	Components   []Component       // of the control plane, in the order of the configuration, by name
	Addons       []Addon
	Certificates []Certificate // on hosts, the first to expire first
	Problems     []string      // what is not as it should be, and what could not be found out, sorted
}

// EtcdMember is a member of etcd.
type EtcdMember struct {
	Host    string `json:"host,omitempty"`      // empty: the configuration has no host for it
	Name    string `json:"name,omitempty"`      // empty: it has not started yet
	ID      uint64 `json:"id,omitempty,string"` // 0: the members' list was not to be had, or has not this one
	Healthy bool   `json:"healthy"`
	Stopped bool   `json:"stopped,omitempty"` // it takes no part: it refuses connections, or finds no leader; one that only does not answer may
	Leader  bool   `json:"leader,omitempty"`
	Learner bool   `json:"learner,omitempty"` // it does not vote
	Started bool   `json:"started,omitempty"` // it has served clients
	Version string `json:"version,omitempty"` // "3.6.4"
	DBSize  int64  `json:"dbSize,omitempty"`  // bytes
	InUse   int64  `json:"inUse,omitempty"`   // bytes of it that are used; defragmenting gives the rest back
	Quota   int64  `json:"quota,omitempty"`   // bytes that it may have; 0: unknown
	Behind  uint64 `json:"behind,omitempty"`  // entries of the log that it has yet to get
	Err     string `json:"error,omitempty"`   // why it is not healthy

	PeerURLs []string `json:"-"` // as the other members have them
}

// APIServer is the API server of a master.
type APIServer struct {
	Host    string
	Version string // "v1.37.0"
	Err     string // why it is not ready; empty: it is
}

// Node is a node as the API server has it.
type Node struct {
	Ready     bool
	Unknown   bool   // its kubelet has not been heard of for long
	Reason    string // why it is not ready
	Cordoned  bool
	Version   string // of its kubelet
	OS        string
	Runtime   string   // "containerd://2.3.4"
	Addresses []string // internal ones
}

// Status is the condition of a node as Kubernetes has it: Ready, NotReady, Unknown.
func (n Node) Status() string {
	switch {
	case n.Ready:
		return "Ready"
	case n.Unknown:
		return "Unknown"
	}
	return "NotReady"
}

// Component is a program of the control plane on a host.
type Component struct {
	Host    string `json:"host"`
	Name    string `json:"name"`
	Healthy bool   `json:"healthy"`
	Version string `json:"version,omitempty"` // empty: it does not say
	Message string `json:"message,omitempty"` // what it, or the way to it, says that is wrong
}

// Addon is a workload in one of the system's namespaces.
type Addon struct {
	Name   string `json:"name"` // namespace/name
	Ready  int    `json:"ready"`
	Wanted int    `json:"wanted"`
}

// Certificate is a certificate on a host, or on the control machine.
type Certificate struct {
	Host      string    `json:"host"`
	Path      string    `json:"path,omitempty"` // of the file that has it; empty: none has, and a server presents it
	Also      []string  `json:"also,omitempty"` // further files that have it
	Subject   string    `json:"subject"`
	Signer    string    `json:"signer"`
	Authority bool      `json:"authority,omitempty"`
	Names     []string  `json:"names,omitempty"` // host names and addresses that it is for
	Begins    time.Time `json:"begins"`
	Expires   time.Time `json:"expires"`
	Servers   []string  `json:"servers,omitempty"` // that present it: "kube-apiserver 10.0.0.11:6443"
	Raw       []byte    `json:"-"`                 // DER
}

// Rotates reports whether the program that has the certificate renews it by itself, as kubelets do with those of clients.
func (c *Certificate) Rotates() bool { return strings.HasSuffix(c.Path, "-current.pem") }

// Due is how long before it expires a certificate is to be replaced at the latest: 30 days, or a tenth of its life where that is less. What renews
// itself has done so by then: kubelets do with a tenth to three tenths of it left, kubexm with a third.
func (c *Certificate) Due() time.Duration { return min(30*24*time.Hour, c.Expires.Sub(c.Begins)/10) }

// Soon is how long before it expires it is worth a look, when nothing renews it: three times that.
func (c *Certificate) Soon() time.Duration { return 3 * c.Due() }

// VotingEtcd are the hosts whose members of etcd answer, and vote, whether they are healthy or not.
func (c *Cluster) VotingEtcd() (hosts []string) {
	for _, m := range c.Observed.Members {
		if m.ID != 0 && !m.Learner && !m.Stopped && m.Version != "" && slices.Contains(c.EtcdHosts(), m.Host) {
			hosts = append(hosts, m.Host)
		}
	}
	return hosts
}

// FullEtcd reports whether a member of etcd has raised the alarm that its data is as large as it may be.
func (o Observed) FullEtcd() bool {
	return slices.ContainsFunc(o.Members, func(m EtcdMember) bool { return strings.Contains(m.Err, "alarm NOSPACE") })
}

// EtcdLeader is the host of the member that leads; empty: none does, or it is not known.
func (o Observed) EtcdLeader() string {
	if i := slices.IndexFunc(o.Members, func(m EtcdMember) bool { return m.Leader }); i >= 0 {
		return o.Members[i].Host
	}
	return ""
}

// AnyAPI returns the masters whose API server is ready, in the order of the configuration.
func (o Observed) AnyAPI() (hosts []string) {
	for _, a := range o.API {
		if a.Err == "" {
			hosts = append(hosts, a.Host)
		}
	}
	return hosts
}

// Of is what was observed of a configuration that may not have all hosts: the members of others have none.
func (o Observed) Of(hosts []string) Observed {
	o.Members, o.API = slices.Clone(o.Members), slices.Clone(o.API)
	for i, m := range o.Members {
		if !slices.Contains(hosts, m.Host) {
			o.Members[i].Host = ""
		}
	}
	o.API = slices.DeleteFunc(o.API, func(a APIServer) bool { return !slices.Contains(hosts, a.Host) })
	return o
}

// Quorum returns how many of etcd's members that vote are healthy, and how many vote.
func (o Observed) Quorum() (healthy, total int) {
	for _, m := range o.Members {
		if m.Learner || m.ID == 0 {
			continue
		}
		total++
		if m.Healthy {
			healthy++
		}
	}
	return healthy, total
}

// BrokenEtcd returns the hosts whose member of etcd takes no part in it: to stop it costs nothing.
func (o Observed) BrokenEtcd() (hosts []string) {
	for _, m := range o.Members {
		if m.Stopped && m.Host != "" {
			hosts = append(hosts, m.Host)
		}
	}
	return hosts
}

// BrokenAPI returns the masters whose API server is not ready.
func (o Observed) BrokenAPI() (hosts []string) {
	for _, a := range o.API {
		if a.Err != "" {
			hosts = append(hosts, a.Host)
		}
	}
	return hosts
}

// Split tells the hosts on which a service does not run yet, as far as is known, from those on which it does.
func (c *Cluster) Split(service string, hosts []string) (fresh, live []string) {
	return c.split(hosts, func(f *runner.Facts) bool { return f.Runs(service) })
}

func (c *Cluster) split(hosts []string, lives func(*runner.Facts) bool) (fresh, live []string) {
	for _, h := range hosts {
		if lives(c.FactsOf(h)) {
			live = append(live, h)
		} else {
			fresh = append(fresh, h)
		}
	}
	return fresh, live
}

// SplitMasters tells masters that are none yet from those that are.
func (c *Cluster) SplitMasters() (fresh, live []string) {
	return c.split(c.Masters(), c.isMaster)
}

// isMaster tells a master from a worker, also where somebody has removed its API server.
func (c *Cluster) isMaster(f *runner.Facts) bool {
	const madeLast = "/etc/kubernetes/admin.conf"
	return f.Runs(c.mark("kube-apiserver")) && (!c.Kubeadm() || f.Runs("kube-apiserver") || slices.Contains(f.Leftovers, madeLast))
}

// SplitNodes tells hosts that are no nodes yet from those that are, also where the kubelet has been stopped for a while.
func (c *Cluster) SplitNodes(hosts []string) (fresh, live []string) {
	return c.split(hosts, func(f *runner.Facts) bool { return f.Runs(c.mark("kubelet")) || f.Drained })
}

// mark is what tells that a host has become what it is to be: kubeadm's mark, as it is made in several steps there.
func (c *Cluster) mark(service string) string {
	if c.Kubeadm() {
		return "kubeadm"
	}
	return service
}

// LedTo is where the name of the endpoint, or its former name, leads on a host now; empty: it is not known there.
func (c *Cluster) LedTo(host string) string {
	names := c.FactsOf(host).Names
	for _, n := range append([]string{c.Spec.LoadBalancer.Domain}, c.FormerNames(host)...) {
		if names[n] != "" {
			return names[n]
		}
	}
	return ""
}

// FormerNames returns the names by which programs of a host still call the endpoint, after it was renamed.
func (c *Cluster) FormerNames(host string) (former []string) {
	facts := c.FactsOf(host)
	for _, s := range facts.Servers {
		name, _, _ := net.SplitHostPort(s)
		if facts.Names[name] != "" && name != c.Spec.LoadBalancer.Domain && !slices.Contains(former, name) {
			former = append(former, name)
		}
	}
	return former
}

// FormerPorts returns the ports at which API servers or load balancers listened before their port was changed, until nothing
// that kubexm made asks there any more, sorted: those in kubeconfigs, and those that hosts forward.
func (c *Cluster) FormerPorts() []int { return c.former() }

func (c *Cluster) formerPorts() (ports []int) {
	for _, h := range c.All() {
		facts := c.FactsOf(h)
		names := append(c.FormerNames(h), c.Spec.LoadBalancer.Domain)
		var all []string
		for _, s := range facts.Servers {
			if name, port, _ := net.SplitHostPort(s); slices.Contains(names, name) || name == c.IP(h) {
				all = append(all, port)
			}
		}
		for _, key := range facts.Inventory {
			if port, is := strings.CutPrefix(key, "unit "+Forwarder); is {
				all = append(all, port)
			}
		}
		for _, port := range all {
			if p, err := strconv.Atoi(port); err == nil && p != c.APIPort() && !slices.Contains(ports, p) {
				ports = append(ports, p)
			}
		}
	}
	slices.Sort(ports)
	return ports
}

// Forwarder begins the names of units that let connections to a port through to another one, while the port of API servers is
// changed.
const Forwarder = "kubexm-port-"

// ListensAt is the port at which an API server, or a load balancer in front of them, listens on a host: a former one, or the
// wanted one; 0: none does.
func (c *Cluster) ListensAt(host string) int {
	var processes []string
	for _, p := range plugin.Proxies() {
		processes = append(processes, p.Name)
	}
	switch h := c.Host(host); {
	case h.Is(v1alpha1.RoleMaster):
		processes = []string{"kube-apiserver"}
	case !h.Is(v1alpha1.RoleLoadBalancer) && c.LedTo(host) != c.OwnIP():
		return 0
	}
	for _, p := range append(slices.Clone(c.FormerPorts()), c.APIPort()) {
		if slices.Contains(processes, c.FactsOf(host).Listening[p]) {
			return p
		}
	}
	return 0
}

// AtFormerPorts returns addresses at the former ports.
func (c *Cluster) AtFormerPorts(addresses ...string) (all []string) {
	for _, a := range addresses {
		for _, p := range c.FormerPorts() {
			host, _, _ := net.SplitHostPort(a)
			all = append(all, net.JoinHostPort(host, strconv.Itoa(p)))
		}
	}
	return all
}

// Moved returns the hosts on which the name of the endpoint leads elsewhere than it is to lead, or has a former name.
func (c *Cluster) Moved() []string {
	return slices.DeleteFunc(c.Hosts(v1alpha1.Roles()...), func(h string) bool {
		at := c.LedTo(h)
		return at == "" || at == c.EndpointIP(h) && c.FormerNames(h) == nil
	})
}

// Readdressed returns the hosts on which the name of the endpoint leads to a virtual address that is exchanged for another one: what holds
// it stays, and gives it up before it takes the other.
func (c *Cluster) Readdressed() []string {
	vip := plugin.VIPOf(c.Spec)
	if _, holders := c.Split(vip.Unit, c.Hosts(vip.Role)); holders == nil {
		return nil
	}
	return slices.DeleteFunc(c.Moved(), func(h string) bool { return !c.IsNode(h) || c.SharedBefore(h) == "" })
}

// Detour returns the addresses of masters that a host asks itself for a while, those first that answer; each host another one.
func (c *Cluster) Detour(host string) (addresses []string) {
	masters := c.apiMasters()
	answer := masters[:max(1, min(len(masters), len(c.Observed.AnyAPI())))]
	turn := max(0, slices.Index(c.Nodes(), host)) % len(answer)
	for _, m := range slices.Concat(answer[turn:], answer[:turn], masters[len(answer):]) {
		addresses = append(addresses, c.IP(m))
	}
	return addresses
}

// Detoured reports whether a node asks a master itself, but is not to: it has no other way until its endpoint moves.
func (c *Cluster) Detoured(host string) bool {
	at := c.LedTo(host)
	return c.IsNode(host) && at != c.EndpointIP(host) && slices.ContainsFunc(c.Masters(), func(m string) bool { return c.IP(m) == at })
}

// VIPHolder is the host that was found to have the virtual address, or the one that was it before; empty: none.
func (c *Cluster) VIPHolder() string {
	addresses := []string{c.Spec.LoadBalancer.VIP}
	for _, h := range c.Moved() {
		addresses = append(addresses, c.SharedBefore(h))
	}
	for _, a := range slices.Compact(addresses) {
		if h := c.hostWith(a); a != "" && h != "" {
			return h
		}
	}
	return ""
}

// SharedBefore is the virtual address to which the name of the endpoint leads on a host now, but is not to lead; empty: there is none.
func (c *Cluster) SharedBefore(host string) string {
	at := c.LedTo(host)
	if at == c.EndpointIP(host) || at == c.OwnIP() || slices.ContainsFunc(c.Masters(), func(m string) bool { return c.IP(m) == at }) {
		return ""
	}
	return at
}

// Lives reports whether the cluster runs: whether some master is one, or was it until now.
func (c *Cluster) Lives() bool {
	_, live := c.SplitMasters()
	return live != nil || c.FormerMasters() != nil
}

// EtcdAccess is how kubexm reaches the member of etcd on a host, from any host of the control plane: kubexm's own
// and kubeadm's have the same authority and serve clients at the same port. kubexm has a short-lived certificate of its own.
// One that is alone, and whose host gets another address, does not listen there yet.
func (c *Cluster) EtcdAccess(host string) etcd.Access {
	at := c.EtcdURL(host)
	if slices.Contains(c.Moving, host) {
		at = etcdURL("127.0.0.1")
	}
	return etcd.Access{
		Endpoint: at,
		TLS: func() (*tls.Config, error) {
			trusted, err := c.Certs.Trust(pki.Etcd)
			if err != nil {
				return nil, err
			}
			client, err := c.Certs.EtcdOperator()
			if err != nil {
				return nil, err
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(trusted)
			return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{*client.TLS()}}, nil
		},
	}
}

// EtcdURLs are where members of etcd serve clients, those of an external etcd too.
func (c *Cluster) EtcdURLs() (urls []string) {
	if c.ExternalEtcd() {
		return c.Spec.Etcd.External.Endpoints
	}
	for _, h := range c.All(v1alpha1.RoleEtcd) {
		urls = append(urls, c.EtcdURL(h))
	}
	return urls
}

func etcdURL(ip string) string { return "https://" + net.JoinHostPort(ip, "2379") }

// EtcdURL is where the member of etcd on a host serves clients.
func (c *Cluster) EtcdURL(host string) string { return etcdURL(c.IP(host)) }

// PeerURL is where the member of etcd on a host serves the others.
func (c *Cluster) PeerURL(host string) string {
	return "https://" + net.JoinHostPort(c.IP(host), "2380")
}

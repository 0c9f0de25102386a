// Package cluster is the planned cluster: the configuration together with the
// facts of its hosts, and what follows from both. Plans are made from it alone.
package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/runner"
)

// Cluster is all that a plan is made from.
type Cluster struct {
	Name      string
	Spec      *v1alpha1.Spec // with defaults filled in
	Dir       string         // the cluster's directory on the control machine
	Facts     map[string]*runner.Facts
	Last      map[string]*runner.Facts // of hosts that are left out, as they were last seen
	Store     *resource.Store
	Certs     *pki.Store
	Observed  Observed        // how the cluster was found; nobody has looked: its zero value
	Versions  config.Versions // of the parts that the configuration does not name
	Kubexm    string          // the version of this program
	Fenced    []string        // IDs of machines that are not to come back, sorted
	Unfenced  bool            // a host was one of those, and may still be kept out
	Replaced  []string        // hosts whose machines are new ones
	Moving    []string        // hosts that get another address without leaving the cluster
	Complete  bool            // it was once made to its end
	Passing   bool            // the release is one on the way to another
	Back      bool            // the cluster goes back: kubelets that are older already stay
	Only      []string        // nodes that may get another kubelet; empty: all
	Forced    bool            // hosts that leave go although pods or data on them are lost
	Unfetched error           // why charts of addons could not be fetched, where they are not in the store
	Restore   *Restore        // it begins anew with the data of a backup; nil: it does not

	hosts     map[string]*v1alpha1.Host // by name
	missing   []string                  // hosts that are left out
	leaving   []string                  // hosts that leave the cluster
	proxyMode func() string             // looks at all hosts once
	kept      func() config.Kept        // reads the configuration once
	former    func() []int              // so does it
	addons    func() []Manifests        // reads their files once
	recorded  func() (string, error)    // the ID that the cluster had before, read once; empty: it was not made
	shared    sync.Map                  // of Shared: functions that return the content of a file, by key
	mu        sync.Mutex                // guards errs
	errs      []error
}

// New puts a cluster together. Without facts (nil) no plan can be made.
func New(c *v1alpha1.Cluster, dir string, store *resource.Store, facts map[string]*runner.Facts) *Cluster {
	hosts := map[string]*v1alpha1.Host{}
	for i := range c.Spec.Hosts {
		hosts[c.Spec.Hosts[i].Name] = &c.Spec.Hosts[i]
	}
	planned := &Cluster{
		Name: c.Metadata.Name, Spec: &c.Spec, Dir: dir, Store: store, Facts: facts,
		Certs:    &pki.Store{Dir: filepath.Join(dir, "certs"), Validity: days(c.Spec.Kubernetes.CertificateValidityDays)},
		Versions: config.VersionsFor(c.Spec.Kubernetes.Version), hosts: hosts,
	}
	planned.recorded = sync.OnceValues(planned.Certs.RecordedID)
	planned.proxyMode = sync.OnceValue(planned.chooseProxyMode)
	planned.kept = sync.OnceValue(func() config.Kept { return planned.keep(c) })
	planned.former = sync.OnceValue(planned.formerPorts)
	planned.addons = sync.OnceValue(planned.readAddons)
	return planned
}

// Kept is what is kept of the configuration in the cluster; without a text, nothing is.
func (c *Cluster) Kept() config.Kept { return c.kept() }

func (c *Cluster) keep(conf *v1alpha1.Cluster) (k config.Kept) {
	var err error
	if conf.Origin.Text != nil {
		k, err = config.Keep(conf)
		c.Check(err)
	}
	k.Kubexm = c.Kubexm
	return k
}

// Shared returns what make makes, once for all hosts with the same key: a thousand hosts that each know a thousand names would need
// a copy each.
func (c *Cluster) Shared(key string, make func() []byte) []byte {
	content, _ := c.shared.LoadOrStore(key, sync.OnceValue(make))
	return content.(func() []byte)() //nolint:forcetypeassert // nothing else is stored
}

// Err returns the errors met while planning: a certificate that cannot be made,
// a component that is not known.
func (c *Cluster) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.errs...)
}

// Check keeps an error for Err.
func (c *Cluster) Check(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !slices.ContainsFunc(c.errs, func(e error) bool { return e.Error() == err.Error() }) {
		c.errs = append(c.errs, err)
	}
}

// LeaveOut plans without hosts. They stay hosts of the cluster, known to the others by
// name and address, and a later plan has them.
func (c *Cluster) LeaveOut(hosts ...string) { c.missing = append(c.missing, hosts...) }

// Missing returns the hosts that are left out.
func (c *Cluster) Missing() []string { return c.missing }

// Hosts returns the names of the hosts that have any of the roles and are not left out,
// in the order of the configuration.
func (c *Cluster) Hosts(roles ...v1alpha1.Role) []string {
	return slices.DeleteFunc(c.All(roles...), func(h string) bool { return slices.Contains(c.missing, h) })
}

// All returns the names of all hosts that have any of the roles, or whatever roles they have where none is given; those
// that are left out too. What is written to a host about others names them all, so that nothing changes there
// when one of them is left out.
func (c *Cluster) All(roles ...v1alpha1.Role) []string {
	names := make([]string, 0, len(c.Spec.Hosts))
	for i := range c.Spec.Hosts {
		if h := &c.Spec.Hosts[i]; roles == nil || slices.ContainsFunc(roles, h.Is) {
			names = append(names, h.Name)
		}
	}
	return names
}

// Masters returns the hosts that run a control plane.
func (c *Cluster) Masters() []string { return c.Hosts(v1alpha1.RoleMaster) }

// Nodes returns the hosts that run a kubelet.
func (c *Cluster) Nodes() []string { return c.Hosts(v1alpha1.RoleMaster, v1alpha1.RoleWorker) }

// IsNode reports whether the host runs a kubelet.
func (c *Cluster) IsNode(host string) bool {
	return c.Host(host).Is(v1alpha1.RoleMaster) || c.Host(host).Is(v1alpha1.RoleWorker)
}

// Workers returns the nodes without a control plane.
func (c *Cluster) Workers() []string {
	return slices.DeleteFunc(c.Nodes(), func(n string) bool { return c.Host(n).Is(v1alpha1.RoleMaster) })
}

// SpareWorkers returns the workers that the control plane does without: they are neither
// members of etcd nor the registry.
func (c *Cluster) SpareWorkers() []string {
	control := c.ControlPlaneHosts()
	return slices.DeleteFunc(c.Workers(), func(n string) bool { return slices.Contains(control, n) })
}

// Etcd returns the hosts that are etcd members.
func (c *Cluster) Etcd() []string { return c.Hosts(v1alpha1.RoleEtcd) }

// ControlPlaneHosts returns the hosts that the control plane needs: masters, etcd members, and the
// registry that its images come from.
func (c *Cluster) ControlPlaneHosts() []string {
	return c.Hosts(v1alpha1.RoleMaster, v1alpha1.RoleEtcd, v1alpha1.RoleRegistry)
}

// FirstMaster is the master on which the cluster is made, and through which
// kubexm talks to the API.
func (c *Cluster) FirstMaster() string { return c.Masters()[0] }

// Touched returns the hosts that say themselves that they belong to this cluster, by its ID and its name: those on
// which kubexm has begun its work. Where the cluster's ID is lost its name alone counts.
func (c *Cluster) Touched() []string {
	return slices.DeleteFunc(c.All(), func(h string) bool { return !c.IsTouched(h) })
}

// IsTouched reports whether the host is one of Touched.
func (c *Cluster) IsTouched(host string) bool {
	f := c.FactsOf(host)
	id, err := c.recorded()
	return f.Env["cluster"] == c.Name && (err != nil || id == "" || f.Env["id"] == id)
}

// Namesakes returns the hosts that belong to a cluster of this name, this one or another.
func (c *Cluster) Namesakes() []string {
	return slices.DeleteFunc(c.All(), func(h string) bool { return c.FactsOf(h).Env["cluster"] != c.Name })
}

// Stranger says why a host, which kubexm has worked on, is none of this cluster's:
// it has another name, or another ID under the same name, as far as that can be told; empty: it is not so.
func (c *Cluster) Stranger(host string) string {
	f := c.FactsOf(host)
	id, err := c.recorded()
	switch {
	case f.Env["cluster"] == "":
		return ""
	case f.Env["cluster"] != c.Name:
		return "part of the kubexm cluster " + f.Env["cluster"]
	case err != nil:
		return fmt.Sprintf("part of a kubexm cluster %s, maybe another of that name: %v", c.Name, err)
	case id == "":
		return "part of a kubexm cluster " + c.Name + " whose keys are not in " + c.Certs.Dir
	case f.Env["id"] != id:
		return "part of another kubexm cluster " + c.Name + ": its ID is not the one in " + c.Certs.Dir
	}
	return ""
}

// Host returns the configuration of a host that is part of the cluster.
func (c *Cluster) Host(name string) *v1alpha1.Host { return c.hosts[name] }

// FactsOf returns what is known of a host. A host that was not asked has empty facts.
func (c *Cluster) FactsOf(host string) *runner.Facts {
	if f := c.Facts[host]; f != nil {
		return f
	}
	return &runner.Facts{}
}

// Addresses are all names and addresses of a host that certificates carry.
func (c *Cluster) Addresses(host string) []string {
	h := c.Host(host)
	all := h.IPs()
	if !slices.Contains(all, h.Address) {
		all = append(all, h.Address)
	}
	return all
}

// Arch is the host's architecture, in Go's terms.
func (c *Cluster) Arch(host string) string {
	if a := c.Host(host).Arch; a != "" {
		return a
	}
	return c.FactsOf(host).Arch
}

// Archs are the architectures of the hosts, sorted.
func (c *Cluster) Archs(hosts ...string) []string {
	var all []string
	for _, h := range hosts {
		all = append(all, c.Arch(h))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// DataRoot is the directory of the runtime's images and containers.
func (c *Cluster) DataRoot() string { return c.Spec.Runtime.DataRoot }

// Kubeadm reports whether kubeadm runs the control plane, and else kubexm does.
func (c *Cluster) Kubeadm() bool { return c.Spec.Kubernetes.Type == v1alpha1.TypeKubeadm }

// ExternalEtcd reports whether the cluster uses an etcd that kubexm does not run.
func (c *Cluster) ExternalEtcd() bool { return c.Spec.Etcd.Type == v1alpha1.TypeExternal }

// EtcdEndpoint is how the API server of a master reaches etcd, in the form of kubeadm's etcd.external.
type EtcdEndpoint struct {
	Endpoints []string `json:"endpoints"` // URLs of the members
	CAFile    string   `json:"caFile"`
	CertFile  string   `json:"certFile"`
	KeyFile   string   `json:"keyFile"`
}

// EtcdClient is with what API servers call the external etcd.
func (c *Cluster) EtcdClient() config.EtcdClient {
	client, err := config.ReadEtcdClient(c.Spec.Etcd.External)
	c.Check(err)
	return client
}

// Timers that members of etcd may have, by the names of their units.
const (
	BackupTimer = "kubexm-etcd-backup"
	DefragTimer = "kubexm-etcd-defrag"
)

// EtcdTimers returns the names of those that the configuration asks for.
func (c *Cluster) EtcdTimers() (names []string) {
	if b := c.Spec.Etcd.AutoBackup.Enabled; b != nil && *b {
		names = append(names, BackupTimer)
	}
	if c.Spec.Etcd.AutoDefrag.Enabled {
		names = append(names, DefragTimer)
	}
	return names
}

// EtcdPrefix is what the keys of the cluster's objects in etcd begin with (kube-apiserver --etcd-prefix).
func (c *Cluster) EtcdPrefix() string {
	return "/" + strings.Trim(cmp.Or(c.Spec.Kubernetes.APIServer.ExtraArgs["etcd-prefix"], "registry"), "/") + "/"
}

// DataDirs are the directories that the configuration chooses for data on a host. They must be empty at first, and
// deleting the cluster empties them.
func DataDirs(s *v1alpha1.Spec, h *v1alpha1.Host) []string {
	var dirs []string
	if !InDocker(s, h) {
		dirs = append(dirs, s.Runtime.DataRoot)
	}
	if s.Etcd.DataDir != "" { // else kubexm runs no etcd
		dirs = append([]string{s.Etcd.DataDir}, dirs...)
	}
	if h.Is(v1alpha1.RoleRegistry) {
		dirs = append(dirs, s.Registry.DataDir)
	}
	return dirs
}

// Minor is the minor version of Kubernetes: 37 of v1.37.0.
func (c *Cluster) Minor() int {
	v, err := version.ParseSemantic(c.Spec.Kubernetes.Version)
	if err != nil {
		c.Check(fmt.Errorf("spec.kubernetes.version: %w", err))
		return 0
	}
	return int(v.Minor())
}

// Endpoint is the URL of the API server in every kubeconfig. Where its name
// leads is up to each host's /etc/hosts.
func (c *Cluster) Endpoint() string { return "https://" + c.EndpointHost() }

// EndpointHost is the name and port of the API server.
func (c *Cluster) EndpointHost() string {
	return net.JoinHostPort(c.Spec.LoadBalancer.Domain, strconv.Itoa(c.Spec.LoadBalancer.Port))
}

// Balancer is the mode of the load balancer; empty: there is none.
func (c *Cluster) Balancer() string {
	if *c.Spec.LoadBalancer.Enabled {
		return c.Spec.LoadBalancer.Mode
	}
	return ""
}

// EndpointIP is where the name of the API server leads on the host: a master asks
// itself; a worker the proxy that it runs; others the load balancer, or the first
// master where there is none.
func (c *Cluster) EndpointIP(host string) string {
	switch h := c.Host(host); {
	case h.Is(v1alpha1.RoleMaster):
		return c.IP(host)
	case c.Balancer() == v1alpha1.BalancerInternal && h.Is(v1alpha1.RoleWorker):
		return c.OwnIP()
	case c.Spec.LoadBalancer.VIP != "":
		return c.Spec.LoadBalancer.VIP
	}
	return c.IP(c.FirstMaster())
}

// Balances reports whether the host is one of those in front of the masters; they are idle in other modes than theirs.
func (c *Cluster) Balances(h *v1alpha1.Host) bool {
	return h.Is(v1alpha1.RoleLoadBalancer) && h.Is(plugin.VIPOf(c.Spec).Role)
}

// Interface is the network interface of the host that carries its internal address, or
// the one that the configuration names.
func (c *Cluster) Interface(host string) string {
	if chosen := plugin.VIPOf(c.Spec).Interface.In(c.Spec); chosen != nil && *chosen != "" {
		return *chosen
	}
	at := c.IP(host)
	if slices.Contains(c.FactsOf(host).Former, at) {
		at = c.Host(host).Address
	}
	for _, i := range c.FactsOf(host).Interfaces {
		for _, a := range i.Addresses {
			if ip, _, _ := strings.Cut(a, "/"); ip == at {
				return i.Name
			}
		}
	}
	c.Check(fmt.Errorf("host %s: no network interface has its address %s: give spec.hosts[].internalAddress", host, at))
	return ""
}

// hostWith is the host that was found to have an address; empty: none.
func (c *Cluster) hostWith(ip string) string {
	for _, h := range c.Hosts() {
		if c.FactsOf(h).HasAddress(ip) {
			return h
		}
	}
	return ""
}

// Every reports whether all nodes have the kernel feature.
func (c *Cluster) Every(feature string) bool {
	return !slices.ContainsFunc(c.nodeFacts(), func(f *runner.Facts) bool { return !f.Features[feature] })
}

// Any reports whether some node has the kernel feature.
func (c *Cluster) Any(feature string) bool {
	return slices.ContainsFunc(c.nodeFacts(), func(f *runner.Facts) bool { return f.Features[feature] })
}

// nodeFacts are the facts of all nodes; of those that are left out the last ones, where there are any.
func (c *Cluster) nodeFacts() (all []*runner.Facts) {
	for _, n := range c.All(v1alpha1.RoleMaster, v1alpha1.RoleWorker) {
		switch last := c.Last[n]; {
		case !slices.Contains(c.missing, n):
			all = append(all, c.FactsOf(n))
		case last != nil:
			all = append(all, last)
		}
	}
	return all
}

// ProxyMode is how kube-proxy works: as configured, else nftables where every
// kernel is fit for it, else iptables.
func (c *Cluster) ProxyMode() string { return c.proxyMode() }

// HasProxy reports whether kube-proxy leads to Services, and not the network plugin.
func (c *Cluster) HasProxy() bool { return c.Spec.Kubernetes.ProxyMode != v1alpha1.ProxyNone }

func (c *Cluster) chooseProxyMode() string {
	switch m := c.Spec.Kubernetes.ProxyMode; {
	case m != "":
		return m
	case !slices.ContainsFunc(c.nodeFacts(), func(f *runner.Facts) bool { return !FitForNFTables(f) }):
		return v1alpha1.ProxyNFTables
	}
	return v1alpha1.ProxyIPTables
}

// FitForNFTables reports whether kube-proxy's nftables mode works on the host: it
// refuses kernels before 5.13 (k8s.io/kubernetes/pkg/proxy/nftables).
func FitForNFTables(f *runner.Facts) bool {
	v, err := version.ParseGeneric(f.Kernel)
	return err == nil && v.AtLeast(version.MustParseGeneric("5.13")) && f.Features[runner.FeatureNFTables]
}

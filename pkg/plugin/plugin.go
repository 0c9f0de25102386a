// Package plugin holds what is known of the things that a cluster has one or another of: container runtimes, network plugins,
// load balancers, private registries. Each is a row in a file of its own. All other packages read rows, and name no plugin; the
// steps that install them are in a table of package task.
package plugin

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// Runtimes are the rows of spec.runtime.type.
func Runtimes() []Runtime { return []Runtime{containerd, crio, docker} }

// Networks are the rows of spec.network.plugin.
func Networks() []Network { return []Network{flannel, calico, cilium} }

// Proxies are the rows of spec.loadBalancer.internal.type and external.type; the first is the default.
func Proxies() []Proxy { return []Proxy{haproxy, nginx} }

// VIPs are the rows of those modes of spec.loadBalancer that have a virtual address.
func VIPs() []VIP { return []VIP{keepalived, kubeVIP} }

// Registries are the rows of spec.registry.type; the first is the default.
func Registries() []Registry { return []Registry{distribution, harbor} }

// Storages are the rows of spec.storage, of which a cluster has any number.
func Storages() []Storage { return []Storage{localPath} }

// Plugin is what all kinds of rows have in common.
type Plugin struct {
	Name  string      // as the configuration has it
	Parts []Component // the version of the first one can be chosen where there is a field for it
	Unit  string      // that it runs as, of systemd or as a static pod
	Left  Left

	Version  Field
	Together bool // all parts have the version of the first
	Gates    []Gate
	Section  *Section             // of the configuration, for this plugin alone
	Default  func(*v1alpha1.Spec) // fills in what was left open in that
}

// Images are the names of the parts that are images.
func (p Plugin) Images() []string { return p.parts(true) }

// Programs are the names of the parts that are not.
func (p Plugin) Programs() []string { return p.parts(false) }

func (p Plugin) parts(images bool) (all []string) {
	for _, part := range p.Parts {
		if (part.Image != "") == images {
			all = append(all, part.Name)
		}
	}
	return all
}

// Component is how a program or an image is published upstream. In its texts {version}
// stands for the version without its v, {arch} for amd64 or arm64, {machine} for x86_64 or aarch64, and {file} for the expanded File.
type Component struct {
	Name     string   // also the name on a machine of a program published bare
	Version  string   // that was tested, written like upstream's release tag; empty: it depends on that of Kubernetes
	Image    string   // full reference, where it is an image; what follows is of programs
	Base     string   // URL of the folder that holds File and Sums
	File     string   // name of the file, upstream and in the store
	Sums     string   // name of the file with the SHA-256: a bare sum, or lines as of sha256sum; or a URL of its own; empty: nobody publishes it
	Signer   Signer   // of File, in File.sig and File.cert; none: it is not signed
	AMD64    bool     // it is published for amd64 alone
	Programs []string // path.Match patterns of the programs wanted from the archive; none: File is the program
}

// Signer is who signs files the way of Sigstore (signature.Identity).
type Signer struct{ Name, Issuer string }

// SumsURL is where the checksum is.
func (c Component) SumsURL() string {
	if strings.HasPrefix(c.Sums, "https://") {
		return c.Sums
	}
	return c.Base + c.Sums
}

// GitHub begins the URLs of what is published there.
const GitHub = "https://github.com/"

// Field is a field of the configuration.
type Field struct {
	Path string
	Of   func(*v1alpha1.Spec) *string // nil: it is in a section that is not there, or is another plugin's
}

// In returns the field in a configuration; nil: it is not there.
func (f Field) In(s *v1alpha1.Spec) *string {
	if f.Of == nil {
		return nil
	}
	return f.Of(s)
}

// Gate is the least version that works, as far as is known.
type Gate struct {
	From  string // first version of Kubernetes that it holds for; empty: all
	Least string
	Why   string
}

// Section is a part of the configuration that makes sense with one plugin alone.
type Section struct {
	Path  string
	Given func(*v1alpha1.Spec) bool
	Only  string                        // what is said where it is given with another
	Check func(*v1alpha1.Spec, Checker) // nil: its types are enough
}

// Checker is told what is wrong with a configuration.
type Checker interface {
	Fail(path string, value any, why string)
	IP(path, value string)        // that must be an IP address
	Interface(path, value string) // that must be the name of a network interface, if any
}

// Left is what a plugin leaves on a host, on top of what steps have noted in the host's ledger.
type Left struct {
	Mounts   []string // patterns of paths, as of case in a shell
	Links    []string // network interfaces, or patterns of them
	Chains   []string // what the names of packet filter chains begin with
	Comments []string // of its rules in the chains of others; extended regular expressions, as the next
	Tables   []string // of nftables
	Sets     []string // what the names of its IP sets begin with
	Rules    []string // of routing, as ip rule shows them; extended regular expressions
	Filters  []string // what the names of its BPF programs on interfaces begin with, where the kernel has no tcx
	Pins     []string // patterns of BPF programs and maps that it keeps in /sys/fs/bpf
	Paths    []string // files, and directories with what is in them
	Empty    []string // directories that go when nothing is left in them
}

// Runtime is a container runtime.
type Runtime struct {
	Plugin
	Socket string // of the CRI
	Shim   string // unit that speaks the CRI for it; empty: it does so itself
	Takes  string // unit of another container runtime that it would make its own, should that run
	Config string // file that names the directory of its images and containers: root = "...", or "data-root": "..."
	Mark   string // that is in such a directory from the first start on
	Hosts  string // directory where it finds registries as containerd does; empty: it has another way
	Pulls  bool   // it takes images from registries alone
	Ends   bool   // another minor version of it ends all containers as it starts
	Images string // command that lists the images of Kubernetes, one a line
	Run    string // shell function run_image, which runs a program of such an image with all powers, in the network of the host: IMAGE NAME COMMAND...
}

// Endpoint is the socket as a URL.
func (r Runtime) Endpoint() string { return "unix://" + r.Socket }

// Units are what it runs as, in the order in which they start.
func (r Runtime) Units() []string {
	return slices.DeleteFunc([]string{r.Unit, r.Shim}, func(u string) bool { return u == "" })
}

// Speaks is the unit that speaks the CRI.
func (r Runtime) Speaks() string { return cmp.Or(r.Shim, r.Unit) }

// Network is a network plugin.
type Network struct {
	Plugin
	Namespace string                        // of its pods
	Ready     string                        // the workload that is rolled out when it runs
	Conf      string                        // file with its configuration for the runtime, where it asks the API server to end a pod; empty: it asks nobody
	Kernel    func(*v1alpha1.Spec) []string // features that it needs, see runner.Facts
	Least     string                        // kernel that it needs; empty: any
	Services  bool                          // it can lead to Services in the place of kube-proxy
	Sysctl    map[string]string             // parameters of the kernel that it sets on nodes, to be put back one day
}

// Proxy is a program that spreads connections to the masters.
type Proxy struct {
	Plugin
	External     string              // type of a load balancer of that with keepalived
	Template     string              // of its configuration
	Config       string              // where it looks for that
	Packages     map[string][]string // by package manager
	PackagesLeft []string            // see step.Packages
	Command      string              // under systemd
	Type         string              // Type= of systemd.service(5)
	Titled       bool                // see step.Unit
	Check        string              // command that fails where the configuration is of no use
	Signal       string              // at which it reads that again; see step.Reload
	Pod          string              // command in a pod, beside the configuration
	PodCheck     string              // as Check
}

// VIP is what gives the virtual address to one of several machines.
type VIP struct {
	Plugin
	Mode         string                    // of spec.loadBalancer
	Role         v1alpha1.Role             // of the machines
	Pod          bool                      // it is a static pod there, beside the API server
	Holds        func(*v1alpha1.Spec) bool // whether the address is on an interface of the machine that has it
	Interface    Field                     // where that interface may be chosen
	Config       string                    // file that names the other machines; empty: there is none
	Lease        string                    // in kube-system, held by the node that has the address; empty: there is none
	Packages     []string
	PackagesLeft []string
}

// Registry is a kind of private registry.
type Registry struct {
	Plugin
	Title   string // in messages of what it asks for
	DataDir string // by default
	User    string // that there is from the beginning, an administrator; empty: any can be made
	Ports   []int  // TCP ports that it takes besides its own
	Push    int    // the one of them, on the host's loopback, where a service of its own takes images; 0: who may pull may push
	Docker  bool   // it runs in the Docker of its host, which is not kubexm's, and whose containers have users of their own
	Letters string // what passwords may have besides ASCII letters and digits, as in the brackets of a regular expression; empty: anything
}

// Storage makes volumes of a storage class that has its name.
type Storage struct {
	Plugin
	Ready string                      // the workload that is rolled out when it runs
	Dir   func(*v1alpha1.Spec) string // of volumes on nodes
}

// PushUnit is the service that takes images; empty: the registry itself does.
func (r Registry) PushUnit() string {
	if r.Push == 0 {
		return ""
	}
	return r.Unit + "-push"
}

// AMD64 reports whether it is published for amd64 alone.
func (r Registry) AMD64() bool { return len(r.Parts) > 0 && r.Parts[0].AMD64 }

// All returns what all rows have in common.
func All() []Plugin {
	return slices.Concat(common(Runtimes()), common(Networks()), common(Proxies()), common(VIPs()), common(Registries()), common(Storages()))
}

// Of returns the rows of a cluster.
func Of(s *v1alpha1.Spec) []Plugin {
	all := append([]Plugin{RuntimeOf(s).Plugin, NetworkOf(s).Plugin, ProxyOf(s).Plugin, VIPOf(s).Plugin, RegistryOf(s).Plugin}, common(StoragesOf(s))...)
	return slices.DeleteFunc(all, func(p Plugin) bool { return p.Name == "" })
}

// RuntimeOf returns the container runtime of a cluster. As of the other kinds the row is empty where there is none, or no such one.
func RuntimeOf(s *v1alpha1.Spec) Runtime {
	return find(Runtimes(), func(r Runtime) bool { return r.Name == s.Runtime.Type })
}

// NetworkOf returns the network plugin of a cluster.
func NetworkOf(s *v1alpha1.Spec) Network {
	return find(Networks(), func(n Network) bool { return n.Name == s.Network.Plugin })
}

// ProxyOf returns the proxy in front of the masters.
func ProxyOf(s *v1alpha1.Spec) Proxy {
	lb := s.LoadBalancer
	return find(Proxies(), func(p Proxy) bool {
		return mode(s) == v1alpha1.BalancerInternal && lb.Internal != nil && lb.Internal.Type == p.Name ||
			mode(s) == v1alpha1.BalancerExternal && lb.External != nil && lb.External.Type == p.External
	})
}

// VIPOf returns what gives the virtual address to machines of the cluster.
func VIPOf(s *v1alpha1.Spec) VIP {
	return find(VIPs(), func(v VIP) bool { return v.Mode == mode(s) && (v.Pod || ProxyOf(s).Name != "") })
}

// RegistryOf returns the kind of the private registry.
func RegistryOf(s *v1alpha1.Spec) Registry {
	return find(Registries(), func(r Registry) bool { return s.Registry != nil && r.Name == s.Registry.Type })
}

// StoragesOf returns what makes volumes in a cluster.
func StoragesOf(s *v1alpha1.Spec) (all []Storage) {
	for _, one := range Storages() {
		if one.Section.Given(s) {
			all = append(all, one)
		}
	}
	return all
}

func mode(s *v1alpha1.Spec) string {
	if lb := s.LoadBalancer; lb.Enabled != nil && *lb.Enabled {
		return lb.Mode
	}
	return ""
}

// Version is that of a part of a plugin in a cluster; empty: it is a part of none.
func Version(s *v1alpha1.Spec, part string) string {
	for _, p := range All() {
		for i, c := range p.Parts {
			if chosen := p.Version.In(s); c.Name == part && (i == 0 || p.Together) && chosen != nil {
				return *chosen
			} else if c.Name == part {
				return cmp.Or(c.Version, p.Parts[0].Version)
			}
		}
	}
	return ""
}

// Leftovers is what plugins may have left on a host of a cluster, which may have been begun with others than it has now. Another
// runtime is somebody else's, and where Docker runs what is there, so is the cluster's own.
func Leftovers(s *v1alpha1.Spec, docker bool) (all Left) {
	rows := slices.Concat(common(Networks()), common(Proxies()), common(VIPs()), common(Registries()), common(Storages()))
	if !docker {
		rows = append(rows, RuntimeOf(s).Plugin)
	}
	for _, p := range rows {
		l := p.Left
		all = Left{
			append(all.Mounts, l.Mounts...), append(all.Links, l.Links...), append(all.Chains, l.Chains...), append(all.Comments, l.Comments...),
			append(all.Tables, l.Tables...), append(all.Sets, l.Sets...),
			append(all.Rules, l.Rules...), append(all.Filters, l.Filters...), append(all.Pins, l.Pins...), append(all.Paths, l.Paths...), append(all.Empty, l.Empty...),
		}
	}
	return all
}

func find[T any](rows []T, is func(T) bool) (none T) {
	if i := slices.IndexFunc(rows, is); i >= 0 {
		return rows[i]
	}
	return none
}

func common[T interface{ plugin() Plugin }](rows []T) (all []Plugin) {
	for _, r := range rows {
		all = append(all, r.plugin())
	}
	return all
}

func (p Plugin) plugin() Plugin { return p }

package runner

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/plugin"
)

// Facts is what is known of a host, read once per run.
type Facts struct {
	Hostname       string            `json:"hostname"`
	OS             string            `json:"os"`        // ID of os-release(5): debian, rocky...
	OSLike         []string          `json:"osLike"`    // ID_LIKE of os-release(5)
	OSVersion      string            `json:"osVersion"` // VERSION_ID of os-release(5)
	OSName         string            `json:"osName"`    // PRETTY_NAME of os-release(5)
	Arch           string            `json:"arch"`      // Go's name: amd64, arm64
	Kernel         string            `json:"kernel"`    // uname -r
	CgroupVersion  int               `json:"cgroupVersion"`
	CPUs           int               `json:"cpus"`
	MemoryMiB      int               `json:"memoryMiB"`
	Swaps          []string          `json:"swaps"` // active swap devices and files
	MachineID      string            `json:"machineID"`
	ProductUUID    string            `json:"productUUID"`    // of the hardware or the virtual machine; empty: it shows none
	Container      string            `json:"container"`      // kind of container that the host is, as systemd-detect-virt -c names it; empty: it is none
	PackageManager string            `json:"packageManager"` // apt, dnf, yum; empty: none known
	Systemd        bool              `json:"systemd"`        // PID 1 is systemd
	Capabilities   uint64            `json:"capabilities"`   // bounding set, capabilities(7)
	Disks          []Disk            `json:"disks"`
	Interfaces     []Interface       `json:"interfaces"`
	Former         []string          `json:"former,omitempty"`       // addresses that it had before, and has again while the cluster gets used to others
	FormerRoutes   bool              `json:"formerRoutes,omitempty"` // it has routes to such addresses of other hosts
	Routes         []Route           `json:"routes"`                 // in the main tables
	NameServers    []string          `json:"nameServers"`            // in /etc/resolv.conf
	Resolves       []string          `json:"resolves"`               // addresses that the host's own name leads to, there
	Proxied        bool              `json:"proxied"`                // commands get a proxy in their environment; where it is may be a secret
	NoProxy        string            `json:"noProxy"`                // what they reach without it
	TimeServices   []string          `json:"timeServices"`           // that run
	Firewalls      []string          `json:"firewalls"`              // that are on
	Docker         bool              `json:"docker"`                 // Docker Engine runs
	Compose        string            `json:"compose"`                // version of docker compose; empty: there is none
	Running        []string          `json:"running"`                // kubexm's services that run: units of systemd, and pods by their manifests for the kubelet; kubeadm where it has made a node
	Enforcing      bool              `json:"enforcing"`              // SELinux refuses what its policy does not allow
	Listening      map[int]string    `json:"listening"`              // TCP port: process that listens; empty: the kernel, as for NFS
	Features       map[string]bool   `json:"features"`               // what the kernel can do, see Feature*
	Clock          int64             `json:"clock"`                  // seconds since 1970
	Skew           time.Duration     `json:"-"`                      // how far the clock is ahead of this machine's, to a second or two
	Leftovers      []string          `json:"leftovers"`              // signs of an earlier cluster
	Filled         []string          `json:"filled"`                 // directories asked about that hold something
	Env            map[string]string `json:"env"`                    // kubexm's own record on the host: cluster=NAME, id=pin of its authority
	Names          map[string]string `json:"names"`                  // in /etc/hosts, and where each leads
	Servers        []string          `json:"servers"`                // that the kubeconfigs below /etc/kubernetes lead to: "lb.kubexm.local:6443"
	Managers       string            `json:"managers"`               // how its kubelet gives processors and memory to pods, see Managers
	PodNameServers []string          `json:"podNameServers"`         // that its kubelet tells pods of
	Drained        bool              `json:"drained"`                // kubexm took the pods off the node, and has not let them back yet, or not run what comes after that
	Inventory      []string          `json:"inventory"`              // what kubexm made there, see Inventory; of a host that has none, what its ledger lists

	Deaf  string            `json:"-"` // why it is not possible to listen on its loopback, where that was tried: see Listen
	Tried map[string]string `json:"-"` // addresses that the host tried, and why they are out of reach: see Reach
}

// Kernel features: there as a module that can be loaded, or built in.
const (
	FeatureOverlay  = "overlay"
	FeatureBridgeNF = "br_netfilter"
	FeatureNFTables = "nf_tables"
	FeatureIPVS     = "ip_vs"
	FeatureVXLAN    = "vxlan"
	FeatureIPSet    = "ip_set"

	FeatureConntrackFixed = "conntrack-fixed" // the size of the connection table cannot be set, as in a container
	FeatureResolved       = "resolved"        // systemd-resolved answers, /etc/resolv.conf names only itself
)

// featureOf names the feature that a symbol of the running kernel stands for.
var featureOf = map[string]string{
	"ovl_fill_super": FeatureOverlay, "br_nf_pre_routing": FeatureBridgeNF, "nft_do_chain": FeatureNFTables,
	"ip_vs_in": FeatureIPVS, "ip_vs_in_hook": FeatureIPVS, "vxlan_xmit": FeatureVXLAN,
	"ip_set_test": FeatureIPSet,
}

// factUnits are asked whether they run: time services, a firewall and Docker. Of ufw its
// own configuration is asked: its unit runs without rules, too.
var factUnits = []string{"chronyd", "chrony", "ntpd", "ntp", "ntpsec", "openntpd", "systemd-timesyncd", "firewalld", "docker"}

// services returns the units that kubexm brings and that other parts of a cluster depend on.
func services() []string {
	all := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"}
	for _, p := range plugin.All() {
		if p.Unit != "" {
			all = append(all, p.Unit)
		}
	}
	return all
}

// Runs reports whether one of kubexm's services runs on the host, as a unit or as a static pod.
func (f *Facts) Runs(service string) bool { return slices.Contains(f.Running, service) }

// capSysResource is the bit of CAP_SYS_RESOURCE, linux/capability.h.
const capSysResource = 24

// CanRaiseLimits reports whether processes may have CAP_SYS_RESOURCE. Without
// it no OOM score can be lowered.
func (f *Facts) CanRaiseLimits() bool { return f.Capabilities&(1<<capSysResource) != 0 }

// Is reports whether the host's distribution is one of ids, or like one.
func (f *Facts) Is(ids ...string) bool {
	for _, id := range ids {
		if f.OS == id {
			return true
		}
		for _, like := range f.OSLike {
			if like == id {
				return true
			}
		}
	}
	return false
}

// Disk is the file system that holds a path.
type Disk struct {
	Path    string `json:"path"`
	Mount   string `json:"mount"` // where it is mounted
	FreeMiB int    `json:"freeMiB"`
	SizeMiB int    `json:"sizeMiB"`
	FreeIno int    `json:"freeInodes"`
	Inodes  int    `json:"inodes"` // 0: it makes them as it needs them
}

// Interface is a network interface with its addresses in CIDR form.
type Interface struct {
	Name      string   `json:"name"`
	MAC       string   `json:"mac"`
	Addresses []string `json:"addresses"`
	Learns    bool     `json:"learns,omitempty"` // the kernel takes routes of IPv6 from router advertisements
}

// Route is a way that packets take: to a network in CIDR form, an address, or "default".
type Route struct {
	To  string `json:"to"`
	Dev string `json:"dev"`
}

// Where kubelets keep what is theirs and look for static pods, and programs are put.
const (
	KubeletDir = "/var/lib/kubelet"

	KubeadmFlags = KubeletDir + "/kubeadm-flags.env" // what kubeadm has the kubelet started with
	ManifestDir  = "/etc/kubernetes/manifests"
	BinDir       = "/usr/local/bin"
)

// factPaths are the places whose disk space matters on all hosts.
var factPaths = []string{KubeletDir, BinDir}

// Facts reads everything about the host in one round trip. It also tells which of
// dirs hold something, and how much room there is for them.
func (r *Runner) Facts(ctx context.Context, dirs ...string) (*Facts, error) {
	return Memo(r, "facts", func() (*Facts, error) {
		asked := time.Now()
		out, err := r.Sh(ctx, fmt.Sprintf("%sUNITS=%s\nBASE=%s\nset -- %s\n%s%s", state, Quote(strings.Join(slices.Concat(factUnits, services()), " ")),
			Quote(strings.Join(factPaths, " ")), Quote(dirs...), lookScript, factsScript))
		if err != nil {
			return nil, fmt.Errorf("gathering facts of %s: %w", r.Host, err)
		}
		f := parseFacts(out)
		f.Skew = skew(time.Unix(f.Clock, 0), asked, time.Now())
		return f, nil
	})
}

// skew is how far a clock that was read at some moment from asked to answered is
// outside of that span.
func skew(clock, asked, answered time.Time) time.Duration {
	if ahead := clock.Sub(answered); ahead > 0 {
		return ahead
	}
	return min(0, clock.Sub(asked.Truncate(time.Second)))
}

func parseFacts(out string) *Facts {
	out, names := cutSection(out, "names")
	sec := sections(out)
	first := func(n string) string {
		if len(sec[n]) == 0 {
			return ""
		}
		return strings.TrimSpace(sec[n][0])
	}
	osr := keyValues(sec["os"])
	f := &Facts{
		Hostname: first("hostname"), OS: osr["ID"], OSLike: strings.Fields(osr["ID_LIKE"]), OSVersion: osr["VERSION_ID"], OSName: osr["PRETTY_NAME"],
		Arch: goArch(first("arch")), Kernel: first("kernel"), CgroupVersion: number(first("cgroup")), CPUs: number(first("cpus")),
		MemoryMiB: number(field(first("mem"), 1)) / 1024, MachineID: first("machineid"), Systemd: first("init") == "systemd",
		PackageManager: strings.TrimSuffix(first("pm"), "-get"), Listening: map[int]string{}, Features: map[string]bool{},
		Clock: int64(number(first("clock"))), Leftovers: sec["leftovers"], Filled: sec["filled"], Env: keyValues(sec["env"]), Names: map[string]string{},
		ProductUUID: strings.ToLower(first("product")), Container: strings.TrimPrefix(first("container"), "none"), Enforcing: first("selinux") == "1",
		Compose: strings.TrimPrefix(first("compose"), "v"), Inventory: inventory(sec["inventory"], sec["ledger"]),
		Drained: first("drained") == "yes",
	}
	f.Managers, f.PodNameServers = liveKubelet(sec["kubelet"])
	f.Capabilities, _ = strconv.ParseUint(field(first("caps"), 1), 16, 64)
	for _, l := range skipFirst(sec["swaps"]) {
		f.Swaps = append(f.Swaps, field(l, 0))
	}
	for _, l := range sec["disks"] {
		if w := diskLine.FindStringSubmatch(l); w != nil {
			f.Disks = append(f.Disks, Disk{w[1], w[6], number(w[3]), number(w[2]), number(w[5]), number(w[4])})
		}
	}
	for _, l := range sec["addresses"] {
		f.address(l)
	}
	for _, l := range sec["servers"] {
		_, server, _ := strings.Cut(l, "https://")
		f.Servers = append(f.Servers, server)
	}
	f.network(sec)
	f.services(sec)
	f.names(names)
	for _, l := range sec["listening"] {
		addr := field(l, 3)
		if port := number(addr[strings.LastIndex(addr, ":")+1:]); port > 0 {
			_, rest, _ := strings.Cut(field(l, 5), `(("`)
			f.Listening[port], _, _ = strings.Cut(rest, `"`)
		}
	}
	for _, l := range sec["features"] {
		name := strings.TrimSpace(l)
		if feature, ok := featureOf[name]; ok {
			name = feature
		}
		f.Features[name] = true
	}
	return f
}

// sections are the lines of an answer below each "@name" that are not empty.
func sections(out string) map[string][]string {
	sec := map[string][]string{}
	var name string
	for l := range strings.SplitSeq(out, "\n") {
		if n, ok := strings.CutPrefix(l, "@"); ok {
			name = n
		} else if strings.TrimSpace(l) != "" {
			sec[name] = append(sec[name], l)
		}
	}
	return sec
}

// cutSection takes a long section out of an answer, whose other parts would keep it in memory.
func cutSection(out, name string) (rest, section string) {
	before, section, found := strings.Cut(out, "\n@"+name+"\n")
	if !found {
		return out, ""
	}
	after := ""
	if end := strings.Index("\n"+section, "\n@"); end >= 0 {
		section, after = section[:max(end-1, 0)], section[end:]
	}
	return before + "\n" + after, section
}

// diskLine is the path, six columns of df -m, six of df -i; the first and the last of these may have spaces in them.
var diskLine = regexp.MustCompile(`^(\S+) .+ (\d+) +\d+ +(\d+) +\S+ +/.* (\d+|-) +\S+ +(\d+|-) +\S+ +(/.*)$`)

// address reads one line of `ip -o addr`: "2: eth0    inet 10.0.0.1/24 ...".
func (f *Facts) address(l string) {
	w := strings.Fields(l)
	if len(w) < 4 || w[2] != "inet" && w[2] != "inet6" {
		return
	}
	if FormerMark.on(w) {
		ip, _, _ := strings.Cut(w[3], "/")
		f.Former = append(f.Former, ip)
		return
	}
	if n := len(f.Interfaces); n == 0 || f.Interfaces[n-1].Name != w[1] {
		f.Interfaces = append(f.Interfaces, Interface{Name: w[1]})
	}
	last := &f.Interfaces[len(f.Interfaces)-1]
	last.Addresses = append(last.Addresses, w[3])
}

// HasFormer reports whether anything of former addresses is on the host.
func (f *Facts) HasFormer() bool { return f.Former != nil || f.FormerRoutes }

// ForgetFacts has Facts gather them again.
func (r *Runner) ForgetFacts() { r.memo.Delete("facts") }

// HasAddress reports whether a card of the host has an address.
func (f *Facts) HasAddress(ip string) bool {
	return slices.ContainsFunc(f.Interfaces, func(i Interface) bool { return i.Has(ip) })
}

// Has reports whether it has an address.
func (i Interface) Has(ip string) bool {
	return slices.ContainsFunc(i.Addresses, func(a string) bool { return strings.HasPrefix(a, ip+"/") })
}

// FormerRoutes is the protocol of the routes to the former addresses of other hosts.
const FormerRoutes = "157"

// HostsBegin and HostsEnd are the lines around what kubexm writes into /etc/hosts.
const (
	HostsBegin = "# BEGIN KubeXM Managed Block"
	HostsEnd   = "# END KubeXM Managed Block"
)

// names reads /etc/hosts, but for the names of hosts that kubexm has written there, two in a line: of a thousand hosts each knows a thousand.
func (f *Facts) names(text string) {
	ours := false
	for l := range strings.SplitSeq(text, "\n") {
		ours = l == HostsBegin || ours && l != HostsEnd
		l, _, _ = strings.Cut(l, "#")
		w := strings.Fields(l)
		if len(w) < 2 || ours && len(w) > 2 {
			continue
		}
		for _, name := range w[1:] {
			f.Names[strings.Clone(name)] = cmp.Or(f.Names[name], strings.Clone(w[0])) // the first counts
		}
	}
}

// services reads which of factUnits and services run, and whether ufw is on.
func (f *Facts) services(sec map[string][]string) {
	units := services()
	for i, state := range sec["active"] { // in the order of the question
		switch {
		case state != "active" || i >= len(factUnits)+len(units):
		case i >= len(factUnits):
			f.Running = append(f.Running, units[i-len(factUnits)])
		case factUnits[i] == "firewalld":
			f.Firewalls = append(f.Firewalls, factUnits[i])
		case factUnits[i] == "docker":
			f.Docker = true
		default:
			f.TimeServices = append(f.TimeServices, factUnits[i])
		}
	}
	for _, manifest := range sec["pods"] {
		f.Running = append(f.Running, strings.TrimSuffix(path.Base(manifest), ".yaml"))
	}
	if len(sec["ufw"]) > 0 {
		f.Firewalls = append(f.Firewalls, "ufw")
	}
}

// network reads how the host finds its way: cards, routes, names, proxies.
func (f *Facts) network(sec map[string][]string) {
	for _, l := range sec["macs"] {
		for i := range f.Interfaces {
			if f.Interfaces[i].Name == field(l, 0) {
				f.Interfaces[i].MAC = field(l, 1)
			}
		}
	}
	for _, l := range sec["learns"] {
		for i := range f.Interfaces {
			if n := &f.Interfaces[i]; n.Name == field(l, 0) {
				n.Learns = field(l, 1) != "0"
			}
		}
	}
	for _, l := range sec["routes"] { // "10.0.0.0/24 via 10.0.0.1 dev eth0", "blackhole 10.1.0.0/16"
		w := strings.Fields(l)
		if w[0] != "default" && strings.Trim(w[0], "0123456789abcdef:./") != "" && len(w) > 1 {
			w = w[1:] // the type of the route
		}
		if i := slices.Index(w, "proto"); i > 0 && i+1 < len(w) && w[i+1] == FormerRoutes {
			f.FormerRoutes = true
			continue
		}
		r := Route{To: w[0]}
		if i := slices.Index(w, "dev"); i > 0 && i+1 < len(w) {
			r.Dev = w[i+1]
		}
		f.Routes = append(f.Routes, r)
	}
	for _, l := range sec["nameservers"] {
		if s := field(l, 1); s != "" {
			f.NameServers = append(f.NameServers, s)
		}
	}
	for _, l := range sec["resolves"] { // an address comes once for each type of socket
		if ip := field(l, 0); !slices.Contains(f.Resolves, ip) {
			f.Resolves = append(f.Resolves, ip)
		}
	}
	proxy := keyValues(sec["proxy"])
	f.Proxied, f.NoProxy = proxy["set"] != "", proxy["no"]
}

func keyValues(ls []string) map[string]string {
	m := map[string]string{}
	for _, l := range ls {
		if k, v, ok := strings.Cut(l, "="); ok {
			m[k] = strings.Trim(v, `"'`)
		}
	}
	return m
}

func goArch(machine string) string {
	switch machine {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return machine
}

// number returns 0 for what is not a number, as for a fact that is missing.
func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

func field(s string, n int) string {
	if f := strings.Fields(s); n < len(f) {
		return f[n]
	}
	return ""
}

func skipFirst(ls []string) []string {
	if len(ls) == 0 {
		return nil
	}
	return ls[1:]
}

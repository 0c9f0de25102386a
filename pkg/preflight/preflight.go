// Package preflight looks whether a cluster can be made of its machines, or can follow its configuration there: tables
// of checks of what is known of the hosts, and questions to them, to an external etcd and to the store. It changes nothing.
package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Severity says whether a finding makes a host unfit.
type Severity string

// The severities, in the order in which findings are shown.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Finding is what a preflight check found wrong on a host.
type Finding struct {
	Host     string   `json:"host"`
	Check    string   `json:"check"` // the name by which it can be skipped
	Found    string   `json:"found"`
	Needed   string   `json:"needed"`
	Fix      string   `json:"fix"`
	Severity Severity `json:"severity"`
}

// check looks at one host; found is empty when all is well.
type check struct {
	name string
	look func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding
}

// supported lists the distributions, by ID of os-release(5), with the versions
// known to fit. Facts: section 6 of the specification of kubexm.
var supported = map[string][]string{
	"debian": {"11", "12", "13"}, "ubuntu": {"20.04", "22.04", "24.04"},
	"centos": {"7", "8"}, "rhel": {"7", "8", "9"}, "rocky": {"8", "9"}, "almalinux": {"8", "9"},
	"openEuler": {"20.03", "22.03", "24.03"}, "kylin": {"V10"}, "anolis": {"7", "8"},
}

// Packages is the name of the check for a package manager, and for packages where there is no network.
const Packages = "packages"

// checks are all checks that look at one host, with what is known of the others.
var checks = slices.Concat(machineChecks, systemChecks, networkChecks)

var machineChecks = []check{
	{"os", func(_ *cluster.Cluster, _ *v1alpha1.Host, f *runner.Facts) Finding {
		if slices.ContainsFunc(supported[f.OS], func(v string) bool { return f.OSVersion == v || strings.HasPrefix(f.OSVersion, v+".") }) {
			return Finding{}
		}
		return Finding{Found: f.OSName, Needed: strings.Join(slices.Sorted(maps.Keys(supported)), ", ") + " in a supported version", Fix: "use a supported distribution"}
	}},
	{"systemd", func(_ *cluster.Cluster, _ *v1alpha1.Host, f *runner.Facts) Finding {
		if f.Systemd {
			return Finding{}
		}
		return Finding{Found: "process 1 is not systemd", Needed: "systemd", Fix: "boot the machine with systemd"}
	}},
	{"arch", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		if kind := plugin.RegistryOf(c.Spec); h.Is(v1alpha1.RoleRegistry) && kind.AMD64() && f.Arch == "arm64" {
			return Finding{Found: f.Arch, Needed: "amd64: " + kind.Title + " is published for amd64 only", Fix: "give another host the role registry, or choose spec.registry.type registry"}
		}
		if (h.Arch == "" || h.Arch == f.Arch) && (f.Arch == "amd64" || f.Arch == "arm64") {
			return Finding{}
		}
		return Finding{Found: f.Arch, Needed: cmp.Or(h.Arch, "amd64 or arm64"), Fix: "correct spec.hosts[].arch, or use another machine"}
	}},
	{"cpu", func(c *cluster.Cluster, _ *v1alpha1.Host, f *runner.Facts) Finding {
		return atLeast(f.CPUs, c.Spec.Preflight.MinCPUs, "%d CPUs", "give the machine more processors, or lower spec.preflight.minCPUs")
	}},
	{"memory", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		need, limit := c.Spec.Preflight.MinWorkerMemoryMiB, "minWorkerMemoryMiB"
		if h.Is(v1alpha1.RoleMaster) || cluster.InDocker(c.Spec, h) { // the least that Harbor itself wants is 4 GB, too
			need, limit = c.Spec.Preflight.MinMasterMemoryMiB, "minMasterMemoryMiB"
		}
		return atLeast(f.MemoryMiB, need, "%d MiB of memory", "give the machine more memory, or lower spec.preflight."+limit)
	}},
	{"disk", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		return room(c, h, f, "MiB", func(s store) int { return s.mib }, func(d runner.Disk) (int, bool) { return d.FreeMiB, true })
	}},
	{"inodes", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		return room(c, h, f, "inodes", func(s store) int { return s.inodes }, func(d runner.Disk) (int, bool) { return d.FreeIno, d.Inodes > 0 })
	}},
	{"kernel", onNodes(func(c *cluster.Cluster, f *runner.Facts) Finding {
		n := plugin.NetworkOf(c.Spec)
		if n.Least != "" && !atLeastKernel(f.Kernel, n.Least) {
			return Finding{Found: "kernel " + f.Kernel, Needed: n.Least + " or newer, for " + n.Name, Fix: "choose another spec.network.plugin, or upgrade the operating system"}
		}
		needed := []string{runner.FeatureOverlay, runner.FeatureBridgeNF}
		if n.Kernel != nil {
			needed = append(needed, n.Kernel(c.Spec)...)
		}
		var missing []string
		for _, m := range needed {
			if !f.Features[m] {
				missing = append(missing, m)
			}
		}
		if missing == nil {
			return Finding{}
		}
		return Finding{Found: "no " + strings.Join(missing, ", ") + " in kernel " + f.Kernel, Needed: "these modules, loadable or built in", Fix: "install the kernel's modules package"}
	})},
	{"proxy-mode", onNodes(func(c *cluster.Cluster, f *runner.Facts) Finding {
		fit := map[string]bool{v1alpha1.ProxyIPVS: f.Features[runner.FeatureIPVS], v1alpha1.ProxyNFTables: cluster.FitForNFTables(f), v1alpha1.ProxyIPTables: true, v1alpha1.ProxyNone: true}
		if mode := c.ProxyMode(); !fit[mode] {
			need := map[string]string{v1alpha1.ProxyIPVS: runner.FeatureIPVS, v1alpha1.ProxyNFTables: runner.FeatureNFTables + " and a kernel of at least 5.13"}[mode]
			return Finding{Found: "kernel " + f.Kernel, Needed: need + ", for proxyMode " + mode, Fix: "choose another spec.kubernetes.proxyMode, or another kernel"}
		}
		return Finding{}
	})},
	{Packages, func(_ *cluster.Cluster, _ *v1alpha1.Host, f *runner.Facts) Finding {
		if f.PackageManager != "" {
			return Finding{}
		}
		return Finding{Found: "no package manager", Needed: "apt, dnf or yum", Fix: "use a supported distribution"}
	}},
	{"leftovers", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		if found := othersEngine(c, h, f); found.Found != "" {
			return found
		}
		if f.Env["cluster"] != "" {
			return Finding{} // whose they are is known
		}
		left := f.Leftovers
		if c.ExternalEtcd() { // it may run on this machine, too
			left = slices.DeleteFunc(slices.Clone(left), func(l string) bool { return l == "/var/lib/etcd/member" })
		}
		if len(left) > 0 {
			return Finding{Found: human.Names(left, 4), Needed: "no leftovers of another cluster", Fix: "take the machine out of its cluster and remove them (kubeadm reset)"}
		}
		if len(f.Filled) == 0 {
			return Finding{}
		}
		return Finding{
			Found: strings.Join(f.Filled, " ") + " not empty", Needed: "empty directories, as kubexm delete cluster empties them",
			Fix: "remove what is in there (another container engine's?), or choose spec.etcd.dataDir, runtime.dataRoot and registry.dataDir elsewhere",
		}
	}},
	{"ports", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		wanted, own := ports(c, h), []string{}
		if f.Env["cluster"] != "" {
			wanted, own = otherPorts(c, h), []string{"systemd-socket-", "coredns"} // what listens there since a run that was cut off; the kernel keeps 15 characters
		}
		var taken []string
		for _, p := range wanted {
			if by, busy := f.Listening[p]; busy && !slices.Contains(own, by) {
				taken = append(taken, fmt.Sprintf("%d (by %s)", p, cmp.Or(by, "the kernel")))
			}
		}
		if taken == nil {
			return Finding{}
		}
		return Finding{Found: "port " + strings.Join(taken, ", ") + " taken", Needed: "these ports free", Fix: "stop what listens on them"}
	}},
	{"clock", func(c *cluster.Cluster, _ *v1alpha1.Host, f *runner.Facts) Finding {
		ahead, word := f.Skew, "ahead of"
		if ahead < 0 {
			ahead, word = -ahead, "behind"
		}
		found := Finding{
			Found: fmt.Sprintf("clock %s %s this machine's", ahead.Round(time.Second), word), Needed: "clocks that agree within 5 seconds",
			Fix: "set the clock that is wrong, this machine's or the host's, and let chrony or systemd-timesyncd keep it",
		}
		repaired := f.Env["cluster"] != "" || len(c.Spec.System.NTPServers) > 0 // by what is to be applied
		switch {
		case ahead <= 5*time.Second:
			return Finding{}
		case repaired && ahead <= 10*time.Minute: // certificates are valid from an hour ago
			return warning(found)
		}
		return found
	}},
	{"swap", func(_ *cluster.Cluster, _ *v1alpha1.Host, f *runner.Facts) Finding {
		if len(f.Swaps) == 0 {
			return Finding{}
		}
		return warning(Finding{Found: "swap on " + strings.Join(f.Swaps, " "), Needed: "no swap", Fix: "kubexm turns it off"})
	}},
}

// onNodes is a check of hosts that run a kubelet.
func onNodes(look func(c *cluster.Cluster, f *runner.Facts) Finding) func(*cluster.Cluster, *v1alpha1.Host, *runner.Facts) Finding {
	return func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		if !c.IsNode(h.Name) {
			return Finding{}
		}
		return look(c, f)
	}
}

// ports are those that the cluster's programs take on a host.
func ports(c *cluster.Cluster, h *v1alpha1.Host) []int {
	var ports []int
	if c.IsNode(h.Name) {
		ports = append(ports, 10248, 10249, 10250, 10256)
		ports = append(ports, cachePorts(c)...)
	}
	if h.Is(v1alpha1.RoleMaster) {
		ports = append(ports, c.APIPort(), 10257, 10259)
	}
	if c.Balances(h) || c.EndpointIP(h.Name) == c.OwnIP() {
		ports = append(ports, c.APIPort())
	}
	if h.Is(v1alpha1.RoleEtcd) {
		ports = append(ports, 2379, 2380, 2381)
	}
	if h.Is(v1alpha1.RoleRegistry) {
		ports = append(append(ports, c.RegistryPort()), plugin.RegistryOf(c.Spec).Ports...)
	}
	return ports
}

// otherPorts are those that programs take from now on on a host that is in the cluster.
func otherPorts(c *cluster.Cluster, h *v1alpha1.Host) (ports []int) {
	if at := c.ListensAt(h.Name); at != 0 && at != c.APIPort() {
		ports = append(ports, c.APIPort())
	}
	if c.IsNode(h.Name) && !slices.Contains(c.FactsOf(h.Name).PodNameServers, c.DNSCacheIP()) {
		ports = append(ports, cachePorts(c)...)
	}
	return ports
}

// cachePorts are those of the DNS cache, but for 53, which others may have at other addresses.
func cachePorts(c *cluster.Cluster) []int {
	if c.DNSCacheIP() == "" {
		return nil
	}
	return []int{9253, 9254}
}

func atLeast(have, need int, unit, fix string) Finding {
	if have >= need {
		return Finding{}
	}
	return Finding{Found: fmt.Sprintf(unit, have), Needed: "at least " + fmt.Sprintf(unit, need), Fix: fix}
}

func warning(f Finding) Finding {
	f.Severity = SeverityWarning
	return f
}

// Facts looks at the facts of all hosts that were asked for what would make
// the cluster fail, without the checks named in skip. Errors come before warnings.
// That a machine belongs to another cluster cannot be skipped. Nothing is touched.
func Facts(c *cluster.Cluster, skip []string) []Finding {
	var all []Finding
	for i := range c.Spec.Hosts {
		h := &c.Spec.Hosts[i]
		if c.Facts[h.Name] == nil {
			continue
		}
		if why := c.Stranger(h.Name); why != "" {
			all = append(all, Finding{
				Host: h.Name, Check: "owner", Found: why, Needed: "a machine of this cluster, or of no cluster", Severity: SeverityError,
				Fix: "run kubexm delete cluster with the --workdir that its cluster was created with, to release it",
			})
		}
		for _, ch := range checks {
			f := ch.look(c, h, c.FactsOf(h.Name))
			if f.Found == "" {
				continue
			}
			f.Host, f.Check, f.Severity = h.Name, ch.name, cmp.Or(f.Severity, SeverityError)
			all = append(all, f)
		}
	}
	all = append(all, alike(c)...)
	all = slices.DeleteFunc(all, func(f Finding) bool { return slices.Contains(skip, f.Check) })
	sortFindings(all)
	return all
}

// sortFindings puts errors before warnings, and leaves all else in its order.
func sortFindings(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(a.Severity, b.Severity) })
}

// Store is the name of the check that looks for gaps in the store where nothing is to be fetched.
const Store = "store"

// Connectivity is the check that a machine can be reached. It cannot be left out.
const Connectivity = "connectivity"

// Names are the names of the checks.
func Names() []string {
	var names []string
	for _, c := range checks {
		names = append(names, c.name)
	}
	for _, id := range identities {
		names = append(names, id.name)
	}
	names = append(names, Etcd, Store)
	for _, ch := range upgradeChecks {
		names = append(names, ch.name)
	}
	return names
}

// atLeastKernel compares kernels. That of Red Hat's 8.10 has what newer ones brought.
func atLeastKernel(kernel, least string) bool {
	v, err := version.ParseGeneric(kernel)
	return err != nil || v.AtLeast(version.MustParseGeneric(least)) || strings.Contains(kernel, ".el8_10")
}

// othersEngine finds a container engine that is not kubexm's under the name of the one that a node is to get, or one that it would make its own; and of a
// node that gets another one, data in its directory.
func othersEngine(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
	kind := plugin.RuntimeOf(c.Spec)
	for _, unit := range []string{kind.Unit, kind.Takes} {
		if unit != "" && c.IsNode(h.Name) && f.Runs(unit) && !slices.Contains(f.Inventory, "unit "+unit) && (f.Env["cluster"] == "" || f.Inventory != nil) {
			return Finding{Found: unit + ".service active", Needed: "no " + unit + " of others", Fix: "remove it, or choose another spec.runtime.type"}
		}
	}
	if root := c.DataRoot(); c.ChangesRuntime(h.Name) && slices.Contains(f.Filled, root) && !slices.Contains(f.Inventory, "unit "+kind.Unit) {
		return Finding{Found: root + " not empty", Needed: "an empty directory, which deleting the cluster empties", Fix: "remove what is in there, or choose spec.runtime.dataRoot elsewhere"}
	}
	return Finding{}
}

package preflight

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
)

// systemChecks look at the operating system. What is no obstacle, or what an
// operator may want as it is, is a warning.
var systemChecks = []check{
	{"kernel-version", func(_ *cluster.Cluster, _ *v1alpha1.Host, f *runner.Facts) Finding {
		have, err := version.ParseGeneric(f.Kernel)
		for _, k := range kernels {
			if err != nil || have.AtLeast(version.MustParseGeneric(k.before)) || k.cgroup != 0 && k.cgroup != f.CgroupVersion {
				continue
			}
			found := Finding{Found: "kernel " + f.Kernel, Needed: fmt.Sprintf("kernel %s or newer%s", k.before, k.why), Fix: "install a newer kernel, and boot it"}
			if k.works {
				found = warning(found)
			}
			return found
		}
		return Finding{}
	}},
	{"cgroup", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		if f.CgroupVersion != 1 || c.Minor() < 35 || !c.IsNode(h.Name) {
			return Finding{}
		}
		found := Finding{Found: "cgroup v1", Needed: "cgroup v2: kubelets from 1.35 on refuse v1 (kep.k8s.io/5573)", Fix: "boot with systemd.unified_cgroup_hierarchy=1, where kernel and systemd are new enough"}
		if c.KubeletConfig(h.Name)["failCgroupV1"] != false {
			return found // the user wants it so
		}
		found.Fix += "; until then kubexm sets failCgroupV1: false"
		return warning(found)
	}},
	{"hostname", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		fix := "kubexm sets the host name to " + h.Name + ", and adds it to /etc/hosts"
		if len(validation.IsDNS1123Subdomain(f.Hostname)) > 0 {
			return warning(Finding{Found: fmt.Sprintf("host name %q", f.Hostname), Needed: "lower case letters, digits, hyphens and dots (RFC 1123)", Fix: fix})
		}
		// kubexm's block in /etc/hosts will have the node's own name, and those of spec.extra.hosts.
		named := f.Hostname == h.Name || slices.ContainsFunc(c.Spec.Extra.Hosts, func(e v1alpha1.HostEntry) bool { return e.Domain == f.Hostname })
		if named || slices.ContainsFunc(f.Resolves, func(ip string) bool { return !isLoopback(ip) }) {
			return Finding{}
		}
		leads := "to no address"
		if len(f.Resolves) > 0 {
			leads = "to " + strings.Join(f.Resolves, ", ")
		}
		return warning(Finding{Found: fmt.Sprintf("host name %s resolves %s", f.Hostname, leads), Needed: "an address at which other hosts reach it", Fix: fix})
	}},
	{"ntp", func(c *cluster.Cluster, _ *v1alpha1.Host, f *runner.Facts) Finding {
		if f.Container != "" || len(f.TimeServices)+len(c.Spec.System.NTPServers) > 0 { // the clock of a container is its machine's
			return Finding{}
		}
		return warning(Finding{
			Found: "no time service runs", Needed: "chrony, ntpd or systemd-timesyncd: clocks drift apart without",
			Fix: "start one, or set spec.system.ntpServers: kubexm then installs chrony",
		})
	}},
	{"docker", func(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts) Finding {
		compose, err := version.ParseGeneric(f.Compose)
		switch found := (Finding{Needed: "Docker Engine and its plugin Compose 2, for " + plugin.RegistryOf(c.Spec).Title}); {
		case !cluster.InDocker(c.Spec, h):
			return Finding{}
		case !f.Docker || err != nil || !compose.AtLeast(version.MustParseGeneric("2.0")):
			found.Found = map[bool]string{true: "docker.service active", false: "docker.service not active"}[f.Docker] + ", docker compose " + cmp.Or(f.Compose, "missing")
			found.Fix = "install them (docs.docker.com/engine/install: docker-ce, docker-compose-plugin), and start them (systemctl enable --now docker): kubexm leaves Docker to its owner"
			return found
		case slices.Contains(f.Firewalls, "firewalld"):
			found.Found, found.Fix = "firewalld active: turning it off removes Docker's rules, too", "turn it off yourself, and restart Docker: systemctl disable --now firewalld; systemctl restart docker"
			return found
		}
		return Finding{}
	}},
	{"selinux", func(_ *cluster.Cluster, _ *v1alpha1.Host, f *runner.Facts) Finding {
		if !f.Enforcing {
			return Finding{}
		}
		return warning(Finding{Found: "SELinux enforcing", Needed: "SELinux permissive or off", Fix: "kubexm makes it permissive, and disables it from the next boot on"})
	}},
	{"firewall", func(_ *cluster.Cluster, _ *v1alpha1.Host, f *runner.Facts) Finding {
		if len(f.Firewalls) == 0 {
			return Finding{}
		}
		return warning(Finding{
			Found: strings.Join(f.Firewalls, " and ") + " active", Needed: "no firewall between nodes, pods and services", Fix: "kubexm turns it off",
		})
	}},
}

// kernels are the least versions, in the order in which they are asked. Facts: the
// oldest distribution that is supported; kubeadm's check of the system
// (k8s.io/system-validators); kubernetes.io/docs/concepts/architecture/cgroups.
var kernels = []struct {
	before string
	cgroup int // only with this version of cgroups; 0: any
	works  bool
	why    string
}{
	{before: "3.10"},
	{before: "4.19", works: true, why: ": Kubernetes is not tested with older ones"},
	{before: "5.8", cgroup: 2, works: true, why: ", for all that Kubernetes does with cgroup v2"},
}

func isLoopback(ip string) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && a.IsLoopback()
}

package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// skew is by how many minor versions a kubelet may be older than an API server (https://kubernetes.io/releases/version-skew-policy).
const skew = 3

// HoldsNodes reports whether nodes keep the programs that they have: the cluster passes through its release on the way to a newer one, and their kubelets
// work with the next one, too. So each node is drained once, however long the way is.
func (c *Cluster) HoldsNodes() bool {
	if !c.Passing || len(c.Observed.Nodes) == 0 {
		return false
	}
	for _, n := range c.Observed.Nodes {
		if config.Minor(n.Version) < c.Minor()+1-skew {
			return false
		}
	}
	return true
}

// Holds reports whether a node keeps its kubelet in this run, as only others are to get another one, or as the cluster goes back. A kubelet that would be too old for the API servers goes along.
func (c *Cluster) Holds(host string) bool {
	is := config.Minor(c.Observed.Nodes[host].Version)
	return (c.Back || len(c.Only) > 0 && !slices.Contains(c.Only, host)) && is < c.Minor() && is >= c.Minor()-skew && !c.FactsOf(host).Drained
}

// GoesBack reports whether a part of the cluster runs a newer minor version of Kubernetes than it is to run. Kubelets then go before API servers, as they may
// not be newer.
func (c *Cluster) GoesBack() bool {
	return slices.ContainsFunc(c.Observed.API, func(a APIServer) bool { return config.Minor(a.Version) > c.Minor() }) ||
		slices.ContainsFunc(c.Nodes(), func(h string) bool { return config.Minor(c.Observed.Nodes[h].Version) > c.Minor() })
}

// OtherKubelet reports whether the kubelet of a node has another minor version than it is to have: it is not exchanged while pods run
// (https://kubernetes.io/releases/version-skew-policy).
func (c *Cluster) OtherKubelet(host string) bool {
	is := config.Minor(c.Observed.Nodes[host].Version)
	return is != 0 && is != c.Minor()
}

// FormerRuntime is the container runtime on a host that gives way to another one, or has begun to: one that runs, or else one in whose place nothing runs.
func (c *Cluster) FormerRuntime(host string) (former plugin.Runtime, is bool) {
	f, kind := c.FactsOf(host), plugin.RuntimeOf(c.Spec)
	for _, r := range plugin.Runtimes() {
		switch ours := r.Name != kind.Name && slices.Contains(f.Inventory, "unit "+r.Unit); {
		case ours && f.Runs(r.Unit):
			return r, true
		case ours && !f.Runs(kind.Unit):
			former, is = r, true
		}
	}
	return former, is
}

// ChangesRuntime reports whether a node that runs is to get another container runtime: all that runs there ends by it. Where a run was cut off in that, what has ended
// comes back as on a machine where it had stopped.
func (c *Cluster) ChangesRuntime(host string) bool {
	former, is := c.FormerRuntime(host)
	f := c.FactsOf(host)
	return is && f.Runs(former.Unit) && (f.Runs("kubelet") || !f.Drained)
}

// SplitRuntimes tells nodes that keep their container runtime from those that change it.
func (c *Cluster) SplitRuntimes(hosts []string) (same, changing []string) {
	for _, h := range hosts {
		if c.ChangesRuntime(h) {
			changing = append(changing, h)
		} else {
			same = append(same, h)
		}
	}
	return same, changing
}

// OtherRuntime reports whether the container runtime of a node is another one than it is to have, or has another version.
func (c *Cluster) OtherRuntime(host string) bool {
	kind := plugin.RuntimeOf(c.Spec)
	name, is, _ := strings.Cut(c.Observed.Nodes[host].Runtime, "://")
	return c.ChangesRuntime(host) || name == kind.Name && !config.Same(is, c.version(kind.Parts[0].Name))
}

// RuntimeEndsPods reports whether all containers of a node end as the container runtime starts that it is to have.
func (c *Cluster) RuntimeEndsPods(host string) bool {
	if _, former := c.FormerRuntime(host); former {
		return c.ChangesRuntime(host)
	}
	kind := plugin.RuntimeOf(c.Spec)
	name, is, _ := strings.Cut(c.Observed.Nodes[host].Runtime, "://")
	patches := func(version string) string { return version[:strings.LastIndex(version, ".")+1] } // what has these for releases
	return name == kind.Name && kind.Ends && patches(is) != patches(strings.TrimPrefix(c.version(kind.Parts[0].Name), "v"))
}

// AtATime is how many of some nodes are drained and changed at a time, as spec.upgrade.maxUnavailable says; at least one.
func (c *Cluster) AtATime(nodes int) int {
	most := c.Spec.Upgrade.MaxUnavailable
	if percent, ok := strings.CutSuffix(most, "%"); ok {
		n, _ := strconv.Atoi(percent) // it was validated
		return max(1, nodes*n/100)
	}
	n, _ := strconv.Atoi(most)
	return max(1, n)
}

// Upgrades reports whether a part of the control plane runs another version than it is to run.
func (c *Cluster) Upgrades() bool {
	of, _ := c.parts()
	return slices.ContainsFunc(of, func(p part) bool { return !p.right })
}

// Runs are the versions that the control plane was found to run, the oldest of each part, and whether some of it runs what it is to run already.
func (c *Cluster) Runs() (oldest config.Release, begun bool) {
	of, oldest := c.parts()
	changes := map[string]bool{}
	for _, p := range of {
		changes[p.name] = changes[p.name] || !p.right
	}
	return oldest, slices.ContainsFunc(of, func(p part) bool { return p.right && changes[p.name] })
}

// Skew is a program that does not work with API servers of the version that the cluster is to have.
type Skew struct{ Host, Why, Fix string }

// Skews are the API servers that cannot come to that version in one step, and the kubelets that would be too old for it.
func (c *Cluster) Skews() (all []Skew) {
	to := c.Spec.Kubernetes.Version
	for _, a := range c.Observed.API {
		if is := config.Minor(a.Version); is != 0 && (is < c.Minor()-1 || is > c.Minor()+1) {
			all = append(all, Skew{
				a.Host, fmt.Sprintf("the API server of %s has version %s, from which there is no way to %s in one step", a.Host, a.Version, to),
				fmt.Sprintf("write spec.kubernetes.version: v1.%d.0, or a newer patch release of it, and apply that first", is+1),
			})
		}
	}
	for _, h := range c.Nodes() {
		if is := c.Observed.Nodes[h].Version; config.Minor(is) != 0 && config.Minor(is) < c.Minor()-skew && c.Upgrades() {
			all = append(all, Skew{
				h, fmt.Sprintf("the kubelet of %s has version %s, with which API servers of version %s do not work", h, is, to),
				fmt.Sprintf("bring it to the version of the others first: apply spec.kubernetes.version: v1.%d.0, or a newer patch release of it", c.Minor()-1),
			})
		}
	}
	return all
}

// Steps refuses what Skews finds.
func (c *Cluster) Steps() error {
	for _, s := range c.Skews() {
		return fault.Exit(fault.Advise(errors.New(s.Why), s.Fix), fault.ExitUsage)
	}
	return nil
}

// KeepsEtcd refuses to bring etcd back to a minor version once all its members have a newer one: they do not read its data.
func (c *Cluster) KeepsEtcd() error {
	_, runs := c.parts()
	if runs.Etcd == "" || config.Minor(runs.Etcd) <= config.Minor(c.Spec.Etcd.Version) {
		return nil
	}
	err := fmt.Errorf("all members of etcd have version %s, which does not go back to %s", runs.Etcd, c.Spec.Etcd.Version)
	return fault.Exit(fault.Advise(err, "write spec.etcd.version: "+runs.Etcd+"; older versions of Kubernetes work with it, too"), fault.ExitUsage)
}

// part is a process of the control plane that has a version.
type part struct {
	name  string
	right bool // it is the wanted one
}

// parts are those that answer.
func (c *Cluster) parts() (all []part, oldest config.Release) {
	for _, a := range c.Observed.API {
		if a.Version != "" {
			oldest.Kubernetes = config.Older(oldest.Kubernetes, a.Version)
			all = append(all, part{"kube-apiserver", config.Same(a.Version, c.Spec.Kubernetes.Version)})
		}
	}
	for _, m := range c.Observed.Members {
		if m.Version != "" && c.Spec.Etcd.Version != "" {
			oldest.Etcd = config.Older(oldest.Etcd, "v"+m.Version)
			all = append(all, part{"etcd", config.Same(m.Version, c.Spec.Etcd.Version)})
		}
	}
	return all, oldest
}

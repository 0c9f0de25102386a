package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Leave adds hosts that leave the cluster, as they were configured. They are in no other list of hosts than Leaving and the Former ones: what is
// written about the hosts of the cluster does not name them.
func (c *Cluster) Leave(hosts ...v1alpha1.Host) {
	for i := range hosts {
		c.leaving = append(c.leaving, hosts[i].Name)
		c.hosts[hosts[i].Name] = &hosts[i]
	}
}

// Leaving returns the hosts that leave the cluster, those that are lost too.
func (c *Cluster) Leaving() []string { return c.leaving }

// Lost returns the hosts that leave the cluster and are not there any more: they were not reached, or are other machines now.
func (c *Cluster) Lost() []string {
	return slices.DeleteFunc(slices.Clone(c.leaving), c.IsTouched)
}

// Leavers returns the hosts that leave the cluster and are there, to be taken off it and cleaned.
func (c *Cluster) Leavers() []string {
	return slices.DeleteFunc(slices.Clone(c.leaving), func(h string) bool { return !c.IsTouched(h) })
}

// Whole reports whether a host runs all that it is to run, but for pods.
func (c *Cluster) Whole(host string) bool {
	h, f := c.Host(host), c.FactsOf(host)
	for service, wanted := range map[string]bool{
		"kubelet": c.IsNode(host), c.mark("kubelet"): c.IsNode(host), "kube-apiserver": h.Is(v1alpha1.RoleMaster), "etcd": h.Is(v1alpha1.RoleEtcd) && !c.ExternalEtcd(),
		plugin.VIPOf(c.Spec).Unit: c.Balances(h), plugin.RegistryOf(c.Spec).Unit: h.Is(v1alpha1.RoleRegistry),
	} {
		if wanted && !f.Runs(service) {
			return false
		}
	}
	return true
}

// formerly returns the hosts that have something, of those that are not to have it any more, the ones that leave last.
func (c *Cluster) formerly(role func(*v1alpha1.Host) bool, has func(*runner.Facts) bool) (hosts []string) {
	for _, h := range append(c.Hosts(), c.Leavers()...) {
		if (slices.Contains(c.leaving, h) || !role(c.Host(h))) && has(c.FactsOf(h)) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// FormerMasters returns the hosts that run an API server and are not to be masters any more.
func (c *Cluster) FormerMasters() []string {
	return c.formerly(func(h *v1alpha1.Host) bool { return h.Is(v1alpha1.RoleMaster) }, func(f *runner.Facts) bool { return f.Runs("kube-apiserver") })
}

// FormerEtcd returns the hosts that run a member of etcd, or have data of one that they ran, and are not to have one any more.
func (c *Cluster) FormerEtcd() []string {
	if c.ExternalEtcd() {
		return nil
	}
	return c.formerly(func(h *v1alpha1.Host) bool { return h.Is(v1alpha1.RoleEtcd) }, func(f *runner.Facts) bool {
		ran := func(key string) bool { return key == "unit etcd" || key == "path /etc/kubernetes/pki/etcd/server.crt" }
		return f.Runs("etcd") || slices.Contains(f.Filled, c.Spec.Etcd.DataDir) && slices.ContainsFunc(f.Inventory, ran)
	})
}

// FormerNodes returns the hosts that run a kubelet, or have run one, and are not to be nodes any more.
func (c *Cluster) FormerNodes() []string {
	return c.formerly(func(h *v1alpha1.Host) bool { return c.IsNode(h.Name) }, func(f *runner.Facts) bool { return f.Runs("kubelet") || f.Drained || f.Runs("kubeadm") })
}

// GoneNodes returns the names of nodes that the API is to have no more: those of hosts that leave the cluster, and of hosts that are no nodes any more.
func (c *Cluster) GoneNodes() []string {
	gone := slices.Clone(c.FormerNodes())
	for _, h := range c.leaving {
		if host := c.Host(h); (host.Is(v1alpha1.RoleMaster) || host.Is(v1alpha1.RoleWorker)) && !slices.Contains(gone, h) {
			gone = append(gone, h)
		}
	}
	return gone
}

// EtcdHosts returns the connected hosts that are members of etcd or run one, those that are to be members first.
func (c *Cluster) EtcdHosts() []string { return append(c.Etcd(), c.FormerEtcd()...) }

// LostMembers returns the members of etcd that are in the way: those that do not work and are not to, and those whose data is gone, as another
// machine has taken the name of theirs.
func (c *Cluster) LostMembers() (lost []EtcdMember) {
	fresh, _ := c.Split("etcd", c.Etcd())
	for _, m := range c.Observed.Members {
		burnt := slices.Contains(fresh, m.Host) && m.Started && !c.hasEtcdData(m.Host)
		leaves := !slices.Contains(c.Etcd(), m.Host)
		if m.ID != 0 && m.Host != "" && !slices.Contains(c.missing, m.Host) && (burnt || leaves && (!m.Healthy || !slices.Contains(c.EtcdHosts(), m.Host))) {
			lost = append(lost, m)
		}
	}
	return lost
}

// MemberOf returns the member of etcd on a host; its ID is 0 where there is none, or it is not known.
func (c *Cluster) MemberOf(host string) EtcdMember {
	if i := slices.IndexFunc(c.Observed.Members, func(m EtcdMember) bool { return m.Host == host }); i >= 0 {
		return c.Observed.Members[i]
	}
	return EtcdMember{}
}

// SplitEtcd tells the hosts that are to have a member of etcd and run none apart: those whose members start together, as they were made
// together, and those that join the members that there are, one after the other. The rest run. Where a cluster was made to its end, and none of its members
// answers, nobody knows which of both a host without data is, and it is an error: those that wrongly began together would be another, empty etcd.
func (c *Cluster) SplitEtcd() (together, joining, live []string) {
	fresh, live := c.Split("etcd", c.Etcd())
	known := slices.ContainsFunc(c.Observed.Members, func(m EtcdMember) bool { return m.ID != 0 })
	for _, h := range fresh {
		m := c.MemberOf(h)
		if !known || m.ID != 0 && m.Name != "" && (!m.Started || c.hasEtcdData(h)) {
			together = append(together, h)
		} else {
			joining = append(joining, h)
		}
	}
	if unknown := slices.DeleteFunc(slices.Clone(together), c.hasEtcdData); !known && c.Complete && unknown != nil && slices.ContainsFunc(append(c.All(), c.Leavers()...), c.mayHaveEtcdData) {
		err := fmt.Errorf("no member of etcd answers: whether %s are to join it cannot be found out", strings.Join(unknown, ", "))
		c.Check(fault.Advise(err, "see why on the hosts that have its data: journalctl -u etcd; or take the new hosts out of the configuration until it runs"))
	}
	slices.SortStableFunc(joining, func(a, b string) int { return cmp.Compare(c.joins(b), c.joins(a)) })
	return together, joining, live
}

// joins is 1 for a host that a run which was cut off has begun to make a member of: etcd takes no other one meanwhile.
func (c *Cluster) joins(host string) int {
	if c.MemberOf(host).ID != 0 {
		return 1
	}
	return 0
}

// mayHaveEtcdData is hasEtcdData of a host that may be out of reach, or is to have no member any more.
func (c *Cluster) mayHaveEtcdData(host string) bool {
	return slices.Contains(c.missing, host) && c.Host(host).Is(v1alpha1.RoleEtcd) || c.hasEtcdData(host)
}

func (c *Cluster) hasEtcdData(host string) bool {
	return slices.Contains(c.FactsOf(host).Filled, c.Spec.Etcd.DataDir)
}

// KeepsMajority counts through all changes of the members of etcd that are to be made, in their order: those that are lost go, others join, and those
// that leave go. It is an error if there were no majority after one of them.
func (c *Cluster) KeepsMajority() error {
	lost, leave := c.LostMembers(), c.FormerEtcd()
	_, joining, _ := c.SplitEtcd()
	if len(lost)+len(leave) == 0 {
		return nil
	}
	healthy, total := c.Observed.Quorum()
	var done []string
	short := func(what string) error {
		done = append(done, what)
		if healthy >= total/2+1 {
			return nil
		}
		err := fmt.Errorf("etcd would lose its majority: %s: %d of %d members that vote would be healthy, and a majority is %d", strings.Join(done, ", "), healthy, total, total/2+1)
		return fault.Advise(err, "bring up members that do not work first: kubexm status")
	}
	if healthy < total/2+1 {
		return short("now")
	}
	for _, m := range lost {
		if !m.Learner {
			total--
		}
		if err := short("without the lost member of " + m.Host); err != nil {
			return err
		}
	}
	if c.Spec.Etcd.Type == v1alpha1.TypeKubeadm {
		fresh, _ := c.SplitMasters()
		joining = fresh
	}
	healthy, total = healthy+len(joining), total+len(joining)
	for _, h := range leave {
		m := c.MemberOf(h)
		if m.ID == 0 || m.Learner || slices.ContainsFunc(lost, func(l EtcdMember) bool { return l.ID == m.ID }) { // it went with those that are lost
			continue
		}
		if total--; m.Healthy {
			healthy--
		}
		if err := short("without " + h); err != nil {
			return err
		}
	}
	return nil
}

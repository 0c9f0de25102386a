package cluster

import (
	"fmt"
	"slices"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// Needed says why nothing can be done without a host that is down, of all those that are; empty: it can be left out. Until the
// cluster runs only workers can; once it does any host can that leaves behind what the others need (Observed).
func (c *Cluster) Needed(host string, down []string) string {
	h := c.Host(host)
	switch {
	case !c.Lives():
		if len(h.Roles) == 1 && h.Is(v1alpha1.RoleWorker) {
			return ""
		}
		return fmt.Sprintf("until the cluster runs, only workers can be left out, and its roles are %v: all masters and load balancers are made together, "+
			"and etcd counts members that are down against its majority; bring it up, or remove it from spec.hosts", h.Roles)
	case h.Is(v1alpha1.RoleRegistry):
		return "it is the private registry, which the images come from"
	case h.Is(v1alpha1.RoleMaster) && !remains(c.Observed.AnyAPI(), down):
		return "it is a master, and no other one has an API server that is ready"
	case c.Balances(h) && !remains(c.All(v1alpha1.RoleLoadBalancer), down):
		return "it is a load balancer, and no other one is left"
	case !h.Is(v1alpha1.RoleEtcd) && slices.Contains(c.All(), host) && !c.ExternalEtcd() && c.MemberOf(host).ID != 0:
		return "its member of etcd is to go, and is not removed without it; to give up the whole machine: kubexm delete node " + host + " --force"
	case h.Is(v1alpha1.RoleEtcd):
		if votes, total := c.votesWithout(down); votes < total/2+1 {
			return fmt.Sprintf("it has a member of etcd, and without it %d of %d are healthy, which is no majority", votes, total)
		}
	}
	return ""
}

// remains reports whether some host is not down.
func remains(hosts, down []string) bool {
	return slices.ContainsFunc(hosts, func(h string) bool { return !slices.Contains(down, h) })
}

// votesWithout counts the healthy members of etcd that are on none of the hosts and vote, of all that vote.
func (c *Cluster) votesWithout(down []string) (healthy, total int) {
	left := Observed{Members: slices.Clone(c.Observed.Members)}
	for i := range left.Members {
		m := &left.Members[i]
		m.Healthy = m.Healthy && !slices.Contains(down, m.Host)
	}
	return left.Quorum()
}

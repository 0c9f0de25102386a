package task

import (
	"slices"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/controlplane"
	"github.com/kubexm/kubexm/pkg/step/etcd"
	"github.com/kubexm/kubexm/pkg/step/health"
	"github.com/kubexm/kubexm/pkg/step/host"
	"github.com/kubexm/kubexm/pkg/step/kubelet"
)

// LostMembers takes members off etcd that do not run any more and never will, before others change: they count against the majority.
func LostMembers(c *cluster.Cluster) plan.Part {
	lost, hosts := c.LostMembers(), c.EtcdHosts()
	_, live := c.Split("etcd", hosts)
	if len(lost) == 0 || len(live) == 0 {
		return plan.Module{}
	}
	return on("lost", inTurn(c, live)[len(live)-1:], func(string) (steps []step.Step) {
		for _, m := range lost {
			steps = append(steps, etcd.Remove(c, m))
		}
		return steps
	})
}

// LostNodes removes the nodes of machines that are gone, also where new ones take their places, and those that the backup of a restore in place alone has: their pods start elsewhere now, and not
// when Kubernetes gives up waiting for them, after five minutes.
func LostNodes(c *cluster.Cluster) plan.Part {
	lost := slices.DeleteFunc(append(c.Lost(), c.Replaced...), func(h string) bool { return !c.IsNode(h) })
	for _, h := range c.GoneSince() {
		if !slices.Contains(lost, h) {
			lost = append(lost, h)
		}
	}
	return plan.If(len(lost) > 0, on("lost", []string{plan.API}, func(string) (steps []step.Step) {
		for _, h := range lost {
			steps = append(steps, kubelet.Gone(c, h))
		}
		return steps
	}))
}

// FormerMachines takes away what a backup has of machines that others take the places of.
func FormerMachines(c *cluster.Cluster) plan.Part {
	return plan.If(c.Restore != nil && !c.Restore.InPlace, on("former", []string{plan.API}, func(string) []step.Step { return []step.Step{kubelet.FormerMachines(c)} }))
}

// Retire takes masters and members of etcd off hosts that are not to be any more, one host after the other: first its pods and the virtual address
// go elsewhere, then its API server ends, then the leadership of etcd and its vote go.
func Retire(c *cluster.Cluster) plan.Part {
	masters, members, nodes, hosts := c.FormerMasters(), c.FormerEtcd(), c.FormerNodes(), retired(c)
	steps := func(h string) (all []step.Step) {
		if slices.Contains(nodes, h) {
			all = append(all, kubelet.Emptied(c, h)...)
		}
		if slices.Contains(masters, h) { // an API server that ends takes itself out of the service kubernetes, while its etcd answers
			all = append(append(all, elsewhere(c, h)...), controlplane.Gone())
		}
		if slices.Contains(members, h) {
			all = append(all, health.HandOver(c, h))
			if m := c.MemberOf(h); m.ID != 0 {
				all = append(all, etcd.Remove(c, m))
			}
			all = append(all, etcd.Gone(c))
		}
		return all
	}
	return rolling(c, inTurn(c, hosts, c.VIPHolder(), c.Observed.EtcdLeader()), health.Well, on("retire", hosts, steps))
}

// retired are the hosts of Retire, each once.
func retired(c *cluster.Cluster) []string {
	hosts := c.FormerMasters()
	for _, h := range c.FormerEtcd() {
		if !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// elsewhere passes the virtual address on from a master that is none any more.
func elsewhere(c *cluster.Cluster, host string) (steps []step.Step) {
	for _, vip := range plugin.VIPs() {
		if vip.Pod && c.FactsOf(host).Runs(vip.Unit) && vip.Name == plugin.VIPOf(c.Spec).Name {
			steps = append(steps, vips[vip.Name].handOver(c, host, c.Masters()))
		}
	}
	return steps
}

// emptied is how many nodes are drained at a time when many leave.
const emptied = 10

// Emptied takes the pods off nodes that leave, but for those that Retire has emptied.
func Emptied(c *cluster.Cluster) plan.Part {
	control := retired(c)
	nodes := slices.DeleteFunc(c.FormerNodes(), func(h string) bool { return slices.Contains(control, h) })
	return plan.Batches{Size: emptied, Part: on("empty", nodes, func(h string) []step.Step { return kubelet.Emptied(c, h) })}
}

// NoNodes removes the nodes of hosts that are none any more, once their kubelets have ended.
func NoNodes(c *cluster.Cluster) plan.Part {
	stay := slices.DeleteFunc(c.FormerNodes(), func(h string) bool { return slices.Contains(c.Leaving(), h) })
	return plan.Module{Parts: []plan.Part{
		on("kubelet", stay, func(string) []step.Step { return []step.Step{kubelet.Stopped()} }),
		on("nodes", []string{plan.API}, func(string) (steps []step.Step) {
			for _, h := range c.GoneNodes() {
				if !slices.Contains(c.Lost(), h) {
					steps = append(steps, kubelet.Gone(c, h))
				}
			}
			return steps
		}),
	}}
}

// NoFormer takes the former addresses off hosts, once nobody knows them by these.
func NoFormer(c *cluster.Cluster) plan.Task {
	return on("former", host.FormerHosts(c), func(string) []step.Step { return []step.Step{host.NoFormer()} })
}

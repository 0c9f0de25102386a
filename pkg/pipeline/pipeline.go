// Package pipeline holds what a user can ask for.
package pipeline

import (
	"slices"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/module"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step/host"
	"github.com/kubexm/kubexm/pkg/task"
)

// Create makes a cluster: keys first, then downloads, control plane and workers side by side, and
// each worker joins as soon as both it and the API server are ready. Workers that fail
// hold back nobody else, while one is left.
func Create(c *cluster.Cluster) plan.Pipeline {
	downloads, pushed, api := plan.NewGate("downloads"), plan.NewGate("private registry"), plan.NewGate("API server")
	prepared := plan.NewGate("control plane prepared")
	workers := c.SpareWorkers()
	both := slices.DeleteFunc(c.Workers(), func(h string) bool { return slices.Contains(workers, h) }) // members of etcd, or the registry, too
	return plan.Pipeline{Name: "create", Parts: []plan.Part{
		task.Keys(c),
		plan.Parallel{
			downloads.Opens(task.Download(c)),
			plan.Module{Parts: []plan.Part{
				prepared.Opens(task.Prepare(c, c.ControlPlaneHosts())),
				plan.Parallel{module.Registry(c, downloads, pushed), module.Masters(c, downloads, pushed, api)},
			}},
			module.Spare(c, plan.PerHost{task.Prepare(c, workers), module.Machines(c, workers, downloads, pushed), module.Join(c, workers, api)}),
			plan.PerHost{prepared.Holds(module.Machines(c, both, downloads, pushed)), module.Join(c, both, api)},
			module.LoadBalancers(c),
		},
		module.Ready(c),
		module.Leave(c),
		task.EtcdTimers(c),
		task.Configuration(c),
		plan.If(len(c.Spec.Addons) > 0, task.Addons(c)), // of the user's, which hold up nothing else
		module.Spare(c, task.Pruned(c, c.All())),
	}}
}

// Apply brings a cluster that runs to what its configuration says: what is missing as Create does, what runs
// one by one. Machines are prepared first, but for new workers, then come those that others depend on, then those that depend on them.
func Apply(c *cluster.Cluster) plan.Pipeline {
	if c.HoldsNodes() {
		return pass(c)
	}
	downloads, pushed, api := plan.NewGate("downloads"), plan.NewGate("private registry"), plan.NewGate("API server")
	balancers := c.Hosts(v1alpha1.RoleLoadBalancer)
	later := slices.Concat(balancers, module.FreshWorkers(c))
	hosts := slices.DeleteFunc(c.Hosts(v1alpha1.RoleMaster, v1alpha1.RoleEtcd, v1alpha1.RoleRegistry, v1alpha1.RoleWorker), func(h string) bool {
		return slices.Contains(later, h)
	})
	nodes := c.Nodes()
	// New pods of addons are there before others are drained, unless a run that was cut off has drained a node: they may wait for it.
	moves := len(c.Drains(nodes)) > 0 && !slices.ContainsFunc(nodes, func(h string) bool { return c.FactsOf(h).Drained })
	if c.Kubeadm() { // a master that is none yet becomes a node by its join
		fresh, _ := c.SplitMasters()
		nodes = slices.DeleteFunc(nodes, func(h string) bool { return slices.Contains(fresh, h) })
	}
	machines := module.LiveMachines(c, nodes, downloads)
	return plan.Pipeline{Name: "apply", Parts: []plan.Part{
		task.LetBack(c), task.Keys(c), module.Snapshot(c), task.Forward(c),
		plan.Parallel{downloads.Opens(task.Download(c)), task.Prepare(c, hosts)},
		module.Registry(c, downloads, pushed), task.Detour(c),
		plan.Parallel{module.LoadBalancers(c), module.LiveImages(c, nodes, downloads, pushed)},
		plan.If(c.GoesBack(), plan.Module{Parts: []plan.Part{machines, module.ProxyBack(c)}}),
		api.Opens(module.LiveControlPlane(c, downloads, pushed)), module.LiveAddons(c), plan.If(moves, task.AddonsReady(c)),
		plan.Parallel{plan.If(!c.GoesBack(), machines), module.FreshMachines(c, nodes, downloads, pushed, api)},
		task.NodeAddresses(c), module.Endpoint(c),
		module.Ready(c),
		module.Leave(c),
		task.NoFormer(c),
		task.EtcdTimers(c),
		task.Configuration(c),
		plan.If(len(c.Spec.Addons) > 0, task.Addons(c)),                      // of the user's, which hold up nothing else
		module.Spare(c, task.Pruned(c, slices.DeleteFunc(c.All(), c.Holds))), // what a node still has
	}}
}

// pass brings the control plane of a cluster to a release on the way to another one. Nodes stay as they are, and so does what runs on them.
func pass(c *cluster.Cluster) plan.Pipeline {
	downloads, pushed := plan.NewGate("downloads"), plan.NewGate("private registry")
	return plan.Pipeline{Name: "apply", Parts: []plan.Part{
		task.LetBack(c), task.Keys(c), module.Snapshot(c), downloads.Opens(task.Download(c)),
		module.Registry(c, downloads, pushed), module.LiveImages(c, c.Masters(), downloads, pushed),
		module.LiveControlPlane(c, downloads, pushed),
		task.Configuration(c),
	}}
}

// Restore brings the data of a backup to a cluster that runs, or did. Its machines stay what they are: Apply brings them to the configuration.
func Restore(c *cluster.Cluster) plan.Pipeline {
	return plan.Pipeline{Name: "restore", Parts: []plan.Part{task.Keys(c), task.Download(c), task.Restore(c)}}
}

// UpgradeSystem brings the operating systems of the hosts of a cluster that runs to newer packages, and restarts machines where that is needed.
func UpgradeSystem(c *cluster.Cluster, u host.Update) plan.Pipeline {
	return plan.Pipeline{Name: "upgrade-os", Parts: []plan.Part{task.LetBack(c), task.System(c, u)}}
}

// Defragment gives freed space of etcd back to the disks.
func Defragment(c *cluster.Cluster) plan.Pipeline {
	return plan.Pipeline{Name: "defragment-etcd", Parts: []plan.Part{task.Defragment(c)}}
}

// Delete takes a cluster off its machines, all at once. A machine that kubexm has
// not worked on is left alone, whatever runs there.
func Delete(c *cluster.Cluster) plan.Pipeline {
	return plan.Pipeline{Name: "delete", Parts: []plan.Part{task.Clean(c, append(c.Touched(), c.Leavers()...))}}
}

// Download fetches what clusters need, and may need for a restore, into the store, and then does what there is to
// do with it.
func Download(clusters []*cluster.Cluster, then ...plan.Part) plan.Pipeline {
	return plan.Pipeline{Name: "download", Parts: append([]plan.Part{task.DownloadAll(clusters...)}, then...)}
}

// Push brings images of the store to the private registry.
func Push(c *cluster.Cluster, refs []string) plan.Pipeline {
	return plan.Pipeline{Name: "push", Parts: []plan.Part{task.RegistryImages(c, refs)}}
}

// Import takes bundles into the store, one after the other.
func Import(bundles ...plan.Part) plan.Pipeline { return plan.Pipeline{Name: "import", Parts: bundles} }

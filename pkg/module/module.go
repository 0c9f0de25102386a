// Package module holds the stages that pipelines are made of.
package module

import (
	"slices"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/task"
)

// Machines makes hosts ready to become nodes: each goes through on its own, with
// programs on their way while images are loaded. What needs files from the store
// waits for downloads, what needs images from the private registry, where there is one, for pushed.
func Machines(c *cluster.Cluster, hosts []string, downloads, pushed *plan.Gate) plan.Part {
	programs := task.NodePrograms
	if c.Kubeadm() {
		programs = task.KubeadmPrograms
	}
	var images plan.Part = task.Images(c, hosts)
	if c.RegistryHost() != "" {
		images = pushed.Holds(images)
	}
	return plan.Module{Name: "machines", Parts: []plan.Part{plan.PerHost{plan.Parallel{
		plan.Module{Parts: []plan.Part{downloads.Holds(task.Runtime(c, hosts)), images}},
		downloads.Holds(programs(c, hosts)),
	}}}}
}

// Masters makes the control plane, nodes of its machines, and what runs in every
// cluster; api opens when the API server answers. What needs no container runtime
// starts side by side with it.
func Masters(c *cluster.Cluster, downloads, pushed, api *plan.Gate) plan.Part {
	hosts := c.Masters()
	etcd := plan.If(c.Spec.Etcd.Type == v1alpha1.TypeKubexm, downloads.Holds(task.Etcd(c)))
	control := func(parts ...plan.Part) plan.Part { return plan.Module{Name: "control-plane", Parts: parts} }
	if c.Kubeadm() {
		first, more := hosts[:1], hosts[1:]
		return plan.Parallel{
			plan.Module{Parts: []plan.Part{
				plan.Parallel{Machines(c, first, downloads, pushed), control(etcd)}, control(api.Opens(begun(c, task.KubeadmInit(c)))), plan.Parallel{control(task.RBAC(c)), Addons(c)},
			}},
			plan.PerHost{Machines(c, more, downloads, pushed), api.Holds(control(task.KubeadmJoinMasters(c, more)))},
		}
	}
	programs := func(names ...string) plan.Part { return downloads.Holds(task.ControlPlanePrograms(c, hosts, names...)) }
	return plan.Parallel{
		plan.Module{Parts: []plan.Part{
			control(plan.Parallel{
				plan.Module{Parts: []plan.Part{plan.Parallel{etcd, programs("kube-apiserver")}, api.Opens(begun(c, task.APIServer(c, hosts)))}},
				programs("kube-controller-manager", "kube-scheduler", "kubectl"),
			}),
			plan.Parallel{control(plan.Parallel{task.ControllerManager(c, hosts), task.Scheduler(c, hosts), task.RBAC(c)}), Addons(c)},
		}},
		plan.PerHost{Machines(c, hosts, downloads, pushed), api.Holds(task.NodeServices(c, hosts))},
	}
}

// begun is the first API server; where its data is that of a backup, machines that are gone are taken out of it before any host becomes a node.
func begun(c *cluster.Cluster, api plan.Part) plan.Part {
	if c.Restore == nil {
		return api
	}
	return plan.Module{Parts: []plan.Part{api, task.FormerMachines(c)}}
}

// LiveControlPlane keeps the control plane of a cluster that runs: its parts one machine after the other, etcd first. Masters
// that are none yet begin as further masters of a new cluster do.
func LiveControlPlane(c *cluster.Cluster, downloads, pushed *plan.Gate) plan.Part {
	fresh, live := c.SplitMasters()
	control := func(parts ...plan.Part) plan.Part { return plan.Module{Name: "control-plane", Parts: parts} }
	var begin, configure plan.Part = plan.Module{}, plan.Module{}
	switch {
	case c.Kubeadm():
		begin = plan.Module{Parts: []plan.Part{Machines(c, fresh, downloads, pushed), plan.If(fresh != nil, control(task.KubeadmRecord(c), task.KubeadmJoinMasters(c, fresh)))}}
		configure = control(downloads.Holds(task.KubeadmConfig(c, live)))
	case fresh != nil:
		begin = plan.Parallel{
			control(
				downloads.Holds(task.ControlPlanePrograms(c, fresh, "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")),
				task.APIServer(c, fresh), plan.Parallel{task.ControllerManager(c, fresh), task.Scheduler(c, fresh)},
			),
		}
	}
	etcd := control(downloads.Holds(task.Etcd(c)))
	grant := plan.If(grantsFirst(c), task.RBAC(c))
	early := len(c.Lost())+len(c.Replaced) > 0 || c.Kubeadm() && fresh != nil // else an API server that is away must come back before
	return plan.Module{Parts: []plan.Part{
		control(task.LostMembers(c), plan.If(early, task.Fence(c)), task.LostNodes(c), task.FormerMachines(c), grant), configure, etcd, begin,
		control(downloads.Holds(task.LiveMasters(c, live)), task.APIPort(c), plan.If(!early, task.Fence(c))),
	}}
}

// Snapshot keeps what etcd has before an upgrade changes anything.
func Snapshot(c *cluster.Cluster) plan.Part {
	return plan.Module{Name: "control-plane", Parts: []plan.Part{task.Snapshot(c)}}
}

// LiveAddons keeps what is in every cluster, once all API servers are what they are to be.
func LiveAddons(c *cluster.Cluster) plan.Part {
	return plan.Parallel{plan.If(!grantsFirst(c), plan.Module{Name: "control-plane", Parts: []plan.Part{task.RBAC(c)}}), Addons(c)}
}

// grantsFirst reports whether API servers are granted access to kubelets before they change: those that kubeadm made call them as somebody else, to whom it has granted that.
func grantsFirst(c *cluster.Cluster) bool { return c.Kubeadm() && c.Observed.AnyAPI() != nil }

// LiveImages brings to nodes that run what they will need. Where the container runtime has stopped, it starts first; so does the
// kubelet, which starts the control plane where that is made of pods.
func LiveImages(c *cluster.Cluster, hosts []string, downloads, pushed *plan.Gate) plan.Part {
	_, live := c.SplitNodes(hosts)
	same, changing := c.SplitRuntimes(live) // these need them until they change, too
	stopped, _ := c.Split(plugin.RuntimeOf(c.Spec).Unit, same)
	var kubelets, certs []string
	if c.Kubeadm() {
		kubelets, _ = c.Split("kubelet", same)
		certs = live
	}
	var images plan.Part = plan.Module{Parts: []plan.Part{task.Images(c, same), task.FormerImages(c, changing)}}
	if c.RegistryHost() != "" {
		images = pushed.Holds(plan.Module{Parts: []plan.Part{task.PulledImages(c, same), task.FormerImages(c, changing)}})
	}
	return plan.Module{Name: "machines", Parts: []plan.Part{plan.PerHost{
		task.CacheAddress(c, live),  // before its cache starts
		task.KubeletCerts(c, certs), // before API servers trust no others
		plan.Module{Name: "stopped", Parts: []plan.Part{downloads.Holds(task.Runtime(c, stopped)), downloads.Holds(task.LiveKubeadmPrograms(c, kubelets))}}, downloads.Holds(images),
	}}}
}

// FreshWorkers are the hosts that are no nodes yet, and that nothing else in the cluster depends on.
func FreshWorkers(c *cluster.Cluster) []string {
	fresh, _ := c.SplitNodes(c.SpareWorkers())
	return fresh
}

// LiveMachines keeps nodes that run, a few at a time.
func LiveMachines(c *cluster.Cluster, hosts []string, downloads *plan.Gate) plan.Part {
	_, live := c.SplitNodes(hosts)
	return plan.Module{Name: "machines", Parts: []plan.Part{downloads.Holds(task.LiveNodes(c, slices.DeleteFunc(slices.Clone(live), c.Holds))), task.LiveProxies(c, live)}}
}

// FreshMachines makes nodes of hosts that are none yet. FreshWorkers are prepared only here: to hosts that run nothing happens by it.
func FreshMachines(c *cluster.Cluster, hosts []string, downloads, pushed, api *plan.Gate) plan.Part {
	fresh, _ := c.SplitNodes(hosts)
	return plan.PerHost{task.Prepare(c, FreshWorkers(c)), Machines(c, fresh, downloads, pushed), Join(c, fresh, api)}
}

// Leave takes off the cluster what is not to be part of it any more: hosts, and what hosts that stay were. Nothing leads there by then.
func Leave(c *cluster.Cluster) plan.Part {
	if c.GoneNodes() == nil && c.Leaving() == nil && c.FormerMasters() == nil && c.FormerEtcd() == nil {
		return plan.Module{}
	}
	return plan.Module{Name: "leave", Parts: []plan.Part{task.Emptied(c), task.Retire(c), task.Clean(c, c.Leavers()), task.NoNodes(c), task.AddonsReady(c)}}
}

// Endpoint lets all hosts find the API server where they are to find it, once it is there.
func Endpoint(c *cluster.Cluster) plan.Part {
	return plan.Module{Name: "endpoint", Parts: []plan.Part{task.MoveEndpoint(c, c.Moved())}}
}

// Join makes nodes of workers as soon as api opens, by way of the proxy that each of
// them runs where that is how API servers are reached.
func Join(c *cluster.Cluster, hosts []string, api *plan.Gate) plan.Part {
	join := task.NodeServices
	if c.Kubeadm() {
		join = task.KubeadmJoin
	}
	return plan.PerHost{task.LocalProxy(c, hosts), api.Holds(join(c, hosts))}
}

// Registry runs the private registry, where there is one; pushed opens when it has what nodes need.
func Registry(c *cluster.Cluster, downloads, pushed *plan.Gate) plan.Part {
	return plan.If(c.RegistryHost() != "", plan.Module{Name: "registry", Parts: []plan.Part{
		downloads.Holds(task.Registry(c)), pushed.Opens(task.RegistryImages(c, c.AllImages())),
	}})
}

// LoadBalancers makes the machines in front of the masters.
func LoadBalancers(c *cluster.Cluster) plan.Part {
	hosts := c.Hosts(v1alpha1.RoleLoadBalancer)
	fresh, live := c.Split(plugin.VIPOf(c.Spec).Unit, slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return !c.Balances(c.Host(h)) }))
	return plan.Module{Name: "load-balancers", Parts: []plan.Part{
		plan.PerHost{task.Prepare(c, hosts), task.LoadBalancers(c, fresh)}, task.LiveBalancers(c, live),
	}}
}

// Addons installs what is in every cluster, and what makes volumes.
func Addons(c *cluster.Cluster) plan.Part {
	return plan.Module{Name: "addons", Parts: []plan.Part{plan.Parallel{
		task.Network(c), task.DNS(c), plan.If(c.Kubeadm() && !c.GoesBack(), task.Proxy(c)), task.Identity(c), plan.If(c.Spec.Storage != nil, task.Storage(c)),
	}}}
}

// ProxyBack brings kube-proxy to an older version where it runs in pods, before API servers go there: it may not be newer than one of them.
func ProxyBack(c *cluster.Cluster) plan.Part {
	return plan.If(c.Kubeadm(), plan.Module{Name: "addons", Parts: []plan.Part{task.Proxy(c), task.ProxyReady(c)}})
}

// Spare lets workers fail in p, as long as one is left for what runs in every cluster.
func Spare(c *cluster.Cluster, p plan.Part) plan.Part {
	return plan.Tolerate(max(0, len(c.SpareWorkers())-1), p)
}

// Ready waits until the cluster works.
func Ready(c *cluster.Cluster) plan.Part {
	workers := c.SpareWorkers()
	others := slices.DeleteFunc(c.Nodes(), func(h string) bool { return slices.Contains(workers, h) })
	return plan.Module{Name: "verify", Parts: []plan.Part{
		plan.If(c.Balancer() != "", Spare(c, task.Endpoint(c))),
		plan.Parallel{task.Ready(c, others), Spare(c, task.Ready(c, workers))},
		task.AddonsReady(c),
	}}
}

// Package module holds the stages that pipelines are made of.
package module

import (
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/task"
)

// Machines makes hosts ready to become nodes: each goes through on its own, with
// programs on their way while images are loaded. What needs files from the store
// waits for downloads.
func Machines(c *cluster.Cluster, hosts []string, downloads *plan.Gate) plan.Part {
	programs := task.NodePrograms
	if c.Kubeadm() {
		programs = task.KubeadmPrograms
	}
	return plan.Module{Name: "machines", Parts: []plan.Part{plan.PerHost{plan.Parallel{
		plan.Module{Parts: []plan.Part{downloads.Holds(task.Runtime(c, hosts)), task.Images(c, hosts)}},
		downloads.Holds(programs(c, hosts)),
	}}}}
}

// Masters makes the control plane, nodes of its machines, and what runs in every
// cluster; api opens when the API server answers. What needs no container runtime
// starts side by side with it.
func Masters(c *cluster.Cluster, downloads, api *plan.Gate) plan.Part {
	hosts := c.Masters()
	machines := Machines(c, hosts, downloads)
	etcd := plan.If(c.Spec.Etcd.Type == "kubexm", downloads.Holds(task.Etcd(c)))
	control := func(parts ...plan.Part) plan.Part { return plan.Module{Name: "control-plane", Parts: parts} }
	if c.Kubeadm() {
		return plan.Module{Parts: []plan.Part{plan.Parallel{machines, control(etcd)}, control(api.Opens(task.KubeadmInit(c))), Addons(c)}}
	}
	programs := func(names ...string) plan.Part { return downloads.Holds(task.ControlPlanePrograms(c, names...)) }
	return plan.Parallel{
		plan.Module{Parts: []plan.Part{
			control(plan.Parallel{
				plan.Module{Parts: []plan.Part{plan.Parallel{etcd, programs("kube-apiserver")}, api.Opens(task.APIServer(c))}},
				programs("kube-controller-manager", "kube-scheduler", "kubectl"),
			}),
			plan.Parallel{control(plan.Parallel{task.ControllerManager(c), task.Scheduler(c), task.RBAC(c)}), Addons(c)},
		}},
		plan.PerHost{machines, api.Holds(task.NodeServices(c, hosts))},
	}
}

// Join makes nodes of workers.
func Join(c *cluster.Cluster, hosts []string) plan.Part {
	if c.Kubeadm() {
		return task.KubeadmJoin(c, hosts)
	}
	return task.NodeServices(c, hosts)
}

// Addons installs what runs in every cluster.
func Addons(c *cluster.Cluster) plan.Part {
	return plan.Module{Name: "addons", Parts: []plan.Part{plan.Parallel{task.Network(c), task.DNS(c)}}}
}

// Ready waits until the cluster works.
func Ready(c *cluster.Cluster) plan.Part {
	return plan.Module{Name: "verify", Parts: []plan.Part{task.Ready(c, c.Nodes()), task.AddonsReady(c)}}
}

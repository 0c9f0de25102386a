package task

import (
	"net"
	"slices"
	"strconv"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/health"
	"github.com/kubexm/kubexm/pkg/step/host"
	"github.com/kubexm/kubexm/pkg/step/kubeadm"
	"github.com/kubexm/kubexm/pkg/step/kubelet"
)

// System brings packages of the operating system to newer versions, and restarts machines where that is needed: masters and members of etcd one by one
// between gates, those with the virtual address and with the leader of etcd last, then load balancers and the private registry one by one, then workers, as many at a time as spec.upgrade says
// once the first one is well. A machine that has nothing to change is left alone.
func System(c *cluster.Cluster, u host.Update) plan.Part {
	var control, single, workers []string
	for _, h := range c.Hosts() {
		switch is := c.Host(h); {
		case is.Is(v1alpha1.RoleMaster) || is.Is(v1alpha1.RoleEtcd):
			control = append(control, h)
		case is.Is(v1alpha1.RoleWorker) && !is.Is(v1alpha1.RoleLoadBalancer) && !is.Is(v1alpha1.RoleRegistry):
			workers = append(workers, h)
		default:
			single = append(single, h)
		}
	}
	single = inTurn(c, single, c.VIPHolder())
	workers = drainedFirst(c, workers)
	order := inTurn(c, drainedFirst(c, control), c.VIPHolder(), c.Observed.EtcdLeader())
	pause := plan.Part(nil)
	if c.Spec.Upgrade.Pause.Duration > 0 && len(workers) > 1 {
		pause = on("pause", workers[:1], func(h string) []step.Step { return []step.Step{kubelet.Watch(c, h)} })
	}
	return plan.Module{Parts: []plan.Part{
		rolling(c, order, health.Well, addressed(c, order, order, systems(c, order, u))),
		plan.Batches{Part: systems(c, single, u)},
		wavesAfter(workers, c.AtATime(len(workers)), pause, func(hosts []string) plan.Part { return systems(c, hosts, u) }),
	}}
}

// systems are the systems of hosts, side by side: each host is drained, and gets pods again, by itself.
func systems(c *cluster.Cluster, hosts []string, u host.Update) plan.Part {
	nodes := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return !c.IsNode(h) })
	return plan.PerHost{plan.Scope{
		Name:    "machine",
		Begin:   on("drain", hosts, func(h string) []step.Step { return leaves(c, h) }),
		Part:    on("system", hosts, func(h string) []step.Step { return host.Updated(c, h, u) }),
		End:     on("healthy", hosts, func(h string) []step.Step { return returns(c, h) }),
		Finally: on("uncordon", nodes, func(h string) []step.Step { return kubelet.Uncordon(c, h) }),
	}}
}

// leaves makes sure that the others do without a machine, and takes the pods off it.
func leaves(c *cluster.Cluster, h string) (steps []step.Step) {
	is := c.Host(h)
	if is.Is(v1alpha1.RoleMaster) || is.Is(v1alpha1.RoleEtcd) {
		steps = append(steps, health.ControlPlane(c, h), health.HandOver(c, h))
	}
	if others := otherBalancers(c, h); others != nil {
		api := c.ProxyAPI()
		api.Address, api.Others = others[0], others[1:]
		steps = append(steps, step.APIReady{API: api, Advice: "no other load balancer answers: bring one up first"})
	}
	if c.IsNode(h) {
		steps = append(steps, kubelet.Evict(c, h)...)
	}
	return steps
}

// otherBalancers are where the load balancers but one listen; nil where the host is none, or the only one.
func otherBalancers(c *cluster.Cluster, h string) (at []string) {
	for _, other := range c.Hosts(v1alpha1.RoleLoadBalancer) {
		if c.Host(h).Is(v1alpha1.RoleLoadBalancer) && other != h {
			at = append(at, net.JoinHostPort(c.IP(other), strconv.Itoa(c.APIPort())))
		}
	}
	return at
}

// returns waits until a machine does again what it did.
func returns(c *cluster.Cluster, h string) (steps []step.Step) {
	is := c.Host(h)
	if c.IsNode(h) {
		steps = append(steps, kubelet.Healthy(c, h))
	}
	switch {
	case is.Is(v1alpha1.RoleMaster):
		steps = append(steps, step.APIReady{API: c.API(h)})
	case is.Is(v1alpha1.RoleLoadBalancer):
		steps = append(steps, step.APIReady{API: c.ProxyAPI()})
	}
	if c.IsNode(h) {
		steps = append(steps, kubelet.Back(c, h))
	}
	if c.Kubeadm() && is.Is(v1alpha1.RoleMaster) {
		steps = append(steps, kubeadm.ProxyHears(c))
	}
	return steps
}

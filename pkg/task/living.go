package task

import (
	"slices"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/controlplane"
	"github.com/kubexm/kubexm/pkg/step/etcd"
	"github.com/kubexm/kubexm/pkg/step/health"
	"github.com/kubexm/kubexm/pkg/step/kubeadm"
	"github.com/kubexm/kubexm/pkg/step/kubelet"
)

// rolling sends hosts through a part: those on which the service does not run yet together, then those on which it runs one
// after the other, each behind the gate of the control plane, before and after it. What was found broken comes first, last
// those of last.
func rolling(c *cluster.Cluster, service string, hosts, last []string, part func(hosts []string) plan.Part) plan.Part {
	fresh, live := c.Split(service, hosts)
	broken := slices.Concat(c.Observed.BrokenEtcd(), c.Observed.BrokenAPI())
	rank := func(h string) int {
		switch {
		case slices.Contains(broken, h):
			return 0
		case slices.Contains(last, h):
			return 2
		}
		return 1
	}
	slices.SortStableFunc(live, func(a, b string) int { return rank(a) - rank(b) })
	return plan.Module{Parts: []plan.Part{
		part(fresh),
		plan.Batches{Order: live, Gate: func(h string) step.Step { return health.ControlPlane(c, h) }, Part: part(live)},
	}}
}

// LiveEtcd keeps the members of an etcd that runs. The one that leads comes last, after it has handed over.
func LiveEtcd(c *cluster.Cluster) plan.Part {
	if c.ExternalEtcd() {
		return plan.Module{}
	}
	return rolling(c, "etcd", c.Etcd(), []string{c.Observed.EtcdLeader()}, func(hosts []string) plan.Part {
		return plan.Scope{
			Name:  "member",
			Begin: on("hand-over", hosts, func(h string) []step.Step { return []step.Step{health.HandOver(c, h)} }),
			Part: on("etcd", hosts, func(h string) []step.Step {
				if c.Spec.Etcd.Type == v1alpha1.TypeKubeadm {
					return []step.Step{kubeadm.EtcdMember(c, h, kubeadmEtcd(c, h))}
				}
				return []step.Step{etcd.Programs(c, h), etcd.DataDir(c), etcd.MemberCerts(c, h), etcd.Service(c, h)}
			}),
		}
	})
}

// KubeadmConfig brings to masters what kubeadm reads there when their static pods are made anew.
func KubeadmConfig(c *cluster.Cluster, hosts []string) plan.Task {
	return on("configuration", hosts, func(h string) []step.Step { return masterPKI(c, h)[1:] })
}

// LiveMasters keeps the API server, controller manager and scheduler of masters that run.
func LiveMasters(c *cluster.Cluster, hosts []string) plan.Part {
	return rolling(c, apiServer, hosts, nil, func(hosts []string) plan.Part {
		return on("master", hosts, func(h string) []step.Step {
			if c.Kubeadm() {
				return slices.Concat(masterPKI(c, h)[:1], []step.Step{
					kubeadm.ControlPlane(c, h, kubeadmEtcd(c, h), etcdClient(c, h)...), step.APIReady{API: c.API(h)},
				}, kubeVIP(c, h))
			}
			var all []step.Step
			for _, name := range []string{apiServer, "kube-controller-manager", "kube-scheduler", "kubectl"} {
				all = append(all, controlplane.Programs(c, h, name))
			}
			return append(append(all, apiServerSteps(c, h)...), controlplane.ControllerManager(c, h), controlplane.Scheduler(c, h))
		})
	})
}

const apiServer = "kube-apiserver"

// LiveNodes keeps runtime, kubelet and kube-proxy of nodes that run: of one at first, then of a quarter at a time. The next
// ones wait until the kubelets before them are well.
func LiveNodes(c *cluster.Cluster, hosts []string) plan.Part {
	part := func(hosts []string) plan.Part {
		programs := []plan.Part{NodePrograms(c, hosts), NodeServices(c, hosts)}
		if c.Kubeadm() {
			programs = []plan.Part{KubeadmPrograms(c, hosts)}
		}
		return plan.Scope{
			Name: "node", Part: plan.PerHost(slices.Concat([]plan.Part{Runtime(c, hosts)}, programs)),
			End: on("healthy", hosts, func(h string) []step.Step { return []step.Step{kubelet.Healthy(c, h)} }),
		}
	}
	first := min(1, len(hosts))
	return plan.Module{Parts: []plan.Part{
		plan.Batches{Part: part(hosts[:first])},
		plan.Batches{Size: len(hosts) / 4, Part: part(hosts[first:])},
	}}
}

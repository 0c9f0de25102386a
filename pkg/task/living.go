package task

import (
	"cmp"
	"slices"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/controlplane"
	"github.com/kubexm/kubexm/pkg/step/etcd"
	"github.com/kubexm/kubexm/pkg/step/health"
	"github.com/kubexm/kubexm/pkg/step/host"
	"github.com/kubexm/kubexm/pkg/step/kubeadm"
	"github.com/kubexm/kubexm/pkg/step/kubelet"
	"github.com/kubexm/kubexm/pkg/step/loadbalancer"
)

// inTurn is the order in which hosts change: what was found broken comes first, last ones come last.
func inTurn(c *cluster.Cluster, hosts []string, last ...string) []string {
	broken := slices.Concat(c.Observed.BrokenEtcd(), c.Observed.BrokenAPI())
	rank := func(h string) int {
		if slices.Contains(broken, h) {
			return -2
		}
		return slices.Index(last, h)
	}
	return slices.SortedStableFunc(slices.Values(hosts), func(a, b string) int { return rank(a) - rank(b) })
}

// rolling sends hosts through a part one after the other, each when the control plane is well, before and after it. A host that has begun
// ends, also when the run is to stop.
func rolling(c *cluster.Cluster, order []string, well onHost, part plan.Part) plan.Part {
	return plan.Batches{Order: order, Gate: func(h string) step.Step { return well(c, h) }, Part: part}
}

// waves sends hosts through a part: one at first, then size of them at a time.
func waves(hosts []string, size int, part func(hosts []string) plan.Part) plan.Part {
	return wavesAfter(hosts, size, nil, part)
}

// wavesAfter does so, with something before the others, where they are to change.
func wavesAfter(hosts []string, size int, before plan.Part, part func(hosts []string) plan.Part) plan.Part {
	first := min(1, len(hosts))
	others := plan.Batches{Size: size, Part: part(hosts[first:])}
	return plan.Module{Parts: []plan.Part{plan.Batches{Part: part(hosts[:first])}, plan.Scope{Name: "others", Begin: before, Part: others}}}
}

// Forward lets all hosts that listen for API requests answer at the wanted port and at former ones, before anything else changes.
// A load balancer of the user's is waited for.
func Forward(c *cluster.Cluster) plan.Part {
	var listeners []string
	for _, h := range c.Hosts() {
		if c.FormerPorts() != nil && c.ListensAt(h) != 0 {
			listeners = append(listeners, h)
		}
	}
	parts := []plan.Part{on("forward", listeners, func(h string) []step.Step {
		return append([]step.Step{host.CanForward(), host.Record(c, h)}, host.Forward(c, h, c.ListensAt(h))...)
	})}
	if listeners != nil && c.Balancer() == v1alpha1.BalancerExternal && plugin.ProxyOf(c.Spec).Name == "" {
		parts = append(parts, on("balancer", c.Workers()[:min(1, len(c.Workers()))], func(string) []step.Step { return []step.Step{loadbalancer.Own(c)} }))
	}
	return plan.Module{Name: "port", Parts: parts}
}

// listening are steps that restart what listens for API requests on a host, where another proxy may have listened. While the port changes it is reached at the former one,
// too, as soon as it listens at the new one.
func listening(c *cluster.Cluster, h string, steps ...step.Step) []step.Step {
	steps = append(loadbalancer.Former(c, h), steps...)
	if c.FormerPorts() == nil {
		return steps
	}
	return slices.Concat([]step.Step{host.PortFree(c)}, steps, host.Forward(c, h, c.APIPort()))
}

// Etcd keeps the members of etcd that kubexm runs: those that were made together start together, others join one by one, and those that run
// change one by one. The one that leads comes last, after it has handed over.
func Etcd(c *cluster.Cluster) plan.Part {
	if c.Spec.Etcd.Type != v1alpha1.TypeKubexm {
		return plan.Module{}
	}
	together, joining, live := c.SplitEtcd()
	return plan.Module{Parts: []plan.Part{
		members(c, together), joined(c, joining),
		on("begun", live, func(string) []step.Step { return []step.Step{etcd.Bootstrap(c)} }),
		rolling(c, inTurn(c, live, c.Observed.EtcdLeader()), health.EtcdWell, member(c, liveMembers(c, live), health.EtcdWell)),
	}}
}

// Defragment gives freed space of etcd back, one member after the other, and the one that leads last, after it has handed over. Where etcd takes no writes for lack of space, no member is
// healthy: then nobody waits for that, its history is compacted before, and the alarm is cleared in the end.
func Defragment(c *cluster.Cluster) plan.Part {
	hosts := inTurn(c, c.VotingEtcd(), c.Observed.EtcdLeader())
	if hosts == nil {
		return plan.Module{}
	}
	each := on("defragment", hosts, func(h string) []step.Step { return []step.Step{etcd.Defragment(c, h)} })
	if c.Observed.FullEtcd() {
		compact := on("compact", hosts[:1], func(string) []step.Step { return []step.Step{etcd.Compact(c)} })
		return plan.Module{Name: "etcd", Parts: []plan.Part{compact, plan.Batches{Size: 1, Part: each}, on("alarm", hosts[:1], func(string) []step.Step { return []step.Step{etcd.Disarm(c)} })}}
	}
	return plan.Module{Name: "etcd", Parts: []plan.Part{rolling(c, hosts, health.EtcdWell, member(c, each, health.EtcdWell))}}
}

// joined makes members of etcd of hosts, next to members that run: one begins when all before it vote.
func joined(c *cluster.Cluster, hosts []string) plan.Part {
	return rolling(c, hosts, health.EtcdWell, on("join", hosts, func(h string) []step.Step {
		return []step.Step{
			etcd.Programs(c, h), etcd.DataDir(c), etcd.MemberCerts(c, h), etcd.NewJoin(c, h), etcd.Service(c, h), etcd.Promote(c, h), etcd.Bootstrap(c), etcd.Shell(c, h),
		}
	}))
}

// member is what changes members of etcd, each when the others are a majority. One that leads hands over before. One that is
// not well afterwards gets back what it had.
func member(c *cluster.Cluster, t plan.Task, well onHost) plan.Part {
	return plan.Scope{Name: "member", Part: t, Begin: on("hand-over", t.Hosts, func(h string) []step.Step {
		return []step.Step{health.ControlPlane(c, h), health.HandOver(c, h)}
	}), End: on("healthy", t.Hosts, func(h string) []step.Step { return []step.Step{well(c, h)} })}
}

// Snapshot takes a snapshot of etcd before a part of the control plane changes its version: where no member can give one, nothing is upgraded. That of an etcd of somebody else's is up to them.
func Snapshot(c *cluster.Cluster) plan.Part {
	host := cmp.Or(etcd.SnapshotHost(c), plan.Control)
	return plan.If(c.Upgrades() && !c.ExternalEtcd(), on("snapshot", []string{host}, func(h string) []step.Step { return []step.Step{etcd.NewSnapshot(c, h)} }))
}

// KubeadmConfig brings to masters kubeadm, and what it reads there when their static pods are recreated.
func KubeadmConfig(c *cluster.Cluster, hosts []string) plan.Task {
	return on("configuration", hosts, func(h string) []step.Step { return []step.Step{kubeadm.Programs(c, h), kubeadmConfig(c, h)} })
}

// LiveMasters keeps the API server, controller manager and scheduler of masters that run, one by one; and first the
// member of etcd on each, where that is kubeadm's. The API server comes last on the way back.
func LiveMasters(c *cluster.Cluster, hosts []string) plan.Part {
	files := on("files", hosts, func(h string) []step.Step {
		if c.Kubeadm() {
			return podReads(c, h).Certs
		}
		return append([]step.Step{controlplane.Programs(c, h, "kube-apiserver")}, apiServerFiles(c, h)...)
	})
	var master plan.Part = on("master", hosts, func(h string) []step.Step {
		if !c.Kubeadm() {
			return append(apiServer(c, h), vipPod(c, h)...)
		}
		return slices.Concat([]step.Step{controlplane.Kubeconfigs(c, h), kubeadm.OwnKubelet(c, h)}, listening(c, h, kubeadm.ControlPlane(c, h, kubeadmEtcd(c, h), podReads(c, h))),
			[]step.Step{step.APIReady{API: c.API(h)}}, vipPod(c, h))
	})
	last := []string{c.VIPHolder()}               // so that the address moves once
	if c.Spec.Etcd.Type == v1alpha1.TypeKubeadm { // a member that changes takes its API server along
		last = append(last, c.Observed.EtcdLeader())
		var parts []plan.Part
		if c.FormerPorts() != nil {
			parts = append(parts, on("port", hosts, func(string) []step.Step { return []step.Step{host.PortFree(c)} }))
		}
		etcd := on("etcd", hosts, func(h string) []step.Step {
			return append([]step.Step{kubeadm.EtcdMember(c, h, kubeadmEtcd(c, h), podReads(c, h))}, moved(c, h)...)
		})
		master = plan.Module{Parts: append(parts, member(c, etcd, health.Well), master)}
	}
	order := inTurn(c, hosts, last...)
	master = addressed(c, hosts, order, master)
	parts := []plan.Part{files, master}
	if !c.Kubeadm() {
		parts = append(parts, on("controllers", hosts, func(h string) []step.Step {
			return []step.Step{
				controlplane.Programs(c, h, "kube-controller-manager"), controlplane.Programs(c, h, "kube-scheduler"), controlplane.Programs(c, h, "kubectl"),
				controlplane.ControllerManager(c, h), controlplane.Scheduler(c, h),
			}
		}))
		if c.GoesBack() { // they may not be newer than their API server
			slices.Reverse(parts[1:])
		}
	}
	all := rolling(c, order, health.Well, plan.Module{Parts: parts})
	if !c.Kubeadm() {
		return all
	}
	return plan.Module{Parts: []plan.Part{all, on("pods", hosts, func(h string) []step.Step {
		return []step.Step{kubeadm.ControlPlaneRuns(c, h, kubeadmEtcd(c, h), podReads(c, h))}
	})}}
}

// addressed is a part that restarts what gives masters the virtual address, where that is a static pod: one that has it hands it over before, to those first that have
// changed, and then to those that do so last.
func addressed(c *cluster.Cluster, hosts, order []string, master plan.Part) plan.Part {
	for _, vip := range plugin.VIPs() {
		if vip.Pod && vip.Name == plugin.VIPOf(c.Spec).Name && !vip.Holds(c.Spec) {
			continue // each master is to have the address: the others do not take it over any more
		}
		if _, holders := c.Split(vip.Unit, hosts); vip.Pod && holders != nil {
			master = plan.Scope{Name: "address", Part: master, Begin: on("hand-over", holders, func(h string) []step.Step {
				at := slices.Index(order, h)
				later := slices.Clone(order[at+1:])
				slices.Reverse(later)
				return []step.Step{vips[vip.Name].handOver(c, h, slices.Concat(order[:at], later))}
			})}
		}
	}
	return master
}

// LetBack lets pods back on nodes from which a run that was cut off has taken them, before anything that may fail; LiveNodes does so where the kubelet does not run.
func LetBack(c *cluster.Cluster) plan.Part {
	hosts := slices.DeleteFunc(c.Nodes(), func(h string) bool { return !c.FactsOf(h).Drained || !c.FactsOf(h).Runs("kubelet") })
	return plan.If(c.Observed.AnyAPI() != nil, on("let-back", hosts, func(h string) []step.Step { return kubelet.LetBack(c, h) }))
}

// drainedFirst are hosts, those first that have no pods: they get them back first.
func drainedFirst(c *cluster.Cluster, hosts []string) []string {
	return slices.SortedStableFunc(slices.Values(hosts), func(a, b string) int { return cmp.Compare(left(c, a), left(c, b)) })
}

// left is 0 for a node from which a run that was cut off has taken the pods.
func left(c *cluster.Cluster, host string) int {
	if c.FactsOf(host).Drained {
		return 0
	}
	return 1
}

// restartsPods reports whether the kubelet of a master that gets another minor version restarts static pods, such as those of the control plane: it knows them by a
// checksum of all their fields, of which another version has others (k8s.io/kubernetes/pkg/kubelet/config/common.go, applyDefaults). So does another container runtime.
func restartsPods(c *cluster.Cluster, host string) bool {
	vip := plugin.VIPOf(c.Spec)
	return c.Host(host).Is(v1alpha1.RoleMaster) && (c.Kubeadm() || vip.Pod && c.Host(host).Is(vip.Role)) && (c.OtherKubelet(host) || c.RuntimeEndsPods(host))
}

// LiveNodes keeps runtime, kubelet and kube-proxy of nodes that run: of one at first, then of a quarter at a time, or as
// many as spec.upgrade says where they must be drained, or their container runtimes change their version. The next ones wait until
// the kubelets before them are well. Masters whose static pods restart by it go one by one between gates, before the others, or after
// them on the way back: their proxies may hear late of pods that move.
func LiveNodes(c *cluster.Cluster, hosts []string) plan.Part {
	hosts = drainedFirst(c, hosts)
	var masters, others []string
	for _, h := range hosts {
		if restartsPods(c, h) {
			masters = append(masters, h)
		} else {
			others = append(others, h)
		}
	}
	size, pause := len(others)/4, plan.Part(nil)
	if slices.ContainsFunc(others, c.OtherRuntime) {
		size = c.AtATime(len(others))
	}
	if drains := c.Drains(others); len(drains) > 0 {
		size = c.AtATime(len(drains))
		if c.Spec.Upgrade.Pause.Duration > 0 && len(others) > 1 {
			pause = on("pause", others[:1], func(h string) []step.Step { return []step.Step{kubelet.Watch(c, h)} })
		}
	}
	parts := []plan.Part{liveMasterNodes(c, masters), wavesAfter(others, size, pause, func(hosts []string) plan.Part { return liveNode(c, hosts, nil, nil) })}
	if c.GoesBack() {
		slices.Reverse(parts)
	}
	return plan.Module{Parts: parts}
}

// liveMasterNodes does so with masters whose static pods restart by it.
func liveMasterNodes(c *cluster.Cluster, hosts []string) plan.Part {
	order := inTurn(c, hosts, c.VIPHolder(), c.Observed.EtcdLeader())
	before := func(h string) []step.Step {
		if c.Spec.Etcd.Type != v1alpha1.TypeKubeadm {
			return nil
		}
		return []step.Step{health.ControlPlane(c, h), health.HandOver(c, h)}
	}
	after := func(h string) []step.Step {
		return []step.Step{kubeadm.PodsRenewed(), step.APIReady{API: c.API(h)}, kubeadm.ProxyHears(c), health.Well(c, h)}
	}
	return rolling(c, order, health.Well, addressed(c, hosts, order, liveNode(c, hosts, before, after)))
}

// liveNode keeps hosts: what must be drained is drained before, and gets pods again in any case. More steps go before and after.
func liveNode(c *cluster.Cluster, hosts []string, before, after func(host string) []step.Step) plan.Part {
	programs := []plan.Part{NodePrograms(c, hosts), NodeServices(c, hosts)}
	if c.Kubeadm() {
		programs = []plan.Part{LiveKubeadmPrograms(c, hosts)}
	}
	_, changing := c.SplitRuntimes(hosts)
	node := plan.Scope{
		Name: "node", Part: plan.PerHost(slices.Concat([]plan.Part{Runtime(c, hosts), Images(c, changing)}, programs)),
		End: on("healthy", hosts, func(h string) (steps []step.Step) {
			steps = append(steps, kubelet.Healthy(c, h))
			if after != nil {
				steps = append(steps, after(h)...)
			}
			return steps
		}),
	}
	if away := c.Drains(hosts); len(away) > 0 {
		node.Begin = on("drain", away, func(h string) (steps []step.Step) {
			if before != nil {
				steps = before(h)
			}
			return append(steps, kubelet.Drain(c, h)...)
		})
		node.Finally = on("uncordon", away, func(h string) []step.Step { return kubelet.Uncordon(c, h) })
	}
	return node
}

// LiveProxies keeps the proxies by which workers that run reach the API servers. The next workers wait until one answers through those before.
func LiveProxies(c *cluster.Cluster, hosts []string) plan.Part {
	hosts = LocalProxy(c, hosts).Hosts
	return waves(hosts, len(hosts)/4, func(hosts []string) plan.Part {
		return plan.Scope{Name: "proxies", Part: LocalProxy(c, hosts), End: on("answers", hosts, func(string) []step.Step { return []step.Step{step.APIReady{API: c.ProxyAPI()}} })}
	})
}

// LiveBalancers keeps load balancers that run, one by one, the one that has the virtual address last. The next one waits until an API server answers through the one before.
func LiveBalancers(c *cluster.Cluster, hosts []string) plan.Part {
	return plan.Batches{Order: inTurn(c, hosts, c.VIPHolder()), Part: plan.Scope{
		Name: "balancer", Part: LoadBalancers(c, hosts),
		End: on("answers", hosts, func(string) []step.Step { return []step.Step{step.APIReady{API: c.ProxyAPI()}} }),
	}}
}

// Detour lets the name of the API server's endpoint lead to masters for the time in which a virtual address is exchanged for another one: a
// quarter of the nodes at a time.
func Detour(c *cluster.Cluster) plan.Part {
	hosts := c.Readdressed()
	return plan.Batches{Size: len(hosts) / 4, Part: on("detour", hosts, func(h string) []step.Step {
		detour := host.Detour(c, h)
		return append([]step.Step{detour, host.PodHosts(c, h, c.Detour(h)[0])}, host.Leave(c, c.SharedBefore(h))...)
	})}
}

// MoveEndpoint lets the name of the API server's endpoint lead to another place on hosts, once an API server answers there: a
// quarter of them at a time.
func MoveEndpoint(c *cluster.Cluster, hosts []string) plan.Part {
	return plan.Batches{Size: len(hosts) / 4, Part: on("move", hosts, func(h string) []step.Step {
		all := []step.Step{step.APIReady{API: c.NewEndpointAPI(h)}, host.Endpoint(c, h)}
		if c.IsNode(h) {
			all = append(all, host.PodHosts(c, h, c.EndpointIP(h)))
		}
		return append(all, host.Leave(c, c.SharedBefore(h))...)
	})}
}

// Package task holds small goals: which dedicated steps, in which order, on
// which hosts.
package task

import (
	"slices"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/addon"
	"github.com/kubexm/kubexm/pkg/step/cleanup"
	"github.com/kubexm/kubexm/pkg/step/control"
	"github.com/kubexm/kubexm/pkg/step/controlplane"
	"github.com/kubexm/kubexm/pkg/step/etcd"
	"github.com/kubexm/kubexm/pkg/step/health"
	"github.com/kubexm/kubexm/pkg/step/host"
	"github.com/kubexm/kubexm/pkg/step/kubeadm"
	"github.com/kubexm/kubexm/pkg/step/kubelet"
	"github.com/kubexm/kubexm/pkg/step/loadbalancer"
	"github.com/kubexm/kubexm/pkg/step/registry"
)

// on is a task whose steps are made for each host.
func on(name string, hosts []string, steps func(host string) []step.Step) plan.Task {
	return plan.Task{Name: name, Hosts: hosts, Steps: steps}
}

// Prepare makes the operating system of hosts ready.
func Prepare(c *cluster.Cluster, hosts []string) plan.Task {
	return on("prepare", hosts, func(h string) []step.Step {
		all := slices.Concat(
			[]step.Step{host.Record(c, h), host.Hosts(c, h, kubeadm.Done), host.System(h)}, host.NameServers(c),
			[]step.Step{host.Packages(c, h)}, host.Zone(c), host.Clock(c, h),
		)
		if c.IsNode(h) { // else a load balancer, or a member of etcd
			all = append(all, host.Modules(c), host.Sysctl(c, h))
		}
		if c.Host(h).Is(v1alpha1.RoleMaster) {
			all = append(all, host.Kubectl())
		}
		return all
	})
}

// Packages are the steps by which packages of the operating system come to a host, whichever
// tasks they are part of.
func Packages(c *cluster.Cluster, h string) []step.Step {
	all := []step.Step{host.Packages(c, h)}
	proxied := c.Balancer() == v1alpha1.BalancerInternal && !c.Kubeadm() && slices.Contains(c.Workers(), h)
	if proxied || c.Balances(c.Host(h)) {
		all = append(all, loadbalancer.Packages(c, h))
	}
	return all
}

// Runtime runs the container runtime, in the place of another one where there is one.
func Runtime(c *cluster.Cluster, hosts []string) plan.Task {
	runtime := runtimes[c.Spec.Runtime.Type]
	from := runtime.from(c)
	return on("runtime", hosts, func(h string) []step.Step {
		all := runtime.run(c, h, from)
		former, is := c.FormerRuntime(h)
		if !is {
			return all
		}
		between := cleanup.Former(former)
		if c.Kubeadm() {
			between = append(between, kubeadm.Socket(c))
		}
		return slices.Insert(all, 1, between...) // once the programs are there
	})
}

// FormerImages brings the images that nodes need to the runtimes that they still have.
func FormerImages(c *cluster.Cluster, hosts []string) plan.Task {
	return on("images", hosts, func(h string) []step.Step {
		former, _ := c.FormerRuntime(h)
		return []step.Step{step.Transfer(passing{runtimes[former.Name].load(c, h)})}
	})
}

// passing is a step that owns nothing for longer than the run.
type passing struct{ step.Step }

// Images brings the images that nodes need.
func Images(c *cluster.Cluster, hosts []string) plan.Task {
	return on("images", hosts, func(h string) []step.Step { return []step.Step{runtimes[c.Spec.Runtime.Type].load(c, h)} })
}

// PulledImages brings them from the private registry, as it is now, to container runtimes that run.
func PulledImages(c *cluster.Cluster, hosts []string) plan.Task {
	runtime := runtimes[c.Spec.Runtime.Type]
	from := runtime.from(c)
	return on("images", hosts, func(h string) []step.Step { return []step.Step{from, runtime.load(c, h)} })
}

// Registry runs the private registry.
func Registry(c *cluster.Cluster) plan.Task {
	return on("service", c.Hosts(v1alpha1.RoleRegistry), func(h string) []step.Step { return registries[c.Spec.Registry.Type].run(c, h) })
}

// RegistryImages brings images of the store to the private registry.
func RegistryImages(c *cluster.Cluster, refs []string) plan.Task {
	return on("images", c.Hosts(v1alpha1.RoleRegistry), func(string) []step.Step { return []step.Step{registry.Images(c, refs)} })
}

// members runs members of etcd, all at once.
func members(c *cluster.Cluster, hosts []string) plan.Task {
	return on("etcd", hosts, func(h string) []step.Step {
		return slices.Concat([]step.Step{etcd.Programs(c, h), etcd.DataDir(c), etcd.MemberCerts(c, h), etcd.Bootstrap(c)}, restored(c, h, false),
			[]step.Step{etcd.Service(c, h), etcd.Shell(c, h)})
	})
}

// EtcdTimers lets members of etcd take snapshots and defragment at the times that the configuration asks for.
func EtcdTimers(c *cluster.Cluster) plan.Part {
	return plan.If(c.EtcdTimers() != nil, plan.Module{Name: "etcd", Parts: []plan.Part{
		on("timers", c.Etcd(), func(h string) []step.Step { return etcd.Timed(c, h) }),
	}})
}

// restored lets the member of etcd on a host begin with the data of a backup, where it is to.
func restored(c *cluster.Cluster, host string, together bool) []step.Step {
	hosts := c.RestoredMembers(together)
	if !slices.Contains(hosts, host) {
		return nil
	}
	return []step.Step{etcd.NewRestored(c, host, hosts)}
}

// Restore brings the data of a backup to an etcd that may run: all that uses it ends before, on all hosts, and starts after it.
func Restore(c *cluster.Cluster) plan.Part {
	members, masters := c.RestoredMembers(true), c.Masters()
	hosts := slices.Concat(masters, slices.DeleteFunc(slices.Clone(members), func(h string) bool { return slices.Contains(masters, h) }))
	others := slices.DeleteFunc(c.Nodes(), func(h string) bool { return slices.Contains(hosts, h) })
	resume := func(string) []step.Step { return []step.Step{etcd.Resume(c)} }
	return plan.Module{Name: "control-plane", Parts: []plan.Part{
		on("record", hosts, func(h string) []step.Step { return []step.Step{host.Record(c, h)} }),
		on("space", members, func(string) []step.Step { return []step.Step{etcd.Room(c)} }),
		on("stop", hosts, func(string) []step.Step { return []step.Step{etcd.Halt(c)} }),
		on("data", members, func(h string) []step.Step { return restored(c, h, true) }),
		on("start", hosts, resume),
		on("ready", masters, func(h string) []step.Step { return []step.Step{step.APIReady{API: c.API(h)}} }),
		LostNodes(c), on("nodes", others, resume),
	}}
}

// liveMembers keeps members that run. What they began with is no part of it.
func liveMembers(c *cluster.Cluster, hosts []string) plan.Task {
	return on("etcd", hosts, func(h string) []step.Step {
		all := []step.Step{etcd.Programs(c, h), etcd.DataDir(c), etcd.MemberCerts(c, h), etcd.Service(c, h), etcd.Shell(c, h)}
		if c.MemberOf(h).Learner { // a run was cut off before it voted
			all = append(all, etcd.Promote(c, h))
		}
		return append(all, moved(c, h)...)
	})
}

// moved tells the others where the member of etcd on a host is, if that has another address now.
func moved(c *cluster.Cluster, host string) []step.Step {
	if m := c.MemberOf(host); m.ID != 0 && m.PeerURLs != nil && !slices.Equal(m.PeerURLs, []string{c.PeerURL(host)}) {
		return []step.Step{etcd.Move(c, m)}
	}
	return nil
}

// KubeadmPrograms puts kubeadm and a kubelet that waits for it on hosts that are no nodes yet.
func KubeadmPrograms(c *cluster.Cluster, hosts []string) plan.Task {
	return kubeadmPrograms(c, hosts, func(h string) []step.Step { return []step.Step{kubelet.ServingCert(c, h)} })
}

// LiveKubeadmPrograms keeps them on nodes that run, which have their certificates from KubeletCerts.
func LiveKubeadmPrograms(c *cluster.Cluster, hosts []string) plan.Task {
	return kubeadmPrograms(c, hosts, func(h string) []step.Step { return []step.Step{kubeadm.NewLogin(c, h)} })
}

func kubeadmPrograms(c *cluster.Cluster, hosts []string, certs func(host string) []step.Step) plan.Task {
	return on("programs", hosts, func(h string) []step.Step {
		all := []step.Step{kubeadm.Programs(c, h), kubelet.Programs(c, h), kubelet.Manifests()}
		if !c.Host(h).Is(v1alpha1.RoleMaster) { // there it comes with the control plane's certificates
			all = append(all, kubelet.Authority(c))
		}
		all = slices.Concat(all, certs(h),
			kubeadm.KubeletFlags(c), []step.Step{kubelet.Joined(c, h), kubelet.Prepared(c, h), kubeadm.Leftovers{}})
		if c.FormerNames(h) != nil || c.FormerPorts() != nil {
			all = append(all, kubeadm.Renamed(c))
		}
		return all
	})
}

// KubeletCerts gives kubelets of nodes that run the certificates by which API servers know them.
func KubeletCerts(c *cluster.Cluster, hosts []string) plan.Task {
	return on("certificates", hosts, func(h string) []step.Step { return []step.Step{kubelet.ServingCert(c, h)} })
}

// CacheAddress gives nodes that run the address of the DNS cache, where they do not have it.
func CacheAddress(c *cluster.Cluster, hosts []string) plan.Task {
	ip := c.DNSCacheIP()
	lack := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return ip == "" || c.FactsOf(h).HasAddress(ip) })
	return on("dns", lack, func(string) []step.Step { return []step.Step{kubelet.CacheAddress(c)} })
}

// KubeadmInit makes the control plane of the first master.
func KubeadmInit(c *cluster.Cluster) plan.Task {
	return on("init", []string{c.FirstMaster()}, func(h string) []step.Step {
		var data []step.Step
		if c.Spec.Etcd.Type == v1alpha1.TypeKubeadm {
			data = restored(c, h, false)
		}
		return slices.Concat(masterPKI(c, h), data, []step.Step{kubeadm.NewInit(c, kubeadmEtcd(c, h)), step.APIReady{API: c.API(h)}}, vipPod(c, h))
	})
}

// kubeadmEtcd is the etcd of a master's API server, as kubeadm knows it.
func kubeadmEtcd(c *cluster.Cluster, host string) kubeadm.Etcd {
	if c.Spec.Etcd.Type == v1alpha1.TypeKubeadm {
		return kubeadm.LocalEtcd(c)
	}
	return kubeadm.ExternalEtcd(etcd.Endpoint(c, host))
}

// KubeadmConfiguration is what kubeadm's configuration in the cluster is to say; nil: it has none.
func KubeadmConfiguration(c *cluster.Cluster) []byte {
	if !c.Kubeadm() {
		return nil
	}
	return kubeadm.ClusterConfiguration(c, kubeadmEtcd(c, c.FirstMaster()))
}

// etcdClient are the steps that bring with what a master's API server calls an etcd that is not kubeadm's.
func etcdClient(c *cluster.Cluster, host string) []step.Step {
	if c.Spec.Etcd.Type == v1alpha1.TypeKubeadm {
		return nil
	}
	return []step.Step{etcd.ClientCerts(c, host)}
}

// podReads are the steps that bring what static pods of a master read.
func podReads(c *cluster.Cluster, host string) kubeadm.Reads {
	return kubeadm.Reads{Certs: append(etcdClient(c, host), controlplane.PKI(c, host)), Kubeconfigs: controlplane.Kubeconfigs(c, host)}
}

// kubeadmConfig is what kubeadm reads on a master.
func kubeadmConfig(c *cluster.Cluster, host string) step.Step {
	return kubeadm.Config(c, host, kubeadmEtcd(c, host), podReads(c, host))
}

// masterPKI is what kubeadm must find on a master.
func masterPKI(c *cluster.Cluster, host string) []step.Step {
	reads := podReads(c, host)
	return append(reads.Certs, reads.Kubeconfigs, kubeadmConfig(c, host))
}

// KubeadmJoinMasters makes further masters, one after the other where that adds
// members to etcd.
func KubeadmJoinMasters(c *cluster.Cluster, hosts []string) plan.Part {
	join := on("join", hosts, func(h string) []step.Step {
		return slices.Concat(masterPKI(c, h), kubeadmJoin(c, h), []step.Step{step.APIReady{API: c.API(h)}}, vipPod(c, h))
	})
	switch {
	case c.Spec.Etcd.Type != v1alpha1.TypeKubeadm:
		return join
	case c.Lives():
		return rolling(c, hosts, health.Well, join)
	}
	return plan.Batches{Size: 1, Part: join}
}

// KubeadmJoin makes nodes of workers.
func KubeadmJoin(c *cluster.Cluster, hosts []string) plan.Task {
	return on("join", hosts, func(h string) []step.Step { return kubeadmJoin(c, h) })
}

// kubeadmJoin joins a host through a master that runs, and then turns the name of the
// endpoint to where it is to lead.
func kubeadmJoin(c *cluster.Cluster, h string) []step.Step {
	return []step.Step{kubeadm.NewJoin(c, h), host.Hosts(c, h, kubeadm.Done), host.PodHosts(c, h, c.EndpointIP(h))}
}

// ControlPlanePrograms puts programs of the control plane on masters.
func ControlPlanePrograms(c *cluster.Cluster, hosts []string, names ...string) plan.Task {
	return on("programs", hosts, func(h string) []step.Step {
		var steps []step.Step
		for _, n := range names {
			steps = append(steps, controlplane.Programs(c, h, n))
		}
		return steps
	})
}

// APIServer runs the API server of masters.
func APIServer(c *cluster.Cluster, hosts []string) plan.Task {
	return on("apiserver", hosts, func(h string) []step.Step { return append(apiServerFiles(c, h), apiServer(c, h)...) })
}

// apiServerFiles are what an API server reads, and reads again when it changes, or has in its digest.
func apiServerFiles(c *cluster.Cluster, h string) []step.Step {
	return []step.Step{controlplane.PKI(c, h), controlplane.Kubeconfigs(c, h), etcd.ClientCerts(c, h)}
}

func apiServer(c *cluster.Cluster, h string) []step.Step {
	return append(listening(c, h, controlplane.APIServer(c, h, etcd.Endpoint(c, h), etcd.ClientCerts(c, h))), step.APIReady{API: c.API(h)})
}

// ControllerManager runs the controller manager of masters.
func ControllerManager(c *cluster.Cluster, hosts []string) plan.Task {
	return on("controller-manager", hosts, func(h string) []step.Step { return []step.Step{controlplane.ControllerManager(c, h)} })
}

// Scheduler runs the scheduler of masters.
func Scheduler(c *cluster.Cluster, hosts []string) plan.Task {
	return on("scheduler", hosts, func(h string) []step.Step { return []step.Step{controlplane.Scheduler(c, h)} })
}

// RBAC grants what kubeadm would have granted.
func RBAC(c *cluster.Cluster) plan.Task {
	return on("rbac", []string{plan.API}, func(string) []step.Step { return []step.Step{controlplane.RBAC(c)} })
}

// NodePrograms puts the programs of a node on hosts.
func NodePrograms(c *cluster.Cluster, hosts []string) plan.Task {
	return on("programs", hosts, func(h string) []step.Step {
		all := []step.Step{kubelet.Programs(c, h), kubelet.Config(c, h)}
		if c.HasProxy() {
			all = append(all, controlplane.Programs(c, h, "kube-proxy"), controlplane.ProxyConfig(c, h))
		}
		if c.Host(h).Is(v1alpha1.RoleMaster) {
			all = append(all, kubelet.Manifests())
		}
		return all
	})
}

// NodeServices runs kubelet and kube-proxy, and what gives masters the virtual address, unless LiveMasters keeps that.
func NodeServices(c *cluster.Cluster, hosts []string) plan.Task {
	_, live := c.SplitMasters()
	return on("node", hosts, func(h string) (steps []step.Step) {
		if !slices.Contains(live, h) {
			steps = vipPod(c, h)
		}
		steps = append(steps, kubelet.Service(c, h))
		if c.HasProxy() {
			steps = append(steps, controlplane.Proxy(c, h))
		}
		return steps
	})
}

// APIPort leads the service kubernetes to the port of API servers, where that was changed.
func APIPort(c *cluster.Cluster) plan.Task {
	var hosts []string
	if c.FormerPorts() != nil {
		hosts = []string{plan.API}
	}
	return on("port", hosts, func(string) []step.Step { return []step.Step{step.APIPort{Port: c.APIPort(), API: c.AnyAPI()}} })
}

// Network installs the network plugin.
func Network(c *cluster.Cluster) plan.Task {
	return on("network", []string{plan.API}, func(string) []step.Step { return networks[c.Spec.Network.Plugin].install(c) })
}

// NodeAddresses lets the network plugin follow nodes to other addresses.
func NodeAddresses(c *cluster.Cluster) plan.Task {
	return on("network", []string{plan.API}, func(string) []step.Step { return []step.Step{networks[c.Spec.Network.Plugin].follow(c)} })
}

// Proxy installs kube-proxy where it runs in pods, and keeps what kubeadm reads from the cluster.
func Proxy(c *cluster.Cluster) plan.Task {
	return on("proxy", []string{plan.API}, func(h string) []step.Step {
		return append(addon.KubeProxy(c), kubeadm.ConfigMaps(c, kubeadmEtcd(c, h)))
	})
}

// ProxyReady waits for it.
func ProxyReady(c *cluster.Cluster) plan.Task {
	return on("proxies", []string{plan.API}, func(string) []step.Step { return addon.KubeProxyReady(c) })
}

// KubeadmRecord keeps what kubeadm reads from the cluster before masters join, which it tells where etcd is.
func KubeadmRecord(c *cluster.Cluster) plan.Task {
	return on("record", []string{plan.API}, func(h string) []step.Step { return []step.Step{kubeadm.ConfigMaps(c, kubeadmEtcd(c, h))} })
}

// DNS installs the cluster's DNS server, and its caches.
func DNS(c *cluster.Cluster) plan.Task {
	return on("dns", []string{plan.API}, func(string) []step.Step { return append([]step.Step{addon.CoreDNS(c)}, addon.DNSCache(c)...) })
}

// Storage installs what makes volumes.
func Storage(c *cluster.Cluster) plan.Task {
	return on("storage", []string{plan.API}, func(string) (steps []step.Step) {
		for _, s := range plugin.StoragesOf(c.Spec) {
			steps = append(steps, storages[s.Name](c))
		}
		return steps
	})
}

// Keys writes what was chosen while planning to the control machine.
func Keys(c *cluster.Cluster) plan.Task {
	return on("keys", []string{plan.Control}, func(string) []step.Step { return []step.Step{control.Keys(c)} })
}

// Identity puts the cluster's identity into its API.
func Identity(c *cluster.Cluster) plan.Task {
	return on("identity", []string{plan.API}, func(string) []step.Step { return []step.Step{addon.Identity(c)} })
}

// Configuration keeps the configuration in the cluster, once that is what it says.
func Configuration(c *cluster.Cluster) plan.Part {
	return plan.If(c.Kept().Text != nil, on("configuration", []string{plan.API}, func(string) []step.Step { return []step.Step{addon.Configuration(c)} }))
}

// Fence keeps lost machines out, where there are any, and lets those in that join.
func Fence(c *cluster.Cluster) plan.Part {
	joining, _ := c.SplitNodes(c.Nodes())
	return plan.If(len(c.Fenced)+len(joining) > 0 || c.Unfenced, on("fence", []string{plan.API}, func(string) []step.Step { return []step.Step{addon.Fence(c)} }))
}

// LocalProxy runs the proxy of workers by which they reach the API servers, where that is how they do.
func LocalProxy(c *cluster.Cluster, hosts []string) plan.Task {
	workers := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool {
		return c.Balancer() != v1alpha1.BalancerInternal || c.Host(h).Is(v1alpha1.RoleMaster)
	})
	return on("proxy", workers, func(h string) []step.Step {
		switch pod := loadbalancer.Pod(c, h, c.OwnIP()); {
		case !c.Kubeadm():
			return append([]step.Step{loadbalancer.Packages(c, h)}, listening(c, h, loadbalancer.Service(c, h, c.OwnIP()))...)
		case c.FormerPorts() != nil: // a kubelet that has just started replaces no pod until it has reached an API server
			detour := append([]step.Step{host.Detour(c, h)}, listening(c, h, pod, step.APIReady{API: c.ProxyAPI()})...)
			return append(detour, host.Hosts(c, h, ""))
		default:
			return append(loadbalancer.Former(c, h), pod)
		}
	})
}

// LoadBalancers runs the load balancers in front of the masters.
func LoadBalancers(c *cluster.Cluster, hosts []string) plan.Task {
	return on("proxy", hosts, func(h string) []step.Step {
		return slices.Concat([]step.Step{loadbalancer.Packages(c, h)}, listening(c, h, loadbalancer.Service(c, h, loadbalancer.Everywhere(c))), []step.Step{vips[plugin.VIPOf(c.Spec).Name].run(c, h)})
	})
}

// vipPod runs what gives masters the virtual address, where that is a static pod. On the way to another release it stays what it is: its image comes with the last one.
func vipPod(c *cluster.Cluster, host string) []step.Step {
	vip := plugin.VIPOf(c.Spec)
	if !vip.Pod || !c.Host(host).Is(vip.Role) || c.HoldsNodes() {
		return nil
	}
	return []step.Step{vips[vip.Name].run(c, host)}
}

// Endpoint waits until workers reach an API server by the name that stands in every
// kubeconfig.
func Endpoint(c *cluster.Cluster) plan.Task {
	return on("endpoint", c.Workers(), func(h string) []step.Step { return []step.Step{step.APIReady{API: c.EndpointAPI()}} })
}

// Ready waits for nodes and gives them their labels and taints.
func Ready(c *cluster.Cluster, hosts []string) plan.Task {
	return on("ready", hosts, func(h string) []step.Step { return kubelet.Ready(c, h) })
}

// AddonsReady waits for the network plugin, the DNS server, and what makes volumes.
func AddonsReady(c *cluster.Cluster) plan.Task {
	return on("addons", []string{plan.API}, func(string) []step.Step {
		all := append([]step.Step{addon.NetworkReady(c), addon.CoreDNSReady(c)}, addon.DNSCacheReady(c)...)
		if c.Kubeadm() {
			all = append(all, addon.KubeProxyReady(c)...)
		}
		return append(all, addon.StorageReady(c)...)
	})
}

// Addons installs what users chose, one after the other, and waits for each.
func Addons(c *cluster.Cluster) plan.Task {
	return on("manifests", []string{plan.API}, func(string) (steps []step.Step) {
		for _, a := range c.Addons() {
			steps = append(steps, addon.Chosen(c, a)...)
		}
		return steps
	})
}

// Pruned takes from hosts, and from the API, what an earlier configuration, or an earlier kubexm, has made there, and what no step of the parts
// before this one owns any more.
func Pruned(c *cluster.Cluster, hosts []string) plan.Part {
	return plan.Late{Name: "prune", Hosts: append(slices.Clone(hosts), plan.API), Steps: func(h string, owned []string) []step.Step {
		if h == plan.API {
			return []step.Step{step.Unapplied{Wanted: owned, API: c.AnyAPI()}}
		}
		f := c.Facts[h]
		if f == nil || owned == nil { // not asked, or left alone
			return nil
		}
		kept := slices.DeleteFunc(slices.Clone(owned), host.Forwards) // these are needed no longer than the change of a port takes
		gone := step.Gone(slices.Concat(f.Inventory, owned), kept)
		owned = kept
		if gone == nil {
			return nil
		}
		return []step.Step{step.Absent{What: "what is no longer needed", Items: gone, Except: step.Kept(gone, owned)}, step.Inventory{Owns: owned}}
	}}
}

// Clean takes the cluster off hosts.
func Clean(c *cluster.Cluster, hosts []string) plan.Task {
	return on("clean", hosts, func(h string) []step.Step {
		if cluster.InDocker(c.Spec, c.Host(h)) { // containers, mounts and packet filters are Docker's
			return []step.Step{cleanup.Services(c, h), registries[c.Spec.Registry.Type].gone(), cleanup.Data(c, h), cleanup.Restored{}}
		}
		var steps []step.Step
		if former, is := c.FormerRuntime(h); is {
			steps = cleanup.Former(former)
		}
		steps = append(steps, cleanup.Pods(c), cleanup.Services(c, h), cleanup.Groups(), cleanup.Mounts(c), cleanup.Network(c), cleanup.Data(c, h), cleanup.Restored{})
		if c.FactsOf(h).HasFormer() {
			steps = append(steps, host.NoFormer())
		}
		return steps
	})
}

package app_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
)

// change is one of a configuration, and what it restarts.
type change struct {
	set      string                   // parts of the spec
	restarts string                   // "kube-apiserver@masters kubelet@nodes", besides load balancers; *: those that are announced
	pods     string                   // the same where the control plane is kubeadm's
	on       func(config string) bool // nil: all rows
	none     func(config string) bool // whether nothing is done; nil: never
	alone    bool                     // others do not go with it
	signs    bool                     // other certificates, which no two clusters make alike
}

func kubeadmEtcd(config string) bool { return strings.Contains(config, "etcd: {type: kubeadm}") }
func kubeadmPods(config string) bool { return strings.Contains(config, "kubernetes: {type: kubeadm") }

func ownEtcd(config string) bool {
	return strings.Contains(config, "etcd: {type: kubexm}") || kubeadmEtcd(config)
}

func has(text string) func(string) bool {
	return func(config string) bool { return strings.Contains(config, like(config, text)) }
}

var (
	otherEtcd = has("external: {endpoints")
	harbor    = has("type: harbor")
	calico    = has("plugin: calico")
	cilium    = has("plugin: cilium")
	crio      = has("type: cri-o")
	onDocker  = has("type: docker")
	private   = has("roles: [registry]")
	several   = has("{name: node3, address: 10.0.0.13, roles: [master")
	balanced  = has("{name: lb1")

	secondMaster = has("{name: node2, address: 10.0.0.12, roles: [master")
)

// edits are changes of all that can change on a cluster that runs.
var edits = map[string]change{
	"API server arguments": {set: `kubernetes: {apiServer: {extraArgs: {v: "4", max-requests-inflight: "800"}}}`, restarts: "kube-apiserver@masters"},
	"API server names": {
		set:      `kubernetes: {apiServer: {certSANs: [api.example.com, 192.0.2.7]}}`,
		restarts: "kube-apiserver@masters kube-controller-manager@masters kube-scheduler@masters", pods: "-", signs: true,
	},
	"API server volumes": {set: `kubernetes: {apiServer: {extraVolumes: [{name: policy, hostPath: /etc/policy, mountPath: /etc/policy, readOnly: true, pathType: DirectoryOrCreate}]}}`, on: kubeadmPods, restarts: "kube-apiserver@masters"},
	"controller volumes": {
		set: `kubernetes: {controllerManager: {extraVolumes: [{name: more, hostPath: /etc/more, mountPath: /etc/more, readOnly: true, pathType: DirectoryOrCreate}]}, scheduler: {extraVolumes: [{name: policy, hostPath: /etc/policy, mountPath: /etc/policy, readOnly: true, pathType: DirectoryOrCreate}]}}`,
		on:  kubeadmPods, restarts: "kube-controller-manager@masters kube-scheduler@masters",
	},
	"name of the endpoint": {
		set:      `loadBalancer: {domain: api.example.com}`,
		restarts: "kube-apiserver@masters kube-controller-manager@masters kube-scheduler@masters kubelet@nodes kube-proxy@nodes", pods: "kubelet@nodes", signs: true,
	},
	"port of the endpoint": {
		set:      `loadBalancer: {port: 8443}`,
		restarts: "kube-apiserver@masters kube-controller-manager@masters kube-scheduler@masters kubelet@nodes kube-proxy@nodes",
		pods:     "kube-apiserver@masters kube-controller-manager@masters kube-scheduler@masters kubelet@nodes",
	},
	"controller manager arguments": {set: `kubernetes: {controllerManager: {extraArgs: {node-monitor-period: 2s}}}`, restarts: "kube-controller-manager@masters"},
	"scheduler arguments":          {set: `kubernetes: {scheduler: {extraArgs: {v: "4"}}}`, restarts: "kube-scheduler@masters"},
	"feature gates": {
		set:      `kubernetes: {featureGates: {ImageVolume: true}}`,
		restarts: "kube-apiserver@masters kube-controller-manager@masters kube-scheduler@masters kubelet@nodes kube-proxy@nodes",
		pods:     "kube-apiserver@masters kube-controller-manager@masters kube-scheduler@masters kubelet@nodes",
	},
	"kubelet settings":        {set: `kubernetes: {kubelet: {config: {evictionHard: {memory.available: 500Mi}}}}`, restarts: "kubelet@nodes"},
	"kubelet arguments":       {set: `kubernetes: {kubelet: {extraArgs: {v: "4"}}}`, restarts: "kubelet@nodes"},
	"kubelet's processors":    {set: `kubernetes: {kubelet: {config: {cpuManagerPolicy: static, kubeReserved: {cpu: 200m}}}}`, restarts: "kubelet@nodes"},
	"pods":                    {set: `kubernetes: {maxPods: 50, podPidsLimit: 5000}`, restarts: "kubelet@nodes"},
	"proxy settings":          {set: `kubernetes: {kubeProxy: {config: {nodePortAddresses: [primary]}}}`, restarts: "kube-proxy@nodes", pods: "-"},
	"proxy mode ipvs":         {set: `kubernetes: {proxyMode: ipvs}`, restarts: "kube-proxy@nodes", pods: "-"},
	"etcd arguments":          {set: `etcd: {extraArgs: {quota-backend-bytes: "4294967296"}}`, on: ownEtcd, restarts: "etcd@etcd"},
	"timers of etcd":          {set: `etcd: {autoBackup: {enabled: true, keep: 3}, autoDefrag: {enabled: true, schedule: weekly}}`, on: ownEtcd},
	"registry mirrors":        {set: `registry: {mirrors: {docker.io: ["https://mirror.example.com"]}, insecure: ["10.9.9.9:5000"]}`},
	"registry logins":         {set: `registry: {auth: {registry.example.com: {username: ops, password: one}}}`},
	"labels":                  {set: `hosts: [{name: node2, labels: {zone: a}, annotations: {example.com/owner: ops}}]`},
	"taints":                  {set: `hosts: [{name: node2, taints: [{key: dedicated, value: db, effect: NoSchedule}]}]`, restarts: "kubelet@node2", pods: "-", on: func(c string) bool { return !strings.Contains(c, "roles: [etcd, worker]") }},
	"sysctl":                  {set: `system: {sysctl: {vm.max_map_count: "262144", vm.panic_on_oom: "1"}}`},
	"modules":                 {set: `system: {modules: [ip_vs]}`},
	"time zone":               {set: `system: {timezone: Europe/Berlin}`, on: func(c string) bool { return !strings.Contains(c, "Berlin") }},
	"time servers":            {set: `system: {ntpServers: [192.0.2.1]}`, restarts: "*", on: has("ntpServers")},
	"first time servers":      {set: `system: {ntpServers: [192.0.2.1]}`, on: func(c string) bool { return !strings.Contains(c, "ntpServers") }},
	"further hosts":           {set: `extra: {hosts: [{domain: mirror.example.com, address: 10.0.0.9}]}`},
	"name servers":            {set: `extra: {resolves: [{address: 192.0.2.53}]}`, restarts: "systemd-resolved@node2"},
	"no DNS caches":           {set: `dns: {nodeLocalDNS: {enabled: false, ip: 169.254.20.10}}`, restarts: "kubelet@nodes"},
	"DNS":                     {set: `dns: {coredns: {replicas: 3, upstream: [192.0.2.53], externalZones: [{zones: [corp.example], nameservers: [192.0.2.54], cache: 10}]}}`},
	"validity":                {set: `kubernetes: {certificateValidityDays: 365}`, none: func(c string) bool { return !kubeadmPods(c) }},
	"releases":                {set: `{runtime: {version: v2.3.3}, network: {flannel: {version: v0.28.8}}}`, restarts: "containerd@nodes", on: func(c string) bool { return !crio(c) && !onDocker(c) }},
	"release of CRI-O":        {set: `runtime: {version: v1.35.2}`, restarts: "crio@nodes", on: crio},
	"runtime containerd":      {set: `runtime: {type: containerd}`, alone: true, on: func(c string) bool { return crio(c) || onDocker(c) }},
	"runtime cri-o":           {set: `runtime: {type: cri-o}`, alone: true, on: func(c string) bool { return !crio(c) }},
	"runtime docker":          {set: `runtime: {type: docker}`, alone: true, on: func(c string) bool { return !onDocker(c) }},
	"release of Docker":       {set: `runtime: {version: v29.9.2}`, restarts: "docker@nodes cri-docker@nodes", on: onDocker},
	"release of Calico":       {set: `network: {calico: {version: v3.99.1}}`, on: calico},
	"network of Calico":       {set: `network: {calico: {encapsulation: VXLAN, mtu: 1400, typha: 1, felix: {logSeverityScreen: Error}}}`, on: calico},
	"release of Cilium":       {set: `network: {cilium: {version: v3.99.1}}`, on: cilium},
	"values of Cilium":        {set: `network: {cilium: {values: {MTU: 1400}}}`, on: cilium},
	"volumes":                 {set: `storage: {localPath: {path: /srv/volumes, version: v0.0.29}, default: none}`},
	"addons":                  {set: `addons: [{name: shop, namespace: shop, files: [testdata/addons], timeout: 1m, preload: false}, {name: note, inline: "{apiVersion: v1, kind: ConfigMap, metadata: {name: note}}"}]`},
	"addons, of a chart":      {set: `addons: [{name: shop, type: helm, chart: testdata/charts/shop, valuesFiles: [testdata/charts/values.yaml], values: {replicas: 3}, images: [ghcr.io/example/job:v1], preload: false}, {name: bought, type: helm, preload: false, repository: "https://charts.example.com", chart: shop, version: v1.2.0}]`},
	"release of Harbor":       {set: `registry: {harbor: {version: v2.15.1}}`, on: harbor},
	"address to log in at":    {set: `hosts: [{name: node2, address: 192.0.2.12, internalAddress: 10.0.0.12}]`, restarts: "*", signs: true},
	"other client of etcd":    {set: `etcd: {external: {endpoints: ["https://10.0.0.32:2379"], caFile: ETCD/other.crt, certFile: ETCD/node-other.crt, keyFile: ETCD/node-other.key}}`, on: otherEtcd, restarts: "kube-apiserver@masters"},
	"registry, by a file":     {set: `registry: {auth: {file.example.com: {username: ops, passwordFrom: {file: ETCD/ca.crt}, caFile: ETCD/ca.crt}}}`},
	"registry, by a program":  {set: `registry: {auth: {program.example.com: {username: ops, passwordFrom: {exec: echo one}}}}`},
	"registry, by a variable": {set: `registry: {auth: {variable.example.com: {username: ops, passwordFrom: {env: HTTPS_PROXY}}}}`},
	"packages":                {set: `system: {debs: [libwrap0], rpms: [libwrap0]}`},
	"private registry":        {set: `registry: {privateRegistry: images.example.com}`, on: private, restarts: "*", signs: true},
	"balancer haproxy":        {set: `loadBalancer: {mode: internal, internal: {type: haproxy}}`, restarts: "*", on: several},
	"balancer nginx":          {set: `loadBalancer: {mode: internal, internal: {type: nginx}}`, restarts: "*", on: several},
	"balancer none":           {set: `loadBalancer: {enabled: false}`, restarts: "*", on: several},
	"balancer kube-vip":       {set: "loadBalancer: {mode: kube-vip, kubeVip: {interface: eth0}, vip: " + vip + "}", restarts: "*", on: several, signs: true},
	"balancer kube-vip, BGP":  {set: "loadBalancer: {mode: kube-vip, kubeVip: {mode: bgp, asn: 65001, peers: [{address: 10.0.0.1, asn: 65000, holdTime: 10s}]}, vip: " + vip + "}", restarts: "*", on: several, signs: true},
	"balancer of HAProxy":     {set: "loadBalancer: {mode: external, external: {type: kubexm-kh}, vip: " + vip + "}", restarts: "*", on: balanced},
	"balancer of nginx":       {set: "loadBalancer: {mode: external, external: {type: kubexm-kn}, vip: " + vip + "}", restarts: "*", on: balanced},
	"credentials":             {set: `global: {user: ops}`, none: func(string) bool { return true }},
}

// expected are the services that an edit restarts, with their hosts, sorted.
func (e change) expected(config string) map[string][]string {
	text := e.restarts
	if kubeadmPods(config) && e.pods != "" {
		text = strings.Trim(e.pods, "-")
	}
	if strings.Contains(text, "etcd@") && kubeadmEtcd(config) { // the API server of a machine has no other member
		text += " kube-apiserver@masters"
	}
	all := map[string][]string{}
	for one := range strings.FieldsSeq(strings.Trim(text, "*")) {
		service, group, _ := strings.Cut(one, "@")
		for l := range strings.Lines(config) {
			_, rest, is := strings.Cut(l, "- {name: ")
			name, _, _ := strings.Cut(rest, ",")
			_, roles, _ := strings.Cut(l, "roles: [")
			roles, _, _ = strings.Cut(roles, "]")
			switch {
			case !is:
			case group == name:
				all[service] = append(all[service], name)
			case group == "masters" && strings.Contains(roles, "master"), group == "etcd" && strings.Contains(roles, "etcd"),
				group == "nodes" && (strings.Contains(roles, "master") || strings.Contains(roles, "worker")):
				all[service] = append(all[service], name)
			}
		}
	}
	return all
}

// announced are the services that a proposal says are restarted, with their hosts.
func announced(p *app.Proposal) map[string][]string {
	all := map[string][]string{}
	for _, r := range p.Restarts {
		all[r.Service] = r.Hosts
	}
	maps.DeleteFunc(all, passing)
	return all
}

// passing reports whether a service is one that comes and goes with others, and that its package has started before.
func passing(service string, _ []string) bool {
	return slices.Contains([]string{"haproxy", "nginx", "keepalived", "kube-vip", "chrony"}, service)
}

func inOrder(all map[string][]string) string {
	for _, hosts := range all {
		slices.Sort(hosts)
	}
	return fmt.Sprint(all)
}

// TestEdits makes all changes at one time on clusters that run, and takes them back: after a change all is as if the cluster
// had been made so.
func TestEdits(t *testing.T) {
	for _, name := range []string{"row7", "row9", "row9-ipv6"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				tryEdits(t, name, slices.DeleteFunc(possible(row(t, name)), func(what string) bool { return strings.HasPrefix(what, "balancer") }))
			})
		})
	}
}

// TestFaultsEdits makes each change by itself, on a row of each type of Kubernetes.
func TestFaultsEdits(t *testing.T) {
	for _, name := range []string{"row2", "row7"} {
		for _, what := range possible(row(t, name)) {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) { tryEdits(t, name, []string{what}) })
			})
		}
	}
}

// TestFaultsEditsInTurn makes all changes on all rows, one on top of the other.
func TestFaultsEditsInTurn(t *testing.T) {
	for _, name := range all() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) { tryInTurn(t, name) })
		})
	}
}

// possible are the changes that can be made of a configuration.
func possible(text string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(edits)), func(what string) bool {
		return edits[what].alone || edits[what].on != nil && !edits[what].on(text)
	})
}

// changedBy is a configuration in which changes were made.
func changedBy(t testing.TB, config string, names ...string) string {
	for _, what := range names {
		config = edited(t, config, like(config, edits[what].set))
	}
	return config
}

func tryEdits(t *testing.T, name string, names []string) {
	was := row(t, name)
	is := changedBy(t, was, names...)
	w := newWorld(t, was, "")
	before := w.snapshot()
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	first := w.image()

	w.configure(is)
	w.announces(was, names...)
	w.settled()
	born(t, name, is, w.certs(name)).same(t, "as if made so", w.image())
	w.back(name, was, first, names)

	w.unwatched()
	_, err = w.attempt(t.Context()).delete()
	w.must(err)
	same(t, "hosts after delete", before, w.snapshot())
}

func tryInTurn(t *testing.T, name string) {
	was := row(t, name)
	w := newWorld(t, was, "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	first, is, names := w.image(), was, possible(was)
	for _, what := range names {
		is = changedBy(t, is, what)
		w.configure(is)
		w.announces(was, what)
		w.settled()
		if t.Failed() {
			t.Logf("after the change of %s", what)
		}
	}
	born(t, name, is, w.certs(name)).same(t, "as if made so", w.image())
	w.back(name, was, first, names)
	w.refuses(was)
}

// back takes changes back.
func (w *world) back(name, was string, first image, names []string) {
	w.Helper()
	w.configure(was)
	w.apply()
	w.settled()
	if slices.ContainsFunc(names, func(what string) bool { return edits[what].signs }) {
		first = born(w.TB.(*testing.T), name, was, w.certs(name))
	}
	first.same(w, "as it was", w.image())
}

// announces brings the cluster to its configuration, in which changes were made, and compares what is announced with
// what happens.
func (w *world) announces(was string, names ...string) {
	p := w.proposal()
	for _, s := range p.Steps {
		// passwords of before are not known, so neither is whether a file with them was as it should be
		if s.Why != app.WhyFile && !strings.Contains(string(s.Node), "runtime/files-container-runtime@") {
			w.Errorf("why %s: %s", s.Why, s.Node)
		}
	}
	none, all := true, map[string][]string{}
	for _, what := range names {
		none = none && edits[what].none != nil && edits[what].none(was)
		for service, hosts := range edits[what].expected(was) {
			all[service] = slices.Compact(slices.Sorted(slices.Values(append(all[service], hosts...))))
		}
	}
	whatever := slices.ContainsFunc(names, func(what string) bool { return edits[what].restarts == "*" })
	idle := !slices.ContainsFunc(p.Steps, func(s app.ProposedStep) bool { return s.What != "apply configuration" }) // which keeps what was written
	if len(p.Changes) == 0 && !whatever || idle != (none || len(p.Changes) == 0) {
		w.Errorf("%s: changes %v, steps:\n%s", names, p.Changes, steps(p))
	}
	chronicle := w.watched()
	w.apply()
	chronicle.apart(w)
	want := inOrder(all)
	if whatever {
		want = inOrder(announced(p))
	}
	if got := inOrder(announced(p)); got != want {
		w.Errorf("%s: announced restarts: %s, wanted %s", names, got, want)
	}
	restarted := chronicle.restarts()
	maps.DeleteFunc(restarted, passing)
	if got := inOrder(restarted); got != want {
		w.Errorf("%s: restarts: %s, wanted %s", names, got, want)
	}
}

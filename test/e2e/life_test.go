//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/test/smoke"
	"github.com/kubexm/kubexm/test/testbed"
	"github.com/kubexm/kubexm/test/testbed/build"
)

// lifeRows are the rows whose clusters are changed while they run.
var lifeRows = []int{5, 7, 9, 13, 18, 21}

// TestLife changes clusters that run, one edit of the configuration after the other, while a user on the worker asks the
// API server every 100 ms and writes all the time: nothing that was written is lost, the API server is away for a
// moment at most where there is a load balancer, no pod restarts, and a second apply finds nothing to do. Then machines
// drift, kubexm is killed, and a master loses its power. E2E_LIFE=ROW chooses one row, E2E_EDITS=REGEXP edits by their names.
func TestLife(t *testing.T) {
	defer the.shrink(t)
	for _, row := range lifeRows {
		if only := os.Getenv("E2E_LIFE"); only != "" && only != strconv.Itoa(row) {
			continue
		}
		t.Run(fmt.Sprint("row", row), func(t *testing.T) { life(t, row) })
	}
}

// change is an edit of a configuration, and for how long the API server may be away for it.
type change struct {
	name  string
	away  time.Duration // 0: as long as its only server takes
	edits []edit
}

const (
	moment = 5 * time.Second  // behind a load balancer, where all machines and the test share a few busy processors; docs/support-matrix.md has what was seen
	lease  = 15 * time.Second // when the master that has the address loses its power, or kubexm is killed
)

// containersIn begins the names of changes to another container runtime.
const containersIn = "containers in "

// balancers are the load balancers that a cluster of three masters can have.
func balancers(c *cluster) map[string]map[string]any {
	all := map[string]map[string]any{
		"off":      {"enabled": false},
		"haproxy":  {"internal": map[string]any{"type": "haproxy"}},
		"nginx":    {"internal": map[string]any{"type": "nginx"}},
		"kube-vip": {"mode": "kube-vip", "vip": the.bed.VIP()},
		"own":      {"mode": "external", "external": map[string]any{"type": "external"}, "vip": the.bed.Gateway()},
	}
	if len(c.balancers()) > 0 {
		for _, kind := range []string{"kubexm-kh", "kubexm-kn"} {
			all[kind] = map[string]any{"mode": "external", "external": map[string]any{"type": kind}, "vip": the.bed.VIP()}
		}
	}
	return all
}

// changes are the edits of a cluster, one after the other. The load balancer it has in the end is the one it was made with.
func changes(c *cluster) []change {
	first := testbed.Rows[c.row-1].Balancer
	at := func(kind string) time.Duration {
		if kind == "off" {
			return 0
		}
		return moment
	}
	now := at(first)
	all := []change{
		{"arguments of all", now, []edit{
			set("etcd.extraArgs", map[string]any{"max-request-bytes": "2097152"}),
			set("kubernetes.apiServer.extraArgs", map[string]any{"max-requests-inflight": "800"}),
			set("kubernetes.scheduler.extraArgs", map[string]any{"v": "3"}),
			set("kubernetes.controllerManager.extraArgs", map[string]any{"node-monitor-period": "4s"}),
		}},
		{"names and gates", now, []edit{
			set("kubernetes.apiServer.certSANs", []any{"api.example.com"}),
			set("kubernetes.featureGates", map[string]any{"MutatingAdmissionPolicy": true}),
		}},
		{"kubelets and runtimes", now, []edit{
			set("kubernetes.kubelet.config.maxParallelImagePulls", 4),
			set("registry", map[string]any{"mirrors": map[string]any{"docker.io": []any{"https://mirror.example.com"}}, "insecure": []any{"10.9.9.9:5000"}}),
		}},
		{"processors, drained", now, []edit{set("kubernetes.kubelet.config", map[string]any{"cpuManagerPolicy": "static", "kubeReserved": map[string]any{"cpu": "200m"}})}},
		{"processors as before, drained", now, []edit{set("kubernetes.kubelet.config", map[string]any{})}},
		{"kube-proxy with iptables", now, []edit{set("kubernetes.proxyMode", "iptables")}},
		{"kube-proxy with nftables", now, []edit{set("kubernetes.proxyMode", "nftables")}},
		{"machines", now, []edit{
			host(3, "labels", map[string]any{"disk": "ssd"}), host(3, "annotations", map[string]any{"example.com/rack": "7"}),
			host(3, "taints", []any{map[string]any{"key": "dedicated", "value": "web", "effect": "PreferNoSchedule"}}),
			set("system", map[string]any{"timezone": "Asia/Shanghai", "sysctl": map[string]any{"net.core.somaxconn": "12345"}}),
			set("extra", map[string]any{"hosts": []any{map[string]any{"domain": "nas.example.org", "address": "10.9.9.9"}}}),
		}},
		{"machines as before", now, []edit{
			host(3, "labels", map[string]any{}), host(3, "annotations", map[string]any{}), host(3, "taints", []any{}),
			set("system", map[string]any{}), set("extra", map[string]any{}),
		}},
		{"a registry on the worker", now, []edit{host(3, "roles", []any{"worker", "registry"})}},
		{"the registry moves", now, []edit{host(3, "roles", []any{"worker"}), host(0, "roles", []any{"master", "etcd", "registry"})}},
		{"no registry", now, []edit{host(0, "roles", []any{"master", "etcd"})}},
		{"validity of certificates", now, []edit{set("kubernetes.certificateValidityDays", 400)}},
		{"another name of the endpoint", now, []edit{set("loadBalancer.domain", "api.kubexm.local")}},
		{"the name of before", now, []edit{set("loadBalancer.domain", "lb.kubexm.local")}},
		{"another port of the endpoint", now, []edit{set("loadBalancer.port", 8443)}},
		{"the former port of the endpoint", now, []edit{set("loadBalancer.port", 6443)}},
	}
	for _, name := range others(plugin.Runtimes(), os.Getenv("E2E_RUNTIME")) {
		all = append(all, change{containersIn + name, now, []edit{set("runtime", map[string]any{"type": name})}})
	}
	modes, before, moved := balancers(c), first, map[string]bool{}
	for _, kind := range []string{"off", "haproxy", "nginx", "kube-vip", "nginx", "kubexm-kh", "kubexm-kn", "own", "off", "kube-vip", first} {
		if mode, is := modes[kind]; is && kind != before {
			limit := max(at(before), at(kind))
			if kind == "off" || before == "off" {
				limit = 0
			}
			all = append(all, change{"load balancer from " + before + " to " + kind, limit, []edit{set("loadBalancer", mode)}})
			if mode["vip"] == the.bed.VIP() && !moved[kind] {
				moved[kind] = true
				all = append(all, change{"another virtual address of " + kind, limit, []edit{set("loadBalancer.vip", the.bed.SecondVIP())}})
			}
			before = kind
		}
	}
	return all
}

func life(t *testing.T, row int) {
	restoreMachines(t)
	must(t, the.builder.Build(t.Context(), []build.Component{find(t, "registry")}))
	the.resize(t, testbed.Rows[row-1].Nodes())
	c := newCluster(t, row, where{}, impatient)
	c.create(t).ok(t)
	defer c.remove(t)
	defer c.unrelay(t)
	for _, n := range c.kubelets() {
		must(t, the.bed.Load(t.Context(), n, smoke.Image))
	}
	balance(t, c.masters())
	only := regexp.MustCompile(os.Getenv("E2E_EDITS"))
	for _, e := range changes(c) {
		if !only.MatchString(e.name) {
			continue
		}
		t.Run(e.name, func(t *testing.T) { c.lives(t, e) })
	}
	t.Run("drift", func(t *testing.T) { c.drifts(t) })
	t.Run("killed", func(t *testing.T) { c.killedLiving(t) })
	t.Run("a master without power", func(t *testing.T) { c.masterDies(t) })
}

// lives changes a cluster while it is used.
func (c *cluster) lives(t *testing.T, e change) {
	defer timed(t)()
	if c.renamed = strings.Contains(e.name, "name of") || strings.Contains(e.name, "port of"); c.renamed {
		c.unrelay(t)
		defer c.unrelay(t)
	}
	to, moved := strings.CutPrefix(e.name, containersIn)
	if moved {
		i := slices.IndexFunc(plugin.Runtimes(), func(r plugin.Runtime) bool { return r.Name == to })
		must(t, the.builder.Build(t.Context(), parts(t, plugin.Runtimes()[i])))
	}
	was, err := os.ReadFile(c.file)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() { // the next edit is one of its own
			must(t, os.WriteFile(c.file, was, 0o600))
		}
	})
	c.change(t, e.edits...)
	before := c.starts(t)
	w := watch(t, c)
	done := c.run(t, "apply", "--yes", "-o", "json").ok(t)
	w.until(t, time.Second)
	seen := w.stop(t)
	t.Logf("%d of %d steps changed in %.0f s; %s", done.result.Summary.Changed, done.result.Summary.Total, done.took.Seconds(), seen)
	if done.result.Summary.Changed == 0 && !strings.Contains(e.name, "validity") { // certificates that are good stay
		t.Error("nothing changed")
	}
	if e.away > 0 && seen.gap > e.away {
		t.Errorf("the API server was away for %s", seen.gap)
	}
	c.unchanged(t)
	if moved {
		c.forgot(t)
	}
	c.whole(t)
	c.addresses(t)
	if after := c.starts(t); after != before && !moved && !strings.Contains(e.name, "drained") {
		t.Errorf("pods restarted: before\n%s\nafter\n%s", before, after)
	}
}

// addresses wants each virtual address on one machine at most, and on none where the configuration has it no more.
func (c *cluster) addresses(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(c.file)
	must(t, err)
	for _, vip := range []string{the.bed.VIP(), the.bed.SecondVIP()} {
		var on []string
		for _, n := range the.nodes {
			if strings.Contains(the.on(t, n, "ip -o addr"), " "+vip+"/") {
				on = append(on, n.Name)
			}
		}
		if wanted := strings.Contains(string(text), vip); len(on) > 1 || len(on) == 1 && !wanted {
			t.Errorf("%s is on %v; in the configuration: %t", vip, on, wanted)
		}
	}
}

// starts lists the containers of pods that are neither the control plane's, nor what leads to it, nor the network's, with how often each has started.
func (c *cluster) starts(t *testing.T) string {
	t.Helper()
	var all []string
	for _, n := range c.kubelets() {
		all = append(all, containers(t, n, false)...)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// containers lists those of a machine, with how often each has started; all: also those of the control plane, of what leads to it, and of the network.
func containers(t *testing.T, n testbed.Node, all bool) (list []string) {
	t.Helper()
	out := the.on(t, n, `crictl ps -o json | grep -E '"(attempt|io.kubernetes.container.name|io.kubernetes.pod.name)"' || true`)
	var attempt, name string
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.Trim(strings.TrimSpace(line), ","), ": ")
		value = strings.Trim(value, `"`)
		switch {
		case strings.Contains(key, "attempt"):
			attempt = value
		case strings.Contains(key, "container.name"):
			name = value
		case !all && slices.Contains([]string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd", "kube-vip", "haproxy", "nginx", "kube-proxy", "kube-flannel"}, name):
		default:
			list = append(list, value+" "+name+" "+attempt)
		}
	}
	return list
}

// change edits the configuration of a cluster.
func (c *cluster) change(t *testing.T, edits ...edit) {
	t.Helper()
	text, err := os.ReadFile(c.file)
	must(t, err)
	var config map[string]any
	must(t, yaml.Unmarshal(text, &config))
	for _, e := range edits {
		e(config["spec"].(map[string]any))
	}
	out, err := yaml.Marshal(config)
	must(t, err)
	must(t, os.WriteFile(c.file, out, 0o600))
}

// unchanged wants an apply to find nothing to do.
func (c *cluster) unchanged(t *testing.T) {
	t.Helper()
	if said := c.run(t, "plan", "apply", "--exit-code", "--diff"); said.code != 0 {
		t.Errorf("there is something left to change (%d):\n%s", said.code, said.text())
	}
}

// drifts changes things behind kubexm's back, and wants them found and put right. What others made stays.
func (c *cluster) drifts(t *testing.T) {
	worker, master := c.workers()[0], c.masters()[1]
	kubectl := func(args string) { the.on(t, c.masters()[0], "kubectl --kubeconfig /etc/kubernetes/admin.conf "+args) }
	c.change(t, host(3, "labels", map[string]any{"disk": "ssd"}))
	c.run(t, "apply", "--yes", "-o", "json").ok(t)
	kubectl("label node " + worker.Name + " disk- theirs=yes")
	kubectl("-n kube-system delete deployment coredns")
	kubectl("-n kube-system patch configmap coredns --type merge -p '{\"data\":{\"Corefile\":\"\"}}'")
	the.on(t, worker, "sed -i 's/^net.ipv4.ip_forward.*/net.ipv4.ip_forward = 0/' /etc/sysctl.d/99-kubexm.conf; echo '# mine' >>/etc/hosts")
	the.on(t, worker, "sed -i 's/maxPods: .*/maxPods: 50/' /var/lib/kubelet/config.yaml; systemctl disable --now kubelet; chmod 600 /etc/crictl.yaml")
	the.on(t, master, "sed -i 's/ lb.kubexm.local$/ lb.kubexm.invalid/' /etc/hosts; rm /etc/security/limits.d/kubexm.conf; echo >>/usr/local/bin/crictl")
	the.on(t, master, "touch /etc/kubernetes/theirs; systemctl stop "+runtime(t).Unit)
	plan := c.run(t, "plan", "apply", "-o", "json").ok(t)
	var found struct {
		Steps []struct{ Host, What, Why string }
	}
	must(t, json.Unmarshal(plan.stdout.Bytes(), &found))
	for _, want := range []string{
		master.Name + " block in /etc/hosts", master.Name + " kernel parameters", master.Name + " upload container runtime", master.Name + " service " + runtime(t).Unit,
		worker.Name + " kernel parameters", worker.Name + " files container runtime", worker.Name + " *kubelet*", worker.Name + " service kubelet",
		"api apply coredns", "api labels and taints of " + worker.Name,
	} {
		if !slices.ContainsFunc(found.Steps, func(s struct{ Host, What, Why string }) bool {
			is, _ := path.Match(strings.ReplaceAll(want, "/", "_"), strings.ReplaceAll(s.Host+" "+s.What, "/", "_"))
			return is && s.Why == "drift"
		}) {
			t.Errorf("drift of %s is not found:\n%s", want, plan.stdout.String())
		}
	}
	c.run(t, "apply", "--yes", "-o", "json").ok(t)
	c.unchanged(t)
	c.whole(t)
	got := the.on(t, worker, "tail -n 1 /etc/hosts; grep -c 'maxPods: 110' /var/lib/kubelet/config.yaml; stat -c %a /etc/crictl.yaml")
	got += the.on(t, master, "ls /etc/kubernetes/theirs; kubectl --kubeconfig /etc/kubernetes/admin.conf get node "+worker.Name+" --show-labels")
	for _, want := range []string{"# mine", "\n1\n644", "/etc/kubernetes/theirs", "disk=ssd", "theirs=yes"} {
		if !strings.Contains(got, want) {
			t.Errorf("after the repair, %q is not in %s", want, got)
		}
	}
}

// twoSided is an edit to and fro that starts members of etcd, control planes and kubelets again.
func twoSided(n int) []edit {
	v := strconv.Itoa(1 + n%2)
	return []edit{
		set("etcd.extraArgs", map[string]any{"max-request-bytes": v + "097152"}),
		set("kubernetes.apiServer.extraArgs", map[string]any{"max-requests-inflight": v + "00"}),
		set("kubernetes.scheduler.extraArgs", map[string]any{"v": v}),
		set("kubernetes.kubelet.config.maxParallelImagePulls", 1+n%2),
	}
}

// killedLiving kills kubexm, or stops it as Ctrl-C does, at random moments of applies. The next one goes on; the API server answers all the while, and
// what was stopped leaves nothing stopped.
func (c *cluster) killedLiving(t *testing.T) {
	random := rand.New(rand.NewPCG(seed(t), 0))
	const kills = 10
	w := watch(t, c)
	for n := range kills {
		if n%5 == 0 {
			c.change(t, twoSided(n/5)...)
		}
		delay := time.Duration(random.Int64N(int64(25 * time.Second)))
		p := c.start(t, nil, "apply", "--yes", "-o", "json")
		how := []syscall.Signal{syscall.SIGKILL, syscall.SIGINT}[n%2]
		timer := time.AfterFunc(delay, func() { p.signal(how) })
		o := p.wait(t)
		timer.Stop()
		t.Logf("%s after %.1f s, ended after %.1f s, %d events", how, delay.Seconds(), o.took.Seconds(), len(o.events))
		if o.code != 0 && o.code != 128+int(how) {
			t.Fatalf("exit code %d:\n%s", o.code, o.text())
		}
		if how == syscall.SIGINT {
			c.whole(t)
		}
	}
	done := c.resume(t, "apply", "--yes", "-o", "json")
	seen := w.stop(t)
	t.Logf("resumed in %.1f s, %d steps changed something; %s", done.took.Seconds(), done.result.Summary.Changed, seen)
	if b := testbed.Rows[c.row-1].Balancer; b != "off" && seen.gap > lease {
		t.Errorf("the API server was away for %s", seen.gap)
	}
	c.unchanged(t)
	c.whole(t)
}

// masterDies takes the power of the first master away in the middle of an apply. The other hosts are changed without it, and
// when it is back, so is it.
func (c *cluster) masterDies(t *testing.T) {
	victim := c.masters()[0]
	c.change(t, twoSided(2)[1:]...) // no member of etcd may start anew while one is gone
	var once sync.Once
	p := c.start(t, func(_ int, e event) { // when its turn comes
		if e.Host == victim.Name && e.Status == "started" && (e.What == "service kube-apiserver" || strings.HasPrefix(e.What, "static pods")) {
			once.Do(func() { must(t, the.bed.Poweroff(t.Context(), victim)) })
		}
	}, "apply", "--yes", "-o", "json")
	died := p.wait(t)
	if died.code == 0 {
		t.Errorf("a master died, and nobody noticed:\n%s", died.text())
	}
	c.run(t, "apply", "--yes", "-o", "json").fails(t, fault.ExitFailed, victim.Name, "--allow-missing")
	c.change(t, set("kubernetes.kubelet.config.maxParallelImagePulls", 7), set("kubernetes.scheduler.extraArgs", map[string]any{"v": "4"}))
	c.run(t, "apply", "--yes", "--allow-missing", "-o", "json").fails(t, 0, "left out: host "+victim.Name)
	for _, n := range c.kubelets()[1:] {
		the.on(t, n, "grep -q 'maxParallelImagePulls: 7' /var/lib/kubelet/config.yaml")
	}
	must(t, the.bed.Start(t.Context(), victim))
	c.run(t, "apply", "--yes", "-o", "json").ok(t)
	the.on(t, victim, "grep -q 'maxParallelImagePulls: 7' /var/lib/kubelet/config.yaml")
	c.unchanged(t)
	c.whole(t)
}

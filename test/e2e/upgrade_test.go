//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubexm/kubexm/test/smoke"
	"github.com/kubexm/kubexm/test/testbed"
)

// TestUpgrades brings clusters with a load from an older version of Kubernetes to the newest, and back by one minor version, while a user on the worker asks the
// API server every 100 ms and writes all the time, and another one asks a service of pods that a disruption budget lets go one at a time.
// Hooks run around each node. The second way forward meets a kubelet that does not start on a worker, which gets back the old one, and is then killed at random
// moments. E2E_UPGRADE=ROW chooses one row, E2E_FROM=MINOR where it begins, 1.36 by default, and E2E_OFFLINE=1 cuts the cable, with all releases in a bundle.
func TestUpgrades(t *testing.T) {
	defer the.shrink(t)
	from := os.Getenv("E2E_FROM")
	if from == "" {
		from = "1.36"
	}
	for _, row := range []int{1, 3, 5, 7, 9, 13, 18, 21} {
		if only := os.Getenv("E2E_UPGRADE"); only != "" && only != strconv.Itoa(row) {
			continue
		}
		t.Run(fmt.Sprint("row", row), func(t *testing.T) {
			defer timed(t)()
			upgrades(t, row, from)
		})
	}
}

func upgrades(t *testing.T, row int, from string) {
	restoreMachines(t)
	for _, v := range []string{"1.36", "1.35", "1.34"} {
		if v >= from {
			provide(t, v, "")
		}
	}
	is := testbed.Rows[row-1]
	the.resize(t, is.Nodes()+1)
	all := the.nodes
	spare := all[len(all)-1]
	the.nodes = all[:len(all)-1] // the configuration is of these
	hooks := filepath.Join(the.dir, fmt.Sprint("hooks", row))
	edits := []edit{impatient, func(spec map[string]any) {
		spec["hosts"] = append(spec["hosts"].([]any), hostEntry(spare, "worker"))
		note := func(when string) map[string]any {
			return map[string]any{"name": "note", "command": "echo " + when + " $KUBEXM_NODE >> " + hooks}
		}
		spec["hooks"] = map[string]any{
			"beforeNode": []any{note("before")},
			"afterNode":  []any{map[string]any{"name": "mark", "where": "host", "command": `echo "$KUBEXM_NODE $(hostname)" >> ` + marks}, note("after")},
		}
	}}
	at := where{kubernetes: from}
	offline := os.Getenv("E2E_OFFLINE") != ""
	if offline {
		bundle := carried(t, row, from, edits)
		defer func() { must(t, the.bed.Release(t.Context())) }()
		at.work = filepath.Join(the.dir, fmt.Sprint("offline", row))
		edits = append(edits, set("source.offline", true), set("dns.coredns.upstream", []any{the.nodes[1].Address}))
		defer func() { os.Remove(bundle) }()
	}
	c := newCluster(t, row, at, edits...)
	if c.isolated = offline; offline {
		c.run(t, "import", filepath.Join(the.dir, "releases.tar.zst")).ok(t)
		c.built = true
	}
	worker := len(the.nodes) - len(c.balancers())
	the.nodes = slices.Insert(slices.Clone(the.nodes), worker, spare) // beside the other workers
	defer func() { the.nodes = all }()
	before := the.snapshots(t)
	c.create(t).ok(t)
	defer func() {
		c.unrelay(t)
		for _, n := range the.nodes {
			the.on(t, n, "rm -f "+marks)
		}
		c.remove(t)
		for i, text := range the.snapshots(t) {
			nodeAsBefore(t, the.nodes[i], before[i], text, sharedByAll)
		}
	}()
	for _, n := range c.kubelets() {
		must(t, the.bed.Load(t.Context(), n, smoke.Image))
	}
	service := c.serve(t)
	t.Logf("the plan:\n%s", c.run(t, "upgrade", "plan").ok(t).stdout.String())
	random := rand.New(rand.NewPCG(seed(t), 0))
	for i, way := range [][]string{{"cluster", "--to", find(t, "kubernetes@1.37").Version}, {"rollback"}, {"cluster", "--to", "1.37"}} {
		for _, n := range c.kubelets() { // where the disk is nearly full, a drained node has lost it
			must(t, the.bed.Load(t.Context(), n, smoke.Image))
		}
		os.Remove(hooks)
		w := watch(t, c)
		asks := c.ask(t, service+"/", 2)
		args := append(append([]string{"upgrade"}, way...), "--yes", "-o", "json")
		if i == 2 {
			c.broken(t, spare, args)
			c.killedAt(t, args, random)
		}
		done := c.run(t, args...).ok(t)
		w.until(t, time.Second)
		seen := w.stop(t)
		t.Logf("upgrade %s: %d of %d steps changed in %.0f s; %s; %s", strings.Join(way, " "), done.result.Summary.Changed, done.result.Summary.Total, done.took.Seconds(), seen, asks(t))
		c.kubernetes = "1.37"
		if way[0] == "rollback" {
			c.kubernetes = "1.36"
		}
		c.versions(t)
		c.hooked(t, hooks, i < 2)
		c.unchanged(t)
		c.whole(t)
	}
}

// marks is where the hook on hosts writes.
const marks = "/run/kubexm-e2e-hooked"

// carried packs all releases on the way from one into a file, as a machine with a network does, and cuts the cable.
func carried(t *testing.T, row int, from string, edits []edit) (bundle string) {
	t.Helper()
	bundle = filepath.Join(the.dir, "releases.tar.zst")
	var releases []string
	for _, v := range []string{"1.34", "1.35", "1.36", "1.37"} {
		if v >= from {
			releases = append(releases, find(t, "kubernetes@"+v).Version)
		}
	}
	newCluster(t, row, where{work: filepath.Join(the.dir, fmt.Sprint("online", row)), kubernetes: from}, edits...).
		run(t, "download", "--os", "debian12,debian13", "--k8s", strings.Join(releases, ","), "--export", bundle).ok(t)
	must(t, the.bed.Isolate(t.Context()))
	return bundle
}

// hooked wants hooks to have run around each node: before it, and then after it, on this machine and on the host; once where nothing went wrong.
func (c *cluster) hooked(t *testing.T, file string, once bool) {
	t.Helper()
	out, err := os.ReadFile(file)
	must(t, err)
	for _, n := range c.kubelets() {
		var of []string
		for line := range strings.Lines(string(out)) {
			if when, name, _ := strings.Cut(strings.TrimSpace(line), " "); name == n.Name {
				of = append(of, when)
			}
		}
		is := strings.TrimSpace(the.on(t, n, "cat "+marks+"; rm "+marks))
		if text := strings.Join(of, " "); text != "before after" && once || !strings.HasPrefix(text, "before") || !strings.HasSuffix(text, "after") {
			t.Errorf("hooks of %s ran %q", n.Name, text)
		}
		if want := n.Name + " " + n.Name; is != want && once || !strings.HasPrefix(is, want) {
			t.Errorf("hooks on %s ran as %q", n.Name, is)
		}
	}
}

// broken upgrades while the new kubelet does not start on a worker: it gets back the old one, and pods.
func (c *cluster) broken(t *testing.T, worker testbed.Node, args []string) {
	t.Helper()
	const fault = "/run/systemd/system/kubelet.service.d/fault.conf"
	the.on(t, worker, `mkdir -p $(dirname `+fault+`) && printf '[Service]\nExecStartPre=/bin/sh -c "! /usr/local/bin/kubelet --version | grep -q v1.37"\n' >`+fault+` && systemctl daemon-reload`)
	o := c.run(t, args...)
	t.Logf("with a kubelet that does not start: exit code %d after %.0f s; it said:\n%s", o.code, o.took.Seconds(), o.text())
	if o.code == 0 || !strings.Contains(o.text(), worker.Name) {
		t.Errorf("the kubelet of %s did not start, and nobody said so", worker.Name)
	}
	the.on(t, worker, "rm -r $(dirname "+fault+") && systemctl daemon-reload")
	node, err := c.client(t).CoreV1().Nodes().Get(t.Context(), worker.Name, metav1.GetOptions{})
	must(t, err)
	if is := node.Status.NodeInfo.KubeletVersion; !strings.HasPrefix(is, "v1.36.") || node.Spec.Unschedulable {
		t.Errorf("%s runs %s; cordoned: %t", worker.Name, is, node.Spec.Unschedulable)
	}
}

// killedAt kills kubexm at five random moments of an upgrade, unless it ends before.
func (c *cluster) killedAt(t *testing.T, args []string, random *rand.Rand) {
	t.Helper()
	for range 5 {
		delay := time.Duration(random.Int64N(int64(40 * time.Second)))
		p := c.start(t, nil, args...)
		timer := time.AfterFunc(delay, func() { p.signal(syscall.SIGKILL) })
		o := p.wait(t)
		timer.Stop()
		if o.code != 128+int(syscall.SIGKILL) {
			o.ok(t)
			return
		}
		last := "no event"
		if n := len(o.events); n > 0 {
			last = fmt.Sprintf("%d events, the last: %s %s on %s", n, o.events[n-1].Status, o.events[n-1].What, o.events[n-1].Host)
		}
		t.Logf("killed after %.1f s and %s", o.took.Seconds(), last)
	}
}

// versions wants all nodes to run the cluster's version of Kubernetes and to get pods, and so the API server.
func (c *cluster) versions(t *testing.T) {
	t.Helper()
	client := c.client(t)
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, n := range nodes.Items {
		if n.Status.NodeInfo.KubeletVersion != c.version(t) || n.Spec.Unschedulable {
			t.Errorf("node %s runs %s; cordoned: %t", n.Name, n.Status.NodeInfo.KubeletVersion, n.Spec.Unschedulable)
		}
	}
	server, err := client.Discovery().ServerVersion()
	must(t, err)
	if server.GitVersion != c.version(t) {
		t.Errorf("the API server runs %s", server.GitVersion)
	}
}

// serve runs guests that let requests end before they do, and returns the address of their service, for a URL.
func (c *cluster) serve(t *testing.T) string {
	t.Helper()
	client := c.client(t)
	deployment, budget := guests()
	pods, grace := &deployment.Spec.Template.Spec, int64(15)
	pods.TerminationGracePeriodSeconds = &grace
	pods.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
	_, err := client.AppsV1().Deployments("default").Create(t.Context(), deployment, metav1.CreateOptions{})
	must(t, err)
	_, err = client.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), budget, metav1.CreateOptions{})
	must(t, err)
	service, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{ObjectMeta: deployment.ObjectMeta, Spec: corev1.ServiceSpec{
		Selector: deployment.Spec.Selector.MatchLabels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
	}}, metav1.CreateOptions{})
	must(t, err)
	for begin := time.Now(); ; time.Sleep(time.Second) {
		is, err := client.AppsV1().Deployments("default").Get(t.Context(), deployment.Name, metav1.GetOptions{})
		if err == nil && is.Status.ReadyReplicas == 4 {
			return smoke.InURL(service.Spec.ClusterIP)
		}
		if time.Since(begin) > 2*time.Minute {
			t.Fatalf("the guests are not ready: %v", err)
		}
	}
}

// ask asks at an address from the first master, once there has been an answer, ten times a second, until the function that it returns counts the answers, each of which must come within seconds.
func (c *cluster) ask(t *testing.T, address string, seconds int) func(*testing.T) string {
	t.Helper()
	n := the.nodes[0]
	the.on(t, n, `i=0; until curl -sf -m 2 -o /dev/null http://`+address+`; do i=$((i + 1)); [ $i -lt 100 ] || exit 1; sleep 0.2; done; rm -f /run/asked; systemd-run -q --unit asks sh -c 'while :; do said=$(curl -sS -m `+strconv.Itoa(seconds)+` -w " %{http_code}" http://`+address+` 2>&1); case "$said" in *" 200") echo ok ;; *) echo "failed $(date +%T) $(echo "$said" | tr "\n" " " | cut -c 1-200)" ;; esac; sleep 0.1; done >>/run/asked'`)
	return func(t *testing.T) string {
		t.Helper()
		out := the.on(t, n, `systemctl stop asks; systemctl reset-failed asks 2>/dev/null; echo "$(grep -c . /run/asked) requests, $(grep -c failed /run/asked) failed"; grep failed /run/asked | head -n 20; rm -f /run/asked`)
		if !strings.Contains(out, " 0 failed") {
			t.Errorf("the service did not always answer: %s", out)
		}
		return strings.TrimSpace(strings.ReplaceAll(out, "\n", " "))
	}
}

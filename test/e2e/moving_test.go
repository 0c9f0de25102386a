//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/test/smoke"
	"github.com/kubexm/kubexm/test/testbed"
)

// moving is a cluster whose hosts come and go.
type moving struct {
	*cluster
	full     []any             // the row's hosts
	balancer any               // and its load balancer
	spares   []testbed.Node    // that are no hosts of the row
	before   map[string]string // what machines were like, by name
	gone     string            // a machine without power
	took     map[string]time.Duration
}

// stroke is a command that changes which hosts there are.
type stroke struct {
	name    string
	args    []string
	prepare func(t *testing.T) // what comes before it
	strict  bool               // nothing at all restarts on other hosts
	again   []string           // machines that leave and join again
}

// configured is what matters here of a configuration.
type configured struct {
	Spec struct {
		Hosts        []any
		LoadBalancer any
	}
}

func (m *moving) read(t *testing.T) (c configured) {
	t.Helper()
	text, err := os.ReadFile(m.file)
	must(t, err)
	must(t, yaml.Unmarshal(text, &c))
	return c
}

// with are the names of the hosts that have one of some roles by now; of all, where none is given.
func (m *moving) with(t *testing.T, roles ...string) (all []string) {
	t.Helper()
	for _, h := range m.read(t).Spec.Hosts {
		h := h.(map[string]any)
		has := func(r string) bool { return slices.Contains(h["roles"].([]any), any(r)) }
		if roles == nil || slices.ContainsFunc(roles, has) {
			all = append(all, h["name"].(string))
		}
	}
	slices.Sort(all)
	return all
}

// beyondSmall reports whether a host is part of the row, but not of a cluster with one master.
func (m *moving) beyondSmall(name string) bool {
	i := slices.IndexFunc(m.full, func(h any) bool { return h.(map[string]any)["name"] == name })
	return i > 0 && !slices.Contains(m.full[i].(map[string]any)["roles"].([]any), any("worker"))
}

// small is the row with one master, and without what several need.
func (m *moving) small() edit {
	return func(spec map[string]any) {
		var few []any
		for _, h := range m.full {
			if !m.beyondSmall(h.(map[string]any)["name"].(string)) {
				few = append(few, h)
			}
		}
		spec["hosts"], spec["loadBalancer"] = few, map[string]any{"enabled": false}
	}
}

// begin makes the cluster.
func (m *moving) begin(t *testing.T) {
	t.Helper()
	m.made = m.create(t).ok(t)
	t.Logf("made in %.0f s", m.made.took.Seconds())
	for _, n := range m.with(t, "master", "worker") {
		must(t, the.bed.Load(t.Context(), the.node(t, n), smoke.Image))
	}
}

// whole makes sure that the cluster is there, with all that the row has.
func (m *moving) whole(t *testing.T) {
	t.Helper()
	if m.made == nil {
		m.begin(t)
	} else if len(m.with(t, "master")) < len(m.masters()) {
		s := m.growing()
		s.prepare(t)
		m.run(t, s.args...).ok(t)
	}
	if here := m.read(t).Spec.Hosts; len(here) != len(m.full) {
		t.Fatalf("there are %d hosts, not those %d of the row", len(here), len(m.full))
	}
}

// limit is for how long the API may be away; 0: as long as those take that know the first master alone.
func (m *moving) limit(d time.Duration) time.Duration {
	if testbed.Rows[m.row-1].Balancer == "off" {
		return 0
	}
	return d
}

// move changes the hosts of a cluster that is used, and wants it to be as it is to be then.
func (m *moving) move(t *testing.T, s stroke, away time.Duration) {
	t.Helper()
	stay := m.with(t, "master", "worker")
	running, pods := m.containers(t, stay, s.strict), m.pods(t)
	w := watch(t, m.cluster)
	s.prepare(t)
	done := m.run(t, s.args...).ok(t)
	w.until(t, time.Second)
	seen := w.stop(t)
	m.took[s.name] = done.took
	moved := 0
	for p := range m.pods(t) {
		if !pods[p] {
			moved++
		}
	}
	t.Logf("%s: %d of %d steps changed in %.0f s; %s; %d pods moved", s.name, done.result.Summary.Changed, done.result.Summary.Total, done.took.Seconds(), seen, moved)
	if away > 0 && seen.gap > away {
		t.Errorf("the API server was away for %s", seen.gap)
	}
	m.holds(t)
	still := m.with(t, "master", "worker")
	stay = slices.DeleteFunc(stay, func(n string) bool { return !slices.Contains(still, n) || slices.Contains(s.again, n) })
	now := m.containers(t, stay, s.strict)
	for _, n := range stay {
		for _, line := range running[n] {
			if !slices.Contains(now[n], line) {
				t.Errorf("on %s, which stays, %q ended; now there are\n%s", n, line, strings.Join(now[n], "\n"))
			}
		}
	}
}

// holds wants the cluster to be as it is configured: nothing to do, all nodes, all members of etcd, and nothing left on other machines.
func (m *moving) holds(t *testing.T) {
	t.Helper()
	m.kernel(t)
	m.unchanged(t)
	m.cluster.whole(t)
	list, err := m.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	var nodes []string
	for _, n := range list.Items {
		nodes = append(nodes, n.Name)
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			t.Errorf("node %s is not Ready", n.Name)
		}
		if n.Spec.Unschedulable {
			t.Errorf("node %s is cordoned", n.Name)
		}
	}
	if slices.Sort(nodes); !slices.Equal(nodes, m.with(t, "master", "worker")) {
		t.Errorf("nodes are %v, want %v", nodes, m.with(t, "master", "worker"))
	}
	if !m.externalEtcd() {
		m.checkMembers(t)
	}
	hosts := m.with(t)
	m.left(t, sharedByAll, func(name string) bool { return !slices.Contains(hosts, name) })
	if m.gone == "" {
		m.addresses(t)
		m.verified(t)
	}
}

// verified wants everything to name the hosts that the cluster has, once leases of machines that left are over.
func (m *moving) verified(t *testing.T) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(2 * time.Second) {
		o := m.run(t, "status", "--verify")
		if o.code == 0 {
			return
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("status --verify: %s", o.text())
		}
	}
}

// checkMembers wants etcd to have the members that are configured, all of them healthy.
func (m *moving) checkMembers(t *testing.T) {
	t.Helper()
	want := m.with(t, "etcd")
	if testbed.Rows[m.row-1].Etcd == "kubeadm" {
		want = m.with(t, "master", "etcd")
	}
	var have []string
	for _, s := range m.members(t) {
		have = append(have, s.Name)
		if s.Err != nil || s.Member.Learner {
			t.Errorf("member %s of etcd: learner: %t, %v", s.Name, s.Member.Learner, s.Err)
		}
	}
	if slices.Sort(have); !slices.Equal(have, want) {
		t.Errorf("members of etcd are %v, want %v", have, want)
	}
}

// members asks etcd itself.
func (m *moving) members(t *testing.T) []etcd.State {
	t.Helper()
	store := &pki.Store{Dir: m.dir("certs"), Existing: true}
	trusted, err := store.Trust(pki.Etcd)
	must(t, err)
	own, err := store.EtcdOperator()
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	secure := func() (*tls.Config, error) {
		return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{*own.TLS()}}, nil
	}
	var all []etcd.Access
	for _, n := range m.with(t, "master", "etcd") {
		all = append(all, etcd.Access{Endpoint: "https://" + the.node(t, n).Port("2379"), TLS: secure, Dial: (&net.Dialer{}).DialContext})
	}
	view := etcd.Survey(t.Context(), all)
	if len(view.Members) == 0 {
		t.Fatalf("etcd does not answer: %v", view.Errs)
	}
	return view.Members
}

// sharedByAll are the sysctls of the one kernel that machines here share: as long as one is a host, all others have its.
var sharedByAll = regexp.MustCompile(`^[+-] sysctl: (kernel|vm|fs)\.`)

// kernel sets them again as hosts want them: a machine that is as it was before takes them from the others, too.
func (m *moving) kernel(t *testing.T) {
	t.Helper()
	for _, name := range m.with(t) {
		if name != m.gone {
			the.on(t, the.node(t, name), "grep -E '^(kernel|vm|fs)[./]' /etc/sysctl.d/99-kubexm.conf | sysctl -q -p -")
			return
		}
	}
}

// left wants machines to be as they were before the cluster, but for lines that others of its hosts account for. That of an external etcd is not of it.
func (m *moving) left(t *testing.T, others *regexp.Regexp, is func(name string) bool) {
	t.Helper()
	for i, n := range the.nodes {
		if n.Name == m.gone || m.externalEtcd() && i == testbed.Rows[m.row-1].Nodes()-1 || !is(n.Name) {
			continue
		}
		text, err := the.bed.Snapshot(t.Context(), n)
		must(t, err)
		nodeAsBefore(t, n, m.before[n.Name], text, others)
	}
}

// client calls the API as the administrator does.
func (c *cluster) client(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	p, err := smoke.New(c.kubeconfig(), t.Logf)
	must(t, err)
	return p.Client
}

// pods are those that are neither of a node nor of a DaemonSet: they move.
func (m *moving) pods(t *testing.T) map[string]bool {
	t.Helper()
	list, err := m.client(t).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	all := map[string]bool{}
	for _, p := range list.Items {
		if owner := metav1.GetControllerOf(&p); owner != nil && owner.Kind == "ReplicaSet" {
			all[p.Namespace+"/"+p.Name] = true
		}
	}
	return all
}

// services are those of hosts, whose restart is one that is noticed.
const services = "kubelet containerd crio docker cri-docker etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy haproxy nginx keepalived"

// containers lists what runs on nodes, and how often it has started; with all, also what belongs to the control plane and leads to it.
func (m *moving) containers(t *testing.T, nodes []string, all bool) map[string][]string {
	t.Helper()
	on := map[string][]string{}
	for _, n := range nodes {
		if n == m.gone {
			continue
		}
		node := the.node(t, n)
		on[n] = containers(t, node, all)
		if all {
			text := the.on(t, node, "for u in "+services+"; do echo $u $(systemctl show -P InvocationID $u); done")
			on[n] = append(on[n], strings.Split(text, "\n")...)
		}
	}
	return on
}

// guests runs a Deployment with a budget, two of whose pods are on a machine.
func (m *moving) guests(t *testing.T, on testbed.Node) {
	t.Helper()
	must(t, the.bed.Load(t.Context(), on, smoke.Image))
	client := m.client(t)
	deployment, budget := guests()
	_, err := client.AppsV1().Deployments("default").Create(t.Context(), deployment, metav1.CreateOptions{})
	must(t, err)
	_, err = client.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), budget, metav1.CreateOptions{})
	must(t, err)
	there, said := 0, ""
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(300 * time.Millisecond) {
		list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=guests"})
		must(t, err)
		ready := 0
		there, said = 0, ""
		for _, p := range list.Items {
			said += fmt.Sprintf("%s on %s: %s\n", p.Name, p.Spec.NodeName, p.Status.Phase)
			if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
				ready++
				if p.Spec.NodeName == on.Name {
					there++
				}
			}
		}
		if ready == int(*deployment.Spec.Replicas) {
			break
		}
	}
	if there < 2 {
		t.Fatalf("%d pods are ready on %s:\n%s", there, on.Name, said)
	}
}

// budget watches whether the budget is kept, and removes what guests made when it is called.
func (m *moving) budget(t *testing.T) func(t *testing.T) {
	t.Helper()
	client := m.client(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	var busy sync.WaitGroup
	least, wanted := int32(1<<30), int32(0)
	busy.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			if b, err := client.PolicyV1().PodDisruptionBudgets("default").Get(ctx, "guests", metav1.GetOptions{}); err == nil {
				least, wanted = min(least, b.Status.CurrentHealthy), b.Status.DesiredHealthy
			}
		}
	})
	return func(t *testing.T) {
		t.Helper()
		cancel()
		busy.Wait()
		t.Logf("at least %d pods were ready, wanted %d", least, wanted)
		if least < wanted {
			t.Error("the disruption budget was not kept")
		}
		must(t, client.AppsV1().Deployments("default").Delete(t.Context(), "guests", metav1.DeleteOptions{}))
		must(t, client.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "guests", metav1.DeleteOptions{}))
	}
}

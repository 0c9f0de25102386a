//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/test/smoke"
	"github.com/kubexm/kubexm/test/testbed"
)

// undisturbed is the state of each row's cluster when nothing disturbs it.
var undisturbed = map[int]state{}

// standard are the settings of the clusters whose states are compared.
func standard(t *testing.T, row int) *cluster {
	t.Helper()
	c := newCluster(t, row, where{}, impatient,
		host(1, "labels", map[string]any{"example.com/team": "blue"}),
		host(1, "taints", []any{map[string]any{"key": "example.com/soft", "value": "yes", "effect": "PreferNoSchedule"}}),
		set("dns.coredns.externalZones", []any{map[string]any{"zones": []any{outsideZone}, "nameservers": []any{outsideServer()}}}))
	c.zones = true
	return c
}

// The rows of the deployment matrix, each from nothing to a cluster that works,
// changed by nothing, and back to nothing.
func TestRows(t *testing.T) {
	serveOutside(t)
	for _, row := range []int{1, 2} {
		t.Run(fmt.Sprint("row", row), func(t *testing.T) { cycle(t, standard(t, row)) })
	}
}

// cycle makes a cluster, proves it, and takes it away again.
func cycle(t *testing.T, c *cluster) {
	defer timed(t)()
	restoreMachines(t)
	before := the.snapshots(t)
	processes := watchProcesses(t)
	t.Run("create", func(t *testing.T) {
		defer timed(t)()
		before, err := the.bed.Sent()
		must(t, err)
		made := c.create(t).ok(t)
		after, err := the.bed.Sent()
		must(t, err)
		c.made, c.sent = made, after-before
		if r := made.result; r == nil || r.Result != "ok" || r.Summary.Changed == 0 || r.Summary.Failed != 0 || r.Kubeconfig != c.kubeconfig() {
			t.Fatalf("result %+v", r)
		}
		t.Logf("%d steps, %d changed", made.result.Summary.Total, made.result.Summary.Changed)
	})
	seen := processes()
	t.Run("works", func(t *testing.T) {
		defer timed(t)()
		prove(t, c)
	})
	t.Run("facts", func(t *testing.T) {
		defer timed(t)()
		checkNodes(t, c)
		checkStatus(t, c)
		checkCertificates(t, c)
		checkCommands(t, c)
		if c.also != nil {
			c.also()
		}
	})
	t.Run("again", func(t *testing.T) {
		defer timed(t)()
		again := c.create(t).ok(t)
		if s := again.result.Summary; s.Changed != 0 || s.OK != s.Total {
			t.Errorf("a second run changed something: %+v\n%s", s, again.changes())
		}
		t.Logf("a second run took %.1f s", again.took.Seconds())
	})
	t.Run("secrets", func(t *testing.T) {
		defer timed(t)()
		checkSecrets(t, c, seen)
	})
	if len(c.masters()) > 1 && !t.Failed() {
		t.Run("breaks", func(t *testing.T) {
			defer timed(t)()
			breaks(t, c)
		})
	}
	if t.Failed() {
		return
	}
	if c.zones {
		undisturbed[c.row] = stateOf(t, c)
	}
	t.Run("delete", func(t *testing.T) {
		defer timed(t)()
		c.remove(t)
		asBefore(t, before)
		for _, left := range []string{"certs", "admin.conf"} {
			if _, err := os.Stat(c.dir(left)); err == nil {
				t.Errorf("%s is left on the control machine", left)
			}
		}
	})
}

// changes lists what a run changed.
func (o *outcome) changes() string {
	var b strings.Builder
	for _, e := range o.events {
		if e.Status == "changed" {
			fmt.Fprintln(&b, e.Host, e.What)
		}
	}
	return b.String()
}

// restoreMachines gives the next test new machines when this one fails.
func restoreMachines(t *testing.T) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		if os.Getenv("E2E_KEEP") != "" {
			fmt.Println("kept:", the.dir, "and the machines of testbed", the.bed.Name)
			os.Exit(1)
		}
		the.renew(t)
	})
}

// prove shows that pods, Services, DNS and logs of a cluster work.
func prove(t *testing.T, c *cluster) {
	t.Helper()
	for _, n := range c.kubelets() {
		if err := the.bed.Load(t.Context(), n, smoke.Image); err != nil {
			t.Fatal(err)
		}
	}
	var outside []string
	if c.zones {
		outside = append(outside, "www."+outsideZone+"="+outsideAddress())
	}
	if err := prover(t, c).Prove(t.Context(), "cluster.local", outside...); err != nil {
		t.Fatal(err)
	}
}

// checkNodes compares what nodes say about themselves with what was asked for.
func checkNodes(t *testing.T, c *cluster) {
	t.Helper()
	list, err := c.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	runtime := runtime(t)
	program := find(t, runtime.Name+"@"+c.containerd)
	for i, n := range list.Items {
		is := n.Status.NodeInfo
		got := []string{n.Name, is.KubeletVersion, is.ContainerRuntimeVersion}
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				got = append(got, a.Address)
			}
		}
		want := append([]string{the.nodes[i].Name, c.version(t), runtime.Name + "://" + program.Version[1:]}, the.nodes[i].Addresses()...)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("node %d: %s", i, d)
		}
		labels := map[string]string{"node-role.kubernetes.io/control-plane": ""}
		taints := []string{"node-role.kubernetes.io/control-plane=:NoSchedule"}
		if i == 1 {
			labels = map[string]string{"node-role.kubernetes.io/worker": "", "example.com/team": "blue"}
			taints = []string{"example.com/soft=yes:PreferNoSchedule"}
		}
		if !c.zones {
			continue // not the standard configuration
		}
		for k, v := range labels {
			if got, ok := n.Labels[k]; !ok || got != v {
				t.Errorf("%s: label %s is %q, %t", n.Name, k, got, ok)
			}
		}
		var have []string
		for _, taint := range n.Spec.Taints {
			have = append(have, taint.Key+"="+taint.Value+":"+string(taint.Effect))
		}
		if !slices.Equal(have, taints) {
			t.Errorf("%s: taints %v, want %v", n.Name, have, taints)
		}
	}
	for _, n := range c.kubelets() {
		facts := the.on(t, n, "systemctl is-active kubelet "+runtime.Unit+`; stat -c %a /var/lib/kubelet/config.yaml
grep -c "^cgroupDriver: systemd" /var/lib/kubelet/config.yaml; `+runtimes[runtime.Name].systemd+`; crictl info >/dev/null && echo crictl`)
		if want := "active\nactive\n644\n1\n1\ncrictl"; facts != want {
			t.Errorf("%s: %q, want %q", n.Name, facts, want)
		}
		if loose := the.on(t, n, `find /etc/kubernetes /etc/ssl/etcd /var/lib/kubelet/pki /var/lib/kubelet/config.yaml /var/lib/kube-proxy -type f \( -name '*.key' -o -name '*-key.pem' -o -name '*.conf' \) -perm /077 2>/dev/null; true`); loose != "" {
			t.Errorf("%s: others may read %s", n.Name, loose)
		}
	}
	checkModes(t, c)
}

// checkModes fails where others may read what is secret on the control machine.
func checkModes(t *testing.T, c *cluster) {
	t.Helper()
	for _, f := range []string{"", "admin.conf", "certs", store.File} {
		info, err := os.Stat(c.dir(f))
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", c.dir(f), info.Mode().Perm())
		}
	}
}

// checkStatus compares what kubexm says about the cluster.
func checkStatus(t *testing.T, c *cluster) {
	t.Helper()
	said := c.run(t, "status", "-o", "json").ok(t)
	var status struct {
		Cluster, Server string
		Healthy         bool
		Nodes           []struct{ Name, Status, Version string }
		ControlPlane    []struct{ Name string }
		LastRun         struct{ Result string }
	}
	if err := json.Unmarshal(said.stdout.Bytes(), &status); err != nil {
		t.Fatalf("%v in %s", err, said.stdout.String())
	}
	if status.Cluster != c.name || !status.Healthy || status.Server != c.version(t) || len(status.Nodes) != len(c.kubelets()) || len(status.ControlPlane) != 3*len(c.masters())+c.members+len(c.balancers())+c.registries || status.LastRun.Result != "ok" {
		t.Errorf("status %+v", status)
	}
	for _, n := range status.Nodes {
		if n.Status != "Ready" {
			t.Errorf("status of %s: %s", n.Name, n.Status)
		}
	}
}

// checkCertificates wants every server to present a certificate that a file of its host has, or one that the kubelet made.
func checkCertificates(t *testing.T, c *cluster) {
	t.Helper()
	said := c.run(t, "certs", "check-expiration", "-o", "json").ok(t)
	var is struct {
		Certificates []struct {
			Host, Path, Subject, State string
			Servers                    []string
		}
	}
	if err := json.Unmarshal(said.stdout.Bytes(), &is); err != nil {
		t.Fatalf("%v in %s", err, said.stdout.String())
	}
	present := map[string]int{}
	for _, one := range is.Certificates {
		for _, s := range one.Servers {
			program, _, _ := strings.Cut(s, " ")
			present[program]++
		}
		if one.Path == "" || one.State != "ok" {
			t.Errorf("%+v", one)
		}
	}
	if present["kubelet"] != len(c.kubelets()) || present["kube-apiserver"] != len(c.masters()) || present["etcd"] != 2*c.members || present["registry"] != c.registries {
		t.Errorf("servers present %v", present)
	}
}

// checkCommands runs a command on the masters, and takes the kubeconfig elsewhere.
func checkCommands(t *testing.T, c *cluster) {
	t.Helper()
	said := c.run(t, "exec", "--role", "master", "-o", "json", "--", "systemctl is-active kubelet; exit $(cat /proc/sys/kernel/pid_max | wc -l)")
	var results []struct {
		Host   string
		Code   int `json:"exitCode"`
		Stdout string
	}
	if err := json.Unmarshal(said.stdout.Bytes(), &results); err != nil || said.code != 1 || len(results) != len(c.masters()) {
		t.Fatalf("%d, %v in %s", said.code, err, said.text())
	}
	for _, r := range results {
		if r.Stdout != "active\n" || r.Code != 1 {
			t.Errorf("exec: %+v", r)
		}
	}
	file := filepath.Join(t.TempDir(), "config")
	c.run(t, "kubeconfig", "--merge="+file, "--context", "elsewhere").ok(t)
	conf, err := clientcmd.BuildConfigFromFlags("", file)
	must(t, err)
	client, err := kubernetes.NewForConfig(conf)
	must(t, err)
	if out, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context()); err != nil || string(out) != "ok" {
		t.Errorf("/readyz: %s, %v", out, err)
	}
}

// allowed are lines in which a machine may differ after create and delete.
var allowed = []struct {
	line   *regexp.Regexp
	reason string
}{
	{regexp.MustCompile(`^[+-] .*: xtables\.lock$`), "iptables makes its lock when somebody first looks at rules; it is in memory, gone with a reboot, and belongs to nobody"},
	{regexp.MustCompile(`^\+ .*: adduser$`), "adduser, which packages call for a user of their own, leaves its lock in memory, gone with a reboot"},
	{regexp.MustCompile(`^\+ .*/\.sudo_as_admin_successful\b`), "sudo's own note on the user's first success"},
	{regexp.MustCompile(`^\+ running units: ufw\.service active$`), "`ufw enable` had loaded its rules without the service, which loads them again"},
}

// asBefore compares machines with the descriptions made before a cluster was.
func asBefore(t *testing.T, before []string) {
	t.Helper()
	for i, after := range the.snapshots(t) {
		nodeAsBefore(t, the.nodes[i], before[i], after, nil)
	}
}

// nodeAsBefore compares two descriptions of a machine, but for lines that others may account for.
func nodeAsBefore(t *testing.T, n testbed.Node, before, after string, others *regexp.Regexp) {
	t.Helper()
lines:
	for _, line := range changed(before, after) {
		if others != nil && others.MatchString(line) {
			continue
		}
		for _, a := range allowed {
			if a.line.MatchString(line) {
				continue lines
			}
		}
		t.Errorf("%s is not as before: %s", n.Name, line)
	}
}

// changed returns the lines that only one of two texts has, with - or + and the
// title of their section.
func changed(before, after string) []string {
	var out []string
	one, two := lines(before), lines(after)
	for line := range one {
		if !two[line] {
			out = append(out, "- "+line)
		}
	}
	for line := range two {
		if !one[line] {
			out = append(out, "+ "+line)
		}
	}
	slices.Sort(out)
	return out
}

func lines(snapshot string) map[string]bool {
	all := map[string]bool{}
	title := ""
	for line := range strings.SplitSeq(snapshot, "\n") {
		if t, ok := strings.CutPrefix(line, "== "); ok {
			title = t
		}
		all[title+": "+line] = true
	}
	return all
}

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/test/testbed"
)

// lifeRows are the rows whose clusters are changed while they run.
var lifeRows = []int{5, 7, 9, 13}

// TestLife changes clusters that run, one edit of the configuration after the other, while a user on the worker asks the
// API server every 100 ms and writes all the time: nothing that was written is lost, the API server is away for a
// moment at most where there is a load balancer, and a second apply finds nothing to do. E2E_LIFE=ROW chooses one row.
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
	name string
	edit edit
	away time.Duration // 0: as long as its only server takes
}

func life(t *testing.T, row int) {
	restoreMachines(t)
	the.resize(t, testbed.Rows[row-1].Masters+1)
	c := newCluster(t, row, where{}, impatient)
	c.create(t).ok(t)
	defer c.remove(t)
	defer func() {
		the.on(t, c.workers()[0], "systemctl stop relay; systemctl reset-failed relay 2>/dev/null || true")
	}()
	moment := 2 * time.Second // processors are shared by all machines and the test
	if b := testbed.Rows[row-1].Balancer; b == "off" {
		moment = 0
	} else if b == "kube-vip" {
		moment = 15 * time.Second
	}
	edits := []change{
		{"arguments of all", func(spec map[string]any) {
			set("etcd.extraArgs", map[string]any{"max-request-bytes": "2097152"})(spec)
			set("kubernetes.apiServer.extraArgs", map[string]any{"max-requests-inflight": "800"})(spec)
			set("kubernetes.scheduler.extraArgs", map[string]any{"v": "3"})(spec)
			set("kubernetes.controllerManager.extraArgs", map[string]any{"node-monitor-period": "4s"})(spec)
		}, moment},
		{"a further name", set("kubernetes.apiServer.certSANs", []any{"api.example.com"}), moment},
		{"kubelets", set("kubernetes.kubelet.config.maxParallelImagePulls", 4), moment},
		{"kube-proxy with iptables", set("kubernetes.proxyMode", "iptables"), moment},
		{"no load balancer", set("loadBalancer", map[string]any{"enabled": false}), 0},
		{"haproxy", set("loadBalancer", map[string]any{"internal": map[string]any{"type": "haproxy"}}), 2 * time.Second},
		{"kube-vip", set("loadBalancer", map[string]any{"mode": "kube-vip", "vip": the.bed.VIP()}), 15 * time.Second},
		{"nginx", set("loadBalancer", map[string]any{"internal": map[string]any{"type": "nginx"}}), 15 * time.Second},
	}
	for _, e := range edits {
		t.Run(e.name, func(t *testing.T) {
			defer timed(t)()
			c.change(t, e.edit)
			w := watch(t, c)
			done := c.run(t, "apply", "--yes", "-o", "json").ok(t)
			w.until(t, time.Second)
			gap, kept, lost := w.stop(t)
			t.Logf("%d of %d steps changed in %.0f s; the API server was away for %.1f s; %d writes, %d of them lost",
				done.result.Summary.Changed, done.result.Summary.Total, done.took.Seconds(), gap.Seconds(), kept+lost, lost)
			if lost > 0 {
				t.Errorf("%d writes that were acknowledged are lost", lost)
			}
			if done.result.Summary.Changed == 0 || e.away > 0 && gap > e.away {
				t.Errorf("the API server was away for %s", gap)
			}
			c.unchanged(t)
			c.whole(t)
		})
	}
	t.Run("drift", func(t *testing.T) { c.drifts(t) })
}

// change edits the configuration of a cluster.
func (c *cluster) change(t *testing.T, e edit) {
	t.Helper()
	text, err := os.ReadFile(c.file)
	must(t, err)
	var config map[string]any
	must(t, yaml.Unmarshal(text, &config))
	e(config["spec"].(map[string]any))
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

// drifts changes things behind kubexm's back, and wants them found and put right.
func (c *cluster) drifts(t *testing.T) {
	worker, master := c.workers()[0], c.masters()[1]
	the.on(t, worker, "sed -i 's/^net.ipv4.ip_forward.*/net.ipv4.ip_forward = 0/' /etc/sysctl.d/99-kubexm.conf; echo '# mine' >>/etc/hosts")
	the.on(t, worker, "sed -i 's/maxPods: .*/maxPods: 50/' /var/lib/kubelet/config.yaml; systemctl stop kubelet")
	the.on(t, master, "sed -i 's/ lb.kubexm.local$/ lb.kubexm.invalid/' /etc/hosts")
	plan := c.run(t, "plan", "apply", "-o", "json").ok(t)
	var found struct {
		Steps []struct{ Host, What, Why string }
	}
	must(t, json.Unmarshal(plan.stdout.Bytes(), &found))
	for _, want := range []string{"kernel parameters", "kubelet", "/etc/hosts"} {
		if !slices.ContainsFunc(found.Steps, func(s struct{ Host, What, Why string }) bool {
			return strings.Contains(s.What, want) && s.Why == "drift"
		}) {
			t.Errorf("drift of %s is not found:\n%s", want, plan.stdout.String())
		}
	}
	c.run(t, "apply", "--yes", "-o", "json").ok(t)
	c.unchanged(t)
	c.whole(t)
	if got := the.on(t, worker, "tail -n 1 /etc/hosts; grep -c 'maxPods: 110' /var/lib/kubelet/config.yaml"); !strings.Contains(got, "# mine") || !strings.Contains(got, "1") {
		t.Errorf("after the repair: %s", got)
	}
}

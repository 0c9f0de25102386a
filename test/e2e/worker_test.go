//go:build e2e

package e2e

import (
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/test/smoke"
)

// TestWorkerDies takes the power of one of three workers away: first when it joins, then
// before the run begins, with --allow-missing. The others become nodes of a cluster that
// works each time, and the next run adds the one.
func TestWorkerDies(t *testing.T) {
	defer timed(t)()
	defer the.shrink(t)
	the.resize(t, 4)
	restoreMachines(t)
	before := the.snapshots(t)
	c := newCluster(t, 1, where{}, impatient, set("kubernetes.proxyMode", "nftables"))
	victim := c.workers()[1]
	t.Run("when it joins", func(t *testing.T) {
		defer timed(t)()
		var once sync.Once
		p := c.start(t, func(_ int, e event) {
			if e.Host == victim.Name && e.Status == "started" && e.What == "kubeadm join" {
				once.Do(func() {
					time.Sleep(400 * time.Millisecond) // in the middle of it
					must(t, the.bed.Poweroff(t.Context(), victim))
				})
			}
		}, "create", "cluster", "--yes", "-o", "json")
		failed := p.wait(t).fails(t, fault.ExitFailed, victim.Name, "resume: ")
		t.Logf("it ended after %s", failed.took)
		for _, e := range failed.events {
			if e.Status == "failed" && e.Host != victim.Name {
				t.Errorf("failed on %s: %s: %s", e.Host, e.What, e.Error)
			}
		}
		without(t, c, victim.Name)
		must(t, the.bed.Start(t.Context(), victim))
		c.create(t, "--resume").ok(t)
		whole(t, c)
		c.remove(t)
		asBefore(t, before)
	})
	if t.Failed() {
		return
	}
	t.Run("before the run", func(t *testing.T) {
		defer timed(t)()
		must(t, the.bed.Poweroff(t.Context(), victim))
		c.create(t).fails(t, fault.ExitFailed, victim.Name, "not reachable", "--allow-missing")
		made := c.create(t, "--allow-missing").fails(t, 0, "left out: host "+victim.Name)
		if r := made.result; r == nil || !slices.Equal(r.Missing, []string{victim.Name}) {
			t.Errorf("result %+v", r)
		}
		without(t, c, victim.Name)
		must(t, the.bed.Start(t.Context(), victim))
		c.create(t).ok(t)
		whole(t, c)
		c.remove(t)
		asBefore(t, before)
	})
}

// without checks whether all nodes but one, which need not be there, are ready and have their labels.
func without(t *testing.T, c *cluster, lost string) {
	t.Helper()
	p, err := smoke.New(c.kubeconfig(), t.Logf)
	must(t, err)
	list, err := p.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "node-role.kubernetes.io/worker"})
	must(t, err)
	ready := map[string]bool{}
	for _, n := range list.Items {
		for _, is := range n.Status.Conditions {
			ready[n.Name] = ready[n.Name] || is.Type == corev1.NodeReady && is.Status == corev1.ConditionTrue
		}
	}
	for _, n := range c.workers() {
		if n.Name != lost && !ready[n.Name] {
			t.Errorf("%s is not a worker that is ready", n.Name)
		}
	}
}

// whole shows that a cluster works, and that there is nothing left to change.
func whole(t *testing.T, c *cluster) {
	t.Helper()
	prove(t, c)
	again := c.create(t).ok(t)
	if s := again.result.Summary; s.Changed != 0 || s.OK != s.Total {
		t.Errorf("a second run changed something: %+v\n%s", s, again.changes())
	}
}

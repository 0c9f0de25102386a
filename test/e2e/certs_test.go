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

	"github.com/kubexm/kubexm/test/smoke"
	"github.com/kubexm/kubexm/test/testbed"
)

// TestCertificates renews all certificates of a cluster with a load, and exchanges all its authorities: in phases, and once more in runs that are killed at random moments. Clients
// that know only the former authorities are served until these are dropped; pods that read once by what they know API servers, too. E2E_CERTS=ROW chooses one row.
func TestCertificates(t *testing.T) {
	defer the.shrink(t)
	for _, row := range []int{1, 2, 5, 7, 9, 13, 18, 21, 22} {
		if only := os.Getenv("E2E_CERTS"); only != "" && only != strconv.Itoa(row) {
			continue
		}
		t.Run(fmt.Sprint("row", row), func(t *testing.T) {
			defer timed(t)()
			certificates(t, row)
		})
	}
}

func certificates(t *testing.T, row int) {
	restoreMachines(t)
	the.resize(t, testbed.Rows[row-1].Nodes())
	c := newCluster(t, row, where{}, impatient)
	before := the.snapshots(t)
	c.create(t).ok(t)
	defer func() {
		c.unrelay(t)
		c.remove(t)
		asBefore(t, before)
	}()
	for _, n := range c.kubelets() {
		must(t, the.bed.Load(t.Context(), n, smoke.Image))
	}
	address, asks := c.serve(t)+"/api", func(*testing.T) string { return "nothing: there is one API server" }
	if len(c.masters()) > 1 {
		asks = c.ask(t, address, 6)
	}
	started := c.starts(t)
	c.watched(t, "certs", "renew")
	checkCertificates(t, c)
	c.unchanged(t)

	old := filepath.Join(t.TempDir(), "admin.conf")
	text, err := os.ReadFile(c.kubeconfig())
	must(t, err)
	must(t, os.WriteFile(old, text, 0o600))
	w := watch(t, c) // as somebody whose kubeconfig is from before
	for _, phase := range []string{"add", "swap"} {
		c.certs(t, "certs", "rotate-ca", "--all", "--phase", phase)
		c.unchanged(t)
	}
	c.short(t, "add and swap", w.stop(t))
	if now := c.starts(t); now != started {
		t.Errorf("pods were restarted that nobody has asked to be: %s\nbefore: %s", now, started)
	}
	drop := []string{"certs", "rotate-ca", "--all", "--phase", "drop"}
	c.run(t, append(drop, "--yes")...).fails(t, 1, "these pods have started before the successors signed", "Deployment default/guests")
	c.watched(t, append(drop, "--restart-workloads")...)
	c.unchanged(t)
	checkCertificates(t, c)
	if out := the.on(t, c.masters()[0], "cat >/run/old.conf <<'END'\n"+string(text)+"\nEND\nkubectl --kubeconfig /run/old.conf get nodes 2>&1 && echo it works; rm -f /run/old.conf"); strings.Contains(out, "it works") ||
		!strings.Contains(out, "certificate signed by unknown authority") {
		t.Errorf("a kubeconfig of the former authority: %s", out)
	}
	c.killedRotation(t)
	t.Log("pods asked the API: ", asks(t))
	c.whole(t)
	c.unchanged(t)
}

// watched runs a command on certificates while the cluster is used.
func (c *cluster) watched(t *testing.T, args ...string) {
	t.Helper()
	w := watch(t, c)
	c.certs(t, args...)
	c.short(t, strings.Join(args, " "), w.stop(t))
}

// certs runs a command on certificates.
func (c *cluster) certs(t *testing.T, args ...string) {
	t.Helper()
	o := c.run(t, append(slices.Clone(args), "--yes", "-o", "json")...).ok(t)
	s := o.result.Summary
	t.Logf("%s: %d of %d steps changed in %.0f s", strings.Join(args, " "), s.Changed, s.Total, o.took.Seconds())
}

// short wants the API to have been away for a moment only, where there is more than one API server.
func (c *cluster) short(t *testing.T, what string, s seen) {
	t.Helper()
	t.Logf("%s: %s", what, s)
	if len(c.masters()) > 1 && c.balancers() != nil && s.gap > 2*time.Second {
		t.Errorf("%s: the API was away for %s", what, s.gap)
	}
}

// killedRotation rotates all authorities by runs that are killed at random moments, each of which carries on where the one before has ended.
func (c *cluster) killedRotation(t *testing.T) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed(t), 0))
	args := []string{"certs", "rotate-ca", "--all", "--restart-workloads", "--yes", "-o", "json"}
	for range 4 {
		p := c.start(t, nil, args...)
		timer := time.AfterFunc(3*time.Second+time.Duration(random.Int64N(int64(30*time.Second))), func() { p.signal(syscall.SIGKILL) })
		o := p.wait(t)
		timer.Stop()
		if o.code != 128+int(syscall.SIGKILL) {
			o.ok(t)
			return
		}
		t.Logf("killed after %.1f s", o.took.Seconds())
		c.whole(t)
	}
	c.run(t, args...).ok(t)
}

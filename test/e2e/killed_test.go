//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// kills is how often kubexm is killed on each row.
const kills = 5

// seed is where the random moments come from: $E2E_SEED, or chance.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := uint64(time.Now().UnixNano())
	if text := os.Getenv("E2E_SEED"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("E2E_SEED=%s: %v", text, err)
		}
	}
	t.Logf("E2E_SEED=%d", n)
	return n
}

// A create that is killed at any moment and resumed ends as one that was not.
func TestKilled(t *testing.T) {
	serveOutside(t)
	random := rand.New(rand.NewPCG(seed(t), 0))
	for _, row := range []int{1, 2} {
		t.Run(fmt.Sprint("row", row), func(t *testing.T) {
			c := standard(t, row)
			whole := undisturbedRun(t, c)
			for n := range kills {
				// Moments are spread over the events of a run; every other one is some time after its event.
				at := 1 + int((float64(n)+random.Float64())/kills*float64(whole.steps()-1))
				delay := time.Duration(n%2) * time.Duration(random.Int64N(int64(time.Second)))
				t.Run(fmt.Sprint(n+1), func(t *testing.T) { kill(t, c, func(n int, _ event) bool { return n == at }, delay) })
			}
			if row == 1 {
				inside := func(_ int, e event) bool { return e.Status == "started" && e.What == "kubeadm init" }
				t.Run("in kubeadm init", func(t *testing.T) { kill(t, c, inside, time.Duration(random.Int64N(int64(3*time.Second)))) })
			}
		})
	}
}

// undisturbedRun makes a cluster without disturbance, notes its state, and
// takes it away again: how long and how many events that was.
func undisturbedRun(t *testing.T, c *cluster) *outcome {
	t.Helper()
	defer timed(t)()
	restoreMachines(t)
	whole := c.create(t).ok(t)
	undisturbed[c.row] = stateOf(t, c)
	c.remove(t)
	return whole
}

// steps counts the events but for those of progress, of which there are now more, now fewer.
func (o *outcome) steps() int {
	n := 0
	for _, e := range o.events {
		if e.Status != "progress" {
			n++
		}
	}
	return n
}

// killed begins to make a cluster, and kills kubexm some time after the event that is the
// one; events of progress do not count.
func (c *cluster) killed(t *testing.T, one func(n int, e event) bool, delay time.Duration, more ...string) *outcome {
	t.Helper()
	var p *process
	started := make(chan struct{})
	seen, last := 0, ""
	p = c.start(t, func(_ int, e event) {
		<-started
		if e.Status == "progress" {
			return
		}
		seen++
		last = fmt.Sprintf("%d events, the last: %s %s on %s", seen, e.Status, e.What, e.Host)
		if one(seen, e) {
			time.AfterFunc(delay, func() { p.signal(syscall.SIGKILL) })
		}
	}, append([]string{"create", "cluster", "--yes", "-o", "json"}, more...)...)
	close(started)
	o := p.wait(t)
	t.Logf("killed after %.1f s and %s", o.took.Seconds(), last)
	if o.code != 128+int(syscall.SIGKILL) {
		t.Fatalf("exit code %d:\n%s", o.code, o.text())
	}
	return o
}

// kill makes a cluster, kills kubexm some time after the event that is the one, resumes, compares,
// and takes the cluster away.
func kill(t *testing.T, c *cluster, one func(n int, e event) bool, delay time.Duration) {
	defer timed(t)()
	restoreMachines(t)
	before := the.snapshots(t)
	c.killed(t, one, delay)
	resumed := c.resume(t, "create", "cluster", "--yes", "-o", "json")
	t.Logf("resumed in %.1f s: %d of %d steps changed something", resumed.took.Seconds(), resumed.result.Summary.Changed, resumed.result.Summary.Total)
	if d := stateOf(t, c).differs(undisturbed[c.row]); d != "" {
		t.Errorf("it is not as an undisturbed one:\n%s", d)
	}
	c.remove(t)
	asBefore(t, before)
}

// A create that is killed while one master joins, and again while the next one does, goes on:
// etcd gets each of them as a member once.
func TestKilledMasters(t *testing.T) {
	random := rand.New(rand.NewPCG(seed(t), 0))
	defer the.shrink(t)
	for n := range 3 {
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			defer timed(t)()
			the.resize(t, 4)
			restoreMachines(t)
			before := the.snapshots(t)
			c := newCluster(t, 4, where{}, impatient)
			var more []string
			for _, node := range []string{"node2", "node3"} {
				joins := func(_ int, e event) bool { return e.Status == "started" && e.What == "kubeadm join" && e.Host == node }
				c.killed(t, joins, time.Duration(random.Int64N(int64(5*time.Second))), more...)
				more = []string{"--resume"}
			}
			resumed := c.create(t, more...).ok(t)
			t.Logf("resumed in %.1f s: %d of %d steps changed something", resumed.took.Seconds(), resumed.result.Summary.Changed, resumed.result.Summary.Total)
			prove(t, c)
			checkStatus(t, c)
			if again := c.create(t).ok(t); again.result.Summary.Changed != 0 {
				t.Errorf("a second run changed something: %+v\n%s", again.result.Summary, again.changes())
			}
			c.remove(t)
			asBefore(t, before)
		})
	}
}

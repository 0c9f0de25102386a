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
				t.Run(fmt.Sprint(n+1), func(t *testing.T) { kill(t, c, at, delay) })
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

// kill makes a cluster, kills kubexm some time after an event, resumes, compares,
// and takes the cluster away.
func kill(t *testing.T, c *cluster, at int, delay time.Duration) {
	defer timed(t)()
	restoreMachines(t)
	before := the.snapshots(t)
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
		if seen == at {
			time.AfterFunc(delay, func() { p.signal(syscall.SIGKILL) })
		}
	}, "create", "cluster", "-o", "json")
	close(started)
	killed := p.wait(t)
	t.Logf("killed after %.1f s and %s", killed.took.Seconds(), last)
	more := []string{"--resume"}
	if killed.code != 128+int(syscall.SIGKILL) {
		t.Fatalf("exit code %d:\n%s", killed.code, killed.text())
	}
	if len(killed.events) == 0 {
		more = nil // nothing was recorded: there is no run to resume
	}
	resumed := c.create(t, more...).ok(t)
	t.Logf("resumed in %.1f s: %d of %d steps changed something", resumed.took.Seconds(), resumed.result.Summary.Changed, resumed.result.Summary.Total)
	if d := stateOf(t, c).differs(undisturbed[c.row]); d != "" {
		t.Errorf("it is not as an undisturbed one:\n%s", d)
	}
	c.remove(t)
	asBefore(t, before)
}

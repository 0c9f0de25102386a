//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/test/testbed"
	"github.com/kubexm/kubexm/test/testbed/mirror"
)

// One cluster that meets one misfortune after the other: each run fails with a
// reason, the next one goes on with --resume, and in the end all is as if
// nothing had happened.
func TestBadDay(t *testing.T) {
	defer timed(t)()
	serveOutside(t)
	if undisturbed[1] == nil {
		undisturbedRun(t, standard(t, 1))
	}
	restoreMachines(t)
	before := the.snapshots(t)
	c := standard(t, 1)
	c.work = filepath.Join(the.dir, "badday") // nothing was downloaded yet
	for _, misfortune := range []struct {
		name   string
		strike func(*testing.T, *cluster)
	}{
		{"mirror down", mirrorDown},
		{"wrong checksum", wrongChecksum},
		{"no space on a node", noSpace},
		{"node cut off during an upload", cutOff},
		{"Ctrl-C", interrupted},
		{"power cut of a node that joins", powerCut},
		{"a second run at the same time", secondRun},
	} {
		t.Run(misfortune.name, func(t *testing.T) {
			defer timed(t)()
			misfortune.strike(t, c)
		})
		if t.Failed() {
			return
		}
	}
	if d := stateOf(t, c).differs(undisturbed[1]); d != "" {
		t.Errorf("it is not as an undisturbed one:\n%s", d)
	}
	t.Run("another cluster on the same machines", func(t *testing.T) {
		other := newCluster(t, 2, where{name: "other", work: c.work}, impatient)
		other.create(t).fails(t, fault.ExitPreflight, "owner", "part of the kubexm cluster e2e", "kubexm delete cluster")
		other.run(t, "delete", "cluster", "--yes").fails(t, fault.ExitPreflight, "node1 is part of the kubexm cluster e2e")
	})
	t.Run("configuration changed", func(t *testing.T) {
		other := standard(t, 1)
		other.work = c.work
		const four, six = "10.99.0.0/16", "fd00:10:99:40::/58"
		pods := map[string]string{testbed.IPv4: four, testbed.Dual: four + "," + six, testbed.IPv6: six}[family()]
		other.change(t, set("network.podCIDR", pods))
		other.create(t).fails(t, fault.ExitUsage, "spec.network.podCIDR", pods)
	})
	t.Run("all machines boot again", func(t *testing.T) {
		defer timed(t)()
		for _, n := range the.nodes {
			must(t, the.bed.Poweroff(t.Context(), n))
		}
		for _, n := range the.nodes {
			must(t, the.bed.Start(t.Context(), n))
		}
		c.create(t).ok(t)
		prove(t, c)
	})
	c.remove(t)
	asBefore(t, before)
}

func mirrorDown(t *testing.T, c *cluster) {
	the.close()
	defer func() { must(t, the.serve(t.Context())) }()
	c.create(t).fails(t, fault.ExitFailed, "connection refused", "http://"+the.bed.FilesAddress(), "resume: ")
}

func wrongChecksum(t *testing.T, c *cluster) {
	corrupt := func(r *http.Request) (f mirror.Fault) {
		f.Corrupt = strings.HasSuffix(r.URL.Path, "/kubelet")
		return f
	}
	the.fault.Store(&corrupt)
	defer the.fault.Store(nil)
	c.create(t, "--resume").fails(t, fault.ExitFailed, "kubelet", "checksum", "resume: ")
}

// noSpace puts a small disk where programs go; downloads break off once each, which nobody notices.
func noSpace(t *testing.T, c *cluster) {
	var lock sync.Mutex
	cut := map[string]bool{}
	breakOff := func(r *http.Request) (f mirror.Fault) {
		lock.Lock()
		defer lock.Unlock()
		if !cut[r.URL.Path] && r.Header.Get("Range") == "" && !strings.HasSuffix(r.URL.Path, "sha256") {
			cut[r.URL.Path], f.CutAfter = true, 5<<20
		}
		return f
	}
	the.fault.Store(&breakOff)
	defer the.fault.Store(nil)
	node2 := the.nodes[1]
	the.on(t, node2, "mount -t tmpfs -o size=20m,mode=755 tmpfs /usr/local; mkdir /usr/local/bin")
	defer the.on(t, node2, "umount -l /usr/local")
	c.create(t, "--resume").fails(t, fault.ExitFailed, "node2", "no space: /usr/local/bin has 20480 KiB free", "free space on node2", "resume: ")
}

// cutOff takes the network of a node away in the middle of a file.
func cutOff(t *testing.T, c *cluster) {
	node2 := the.nodes[1]
	ctx, cancel := context.WithCancel(t.Context())
	ended, err := the.bed.Slow(ctx, node2, 20*time.Millisecond, 100e6)
	must(t, err)
	var once sync.Once
	p := c.start(t, func(_ int, e event) {
		var done, size int
		_, err := fmt.Sscanf(e.Text, "%d of %d MB", &done, &size)
		if e.Host == node2.Name && strings.HasPrefix(e.What, "upload kube") && err == nil && done >= 10 && done < size-10 {
			once.Do(func() { must(t, the.bed.Cut(t.Context(), node2)) })
		}
	}, "create", "cluster", "--yes", "-o", "json", "--resume")
	p.wait(t).fails(t, fault.ExitFailed, "node2", "not reachable: no answer in 4s", "resume: ")
	cancel()
	must(t, ended())
	must(t, the.bed.Heal(t.Context(), node2))
	if text := c.run(t, "plan", "--diff").ok(t).text(); !strings.Contains(text, " MB of an upload are there)") {
		t.Errorf("the upload does not go on where it was cut:\n%s", text)
	}
}

// interrupted presses Ctrl-C while images are loaded: that is finished, no more.
func interrupted(t *testing.T, c *cluster) {
	var p *process
	started := make(chan struct{})
	p = c.start(t, func(_ int, e event) {
		<-started
		if e.Status == "started" && e.What == "container images" {
			p.signal(syscall.SIGINT)
			p.each = nil
		}
	}, "create", "cluster", "--yes", "-o", "json", "--resume")
	close(started)
	ended := p.wait(t).fails(t, fault.ExitInterrupted, "letting", "press again to stop at once", "resume: ")
	if r := ended.result; r == nil || r.Result != "interrupted" || r.Summary.Skipped == 0 {
		t.Errorf("result %+v", r)
	}
}

// powerCut takes the power of a node away when it joins, and gives it back.
func powerCut(t *testing.T, c *cluster) {
	node2 := the.nodes[1]
	var once sync.Once
	p := c.start(t, func(_ int, e event) {
		if e.Host == node2.Name && e.Status == "started" && e.What == "kubeadm join" {
			once.Do(func() {
				time.Sleep(400 * time.Millisecond) // in the middle of it
				must(t, the.bed.Poweroff(t.Context(), node2))
			})
		}
	}, "create", "cluster", "--yes", "-o", "json", "--resume")
	p.wait(t).fails(t, fault.ExitFailed, "node2", "resume: ")
	must(t, the.bed.Start(t.Context(), node2))
}

// secondRun starts kubexm while it is at work.
func secondRun(t *testing.T, c *cluster) {
	var once sync.Once
	p := c.start(t, func(int, event) {
		once.Do(func() {
			c.create(t).fails(t, fault.ExitFailed, "another kubexm is at work on cluster e2e", "wait until it has ended")
		})
	}, "create", "cluster", "--yes", "-o", "json", "--resume")
	p.wait(t).ok(t)
}

package app_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/racetest"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "fault tests: chooses the moments")

// moments are most of 1 to last, or all where there are fewer.
func moments(t *testing.T, last, most int) []int {
	t.Helper()
	t.Logf("moments of -seed=%d", *seed)
	all := rand.New(rand.NewPCG(*seed, uint64(last))).Perm(last)
	all = all[:min(most, last)]
	slices.Sort(all)
	for i := range all {
		all[i]++
	}
	return all
}

// ending is how an undisturbed run ends.
type ending struct {
	config   string
	certs    string // a copy of the certificates that it made
	hosts    map[string]string
	rebooted map[string]string // the same after a reboot
	objects  string
	nodes    int            // of the graph
	scripts  int            // sent to the hosts
	commands map[string]int // run by scripts on each host
}

// smaller is a configuration without its third host, if that is a worker.
func smaller(config string) string {
	return regexp.MustCompile(`(?m)^  - \{name: node3.*roles: \[worker.*\n`).ReplaceAllString(config, "")
}

// joined matches the certificate that is recreated for each join.
var joined = regexp.MustCompile(`(?m)^(/var/lib/kubelet/pki/kubelet-client-join\.pem .*\n)(    .*\n)+`)

// undisturbed runs a row, with one worker, as it should be.
func undisturbed(t *testing.T, name string) ending { return ended(t, name, smaller(row(t, name))) }

// ended runs a configuration of a row as it should be.
func ended(t *testing.T, name, config string) (e ending) {
	e = ending{config: config, certs: t.TempDir(), hosts: map[string]string{}, rebooted: map[string]string{}, commands: map[string]int{}}
	bubble(t, func(t *testing.T) {
		w := newWorld(t, e.config, "")
		scripts := &runnertest.Kill{}
		for _, h := range w.hosts {
			h.Kill, h.Cut = scripts, &runnertest.Kill{}
		}
		res, err := w.attempt(t.Context()).create()
		w.must(err)
		e.nodes, e.scripts, e.objects = res.Summary.Total, int(scripts.Count())-len(w.hosts), w.objects() // whether it removes its locks is no matter
		w.must(os.CopyFS(e.certs, os.DirFS(filepath.Join(w.dir, name, "certs"))))
		for n, h := range w.hosts {
			e.commands[n], e.hosts[n] = int(h.Cut.Count()), joined.ReplaceAllString(h.Snapshot(), "$1")
			h.Reboot()
			e.rebooted[n] = joined.ReplaceAllString(h.Snapshot(), "$1")
		}
	})
	return e
}

// again makes a world in which a run makes the same certificates.
func (e ending) again(t *testing.T, name string) *world {
	w := newWorld(t, e.config, "")
	w.must(os.CopyFS(filepath.Join(w.dir, name, "certs"), os.DirFS(e.certs)))
	return w
}

// check compares a world with how it should be; rebooted has been.
func (e ending) check(t *testing.T, w *world, rebooted string) {
	t.Helper()
	for n, h := range w.hosts {
		want := e.hosts[n]
		if n == rebooted {
			want = e.rebooted[n]
		}
		same(t, n, want, joined.ReplaceAllString(h.Snapshot(), "$1"))
	}
	same(t, "objects", e.objects, w.objects())
}

// faulty are the scenarios on which faults are tried; with the race detector the one with kubeadm and an etcd
// of kubexm's own.
func faulty() []string {
	return racetest.Few("row3", "row1", "row2", "registry", "harbor", "calico", "cilium", "crio", "docker", "row3-ipv6")
}

// eachMoment tests rows at some moments of their runs, side by side.
func eachMoment(t *testing.T, names []string, most int, last func(ending) int, test func(*testing.T, *world, ending, int)) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := undisturbed(t, name)
			for _, m := range moments(t, last(e), most) {
				t.Run(fmt.Sprint(m), func(t *testing.T) {
					t.Parallel()
					bubble(t, func(t *testing.T) { test(t, e.again(t, name), e, m) })
				})
			}
		})
	}
}

// midway calls then when the run begins with the second half of its graph.
func (a *attempt) midway(then func()) {
	m := 0
	a.Begin = func(_ string, g *plan.ExecutionGraph) { m = len(g.Nodes) / 2 }
	a.onNode(&m, then)
}

// onNode calls then when the run begins with its m-th node.
func (a *attempt) onNode(m *int, then func()) {
	a.Event = func(ev engine.Event) {
		if ev.Status != engine.Started {
			return
		}
		if *m--; *m == 0 {
			then()
		}
	}
}

// killAt kills the run there.
func (a *attempt) killAt(m int) { a.onNode(&m, a.kill) }

// resume goes on with what a killed run has left, if it came to begin.
func (w *world) resume(ctx context.Context) {
	w.Helper()
	a := w.attempt(ctx)
	w.records(func(_ string, st store.Store) {
		runs, err := st.Runs()
		w.must(err)
		a.Resume = len(runs) > 0
	})
	if _, err := a.create(); err != nil {
		w.Fatalf("resuming: %v", err)
	}
}

// TestKilledAtNode kills kubexm when it begins a node of the graph, at some of them.
func TestKilledAtNode(t *testing.T) { killedAtNode(t, faulty(), len(racetest.Few(1, 2))) }

// TestFaultsKilledAtNode kills it at each, with one master, and with several of both types.
func TestFaultsKilledAtNode(t *testing.T) {
	killedAtNode(t, append(faulty(), "row7", "row9"), math.MaxInt)
}

func killedAtNode(t *testing.T, names []string, most int) {
	eachMoment(t, names, most, func(e ending) int { return e.nodes }, func(t *testing.T, w *world, e ending, m int) {
		a := w.attempt(t.Context())
		a.killAt(m)
		if _, err := a.create(); err == nil {
			t.Fatal("the killed run ended well")
		}
		w.unfinished()
		w.resume(t.Context())
		e.check(t, w, "")
	})
}

// TestKilledInScript kills kubexm while a host runs a script: the script goes on
// with half of its input, or ends with nobody there to hear it.
func TestKilledInScript(t *testing.T) {
	eachMoment(t, faulty(), 2, func(e ending) int { return e.scripts - 1 }, func(t *testing.T, w *world, e ending, m int) {
		a := w.attempt(t.Context())
		kill := &runnertest.Kill{After: int64(m), Then: a.cut}
		for _, h := range w.hosts {
			h.Kill = kill
		}
		if _, err := a.create(); err == nil {
			t.Fatal("the killed run ended well")
		}
		for _, h := range w.hosts {
			h.Kill = nil
		}
		w.unfinished()
		w.resume(t.Context())
		e.check(t, w, "")
	})
}

// TestPowerCut cuts a host's power in the middle of a script; the run ends as far
// as it can without that host, the host boots, and the run is resumed.
func TestPowerCut(t *testing.T) {
	eachMoment(t, faulty(), 2, func(e ending) int { return e.commands["node1"] + e.commands["node2"] }, func(t *testing.T, w *world, e ending, m int) {
		host := "node1"
		if m > e.commands[host] {
			host, m = "node2", m-e.commands[host]
		}
		h := w.hosts[host]
		a := w.attempt(t.Context())
		h.Cut = &runnertest.Kill{After: int64(m), Then: func() {
			h.SetDown(true)
			if host == "node1" {
				w.down(h)
				a.hangUp()
			}
		}}
		if _, err := a.create(); err != nil {
			h.Reboot()
			w.resume(t.Context())
		}
		h.Reboot()
		e.check(t, w, host)
	})
}

// TestDeleteKilled kills kubexm, or a host's power, while a cluster is deleted, and
// deletes it again.
func TestDeleteKilled(t *testing.T) {
	for _, name := range faulty() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := smaller(row(t, name))
			for _, m := range moments(t, 60, 2) {
				t.Run(fmt.Sprint(m), func(t *testing.T) {
					t.Parallel()
					bubble(t, func(t *testing.T) { deleteKilled(t, newWorld(t, config, ""), m) })
				})
			}
		})
	}
}

func deleteKilled(t *testing.T, w *world, m int) {
	before := w.snapshot()
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	w.live()
	a, h := w.attempt(t.Context()), w.hosts["node2"]
	if m%2 == 0 {
		h.Kill = &runnertest.Kill{After: int64(m/4 + 1), Then: a.cut}
	} else {
		h.Cut = &runnertest.Kill{After: int64(3 * m), Then: func() { h.SetDown(true) }}
	}
	_, _ = a.delete() // ends well where it was quicker
	h.Kill = nil
	if h.Cut != nil {
		h.Reboot()
	}
	_, err = w.attempt(t.Context()).delete()
	w.must(err)
	same(t, "hosts", before, w.snapshot())
}

// TestLostOnce lets one command fail for a passing reason, before or after it has run.
func TestLostOnce(t *testing.T) {
	eachMoment(t, faulty(), 2, func(e ending) int { return 2 * e.scripts }, func(t *testing.T, w *world, e ending, m int) {
		a := w.attempt(t.Context())
		var n atomic.Int64
		a.around = func(h *runnertest.Host, ctx context.Context, c connector.Cmd) error {
			if n.Add(1) != int64(m+1)/2 {
				return h.Exec(ctx, c)
			}
			if m%2 == 0 {
				_ = h.Exec(ctx, c) // nobody hears how it ended
			}
			return fault.Transient(fmt.Errorf("%s: %w", h.Name, runnertest.ErrLost))
		}
		if _, err := a.create(); err != nil {
			if !errors.Is(err, runnertest.ErrLost) {
				t.Errorf("failed for another reason: %v", err)
			}
			t.Logf("needs a second run: %v", err)
			if _, err := w.attempt(t.Context()).create(); err != nil {
				t.Fatal(err)
			}
		}
		e.check(t, w, "")
	})
}

// TestStop stops a run as Ctrl-C does, once and twice.
func TestStop(t *testing.T) {
	for name, stop := range map[string]func(a *attempt, stop chan struct{}){
		"once":  func(_ *attempt, stop chan struct{}) { close(stop) },
		"twice": func(a *attempt, stop chan struct{}) { close(stop); a.cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, "row2"), "")
				a := w.attempt(t.Context())
				press := make(chan struct{})
				a.Stop = press
				a.midway(func() { stop(a, press) })
				res, err := a.create()
				if fault.ExitCode(err) != fault.ExitInterrupted || app.Outcome(err) != "interrupted" || !res.Summary.Interrupted || res.Summary.Skipped == 0 {
					t.Fatalf("stopped: %+v, %v", res, err)
				}
				if name == "once" && res.Summary.Failed > 0 {
					t.Errorf("what ran was not left to its end: %v", err)
				}
				w.resume(t.Context())
				runs, err := a.App.Runs(a.Request)
				if err != nil || len(runs) != 2 || runs[0].Result != "interrupted" || runs[1].Result != "ok" {
					t.Errorf("recorded: %+v, %v", runs, err)
				}
			})
		})
	}
}

package app_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// lease is that of kubexm in the cluster; nil: there is none.
func (w *world) lease() *unstructured.Unstructured {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.api.Objects() {
		if o.GetKind() == "Lease" && o.GetName() == "kubexm" {
			return o
		}
	}
	return nil
}

// renewed is how long ago that was.
func (w *world) renewed() time.Duration {
	l := w.lease()
	if l == nil {
		w.Error("there is no lease")
		return 0
	}
	text, _, _ := unstructured.NestedString(l.Object, "spec", "renewTime")
	at, err := time.Parse(time.RFC3339Nano, text)
	w.must(err)
	return time.Since(at)
}

// changing is a cluster that runs, with something to do.
func changing(t *testing.T, name string) *world {
	t.Helper()
	w := newWorld(t, settled(row(t, name)), "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	if w.lease() != nil {
		t.Error("create leaves a lease")
	}
	text, _ := os.ReadFile(w.file)
	w.configure(strings.Replace(string(text), "spec:\n", "spec:\n  extra: {hosts: [{domain: nas.example.org, address: 10.9.9.9}]}\n", 1))
	return w
}

// during does something while a run changes the cluster.
func (a *attempt) during(do func()) { a.around = before("KubeXM Managed Block", do) }

// only lets a run reach some hosts.
func (a *attempt) only(hosts ...string) {
	dial := a.Dial
	a.Dial = func(ctx context.Context, h *v1alpha1.Host, known string) (connector.Connector, error) {
		if !slices.Contains(hosts, h.Name) {
			return nil, fault.Transient(errors.New("no route to host"))
		}
		return dial(ctx, h, known)
	}
}

// TestLease deletes from a copy of the work directory that reaches another master only, while a run is at work without that one.
func TestLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := changing(t, "row4")
		copied := t.TempDir()
		elsewhere := func(hosts ...string) *attempt {
			b := w.attempt(t.Context())
			b.Workdir = copied
			b.only(hosts...)
			return b
		}
		a := w.attempt(t.Context())
		a.AllowMissing = true
		a.only(slices.DeleteFunc(slices.Collect(maps.Keys(w.hosts)), func(h string) bool { return h == "node2" })...)
		a.during(func() {
			w.must(os.CopyFS(copied, os.DirFS(w.dir)))
			start := time.Now()
			_, err := elsewhere("node2").delete()
			if err == nil || !strings.Contains(err.Error(), "another kubexm is at work on cluster row4: ") || !strings.Contains(err.Error(), " (its lease is kube-system/kubexm)") ||
				!strings.Contains(fault.Advice(err), "kubexm unlock") {
				t.Errorf("delete elsewhere: %v", err)
			}
			if waited := time.Since(start); waited > 40*time.Second {
				t.Errorf("it waited for %s", waited)
			}
			b := elsewhere("node2")
			b.DryRun = true
			if _, err := b.delete(); err != nil {
				t.Errorf("a look elsewhere: %v", err)
			}
			w.down(w.hosts["node1"]) // whose API server was asked until now
			time.Sleep(3 * runner.LockTime)
			if ago := w.renewed(); ago > runner.LockTime/2 {
				t.Errorf("renewed %s ago, without the API server on node1", ago)
			}
			w.must(w.serve(w.hosts["node1"]))
		})
		_, err := a.create()
		w.must(err)
		if w.lease() != nil {
			t.Error("it is not released")
		}
		_, err = w.attempt(t.Context()).delete()
		w.must(err)
	})
}

// orphaned is a cluster whose lease a run has that was killed.
func orphaned(t *testing.T) *world {
	w := changing(t, "row1")
	a := w.attempt(t.Context())
	a.during(a.kill)
	if _, err := a.create(); err == nil || w.lease() == nil {
		t.Fatalf("lease %v, %v", w.lease(), err)
	}
	return w
}

// TestLeaseOfKilled goes on after a run that was killed: from its directory, from a copy of it soon and later, and after unlock.
func TestLeaseOfKilled(t *testing.T) {
	for _, next := range []string{"here", "elsewhere", "later", "unlocked"} {
		t.Run(next, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := orphaned(t)
				dir := w.dir
				if next != "here" {
					dir = t.TempDir()
					w.must(os.CopyFS(dir, os.DirFS(w.dir)))
				}
				switch next {
				case "elsewhere":
					time.Sleep(runner.LockTime) // of the hosts
				case "later":
					time.Sleep(2*runner.LockTime + time.Second)
				case "unlocked":
					w.unlock(dir)
				}
				b := w.attempt(t.Context())
				b.Workdir = dir
				start := time.Now()
				_, err := b.create()
				w.must(err)
				waits := strings.Contains(strings.Join(b.Notices, "\n"), "waiting for another kubexm, or for the end of its lease if it was killed: ")
				if waits != (next == "elsewhere") || !waits && time.Since(start) > runner.LockTime/2 {
					t.Errorf("after %s: %s", time.Since(start), b.Notices)
				}
				if w.lease() != nil {
					t.Error("it is not released")
				}
			})
		})
	}
}

// TestLeaseWaitedFor exchanges a machine while a run from elsewhere waits for the lease of one that was killed: what was seen before does not count.
func TestLeaseWaitedFor(t *testing.T) {
	for name, run := range map[string]func(*attempt) (*app.Result, error){"create": (*attempt).create, "delete": (*attempt).delete} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := orphaned(t)
				b := w.attempt(t.Context())
				b.Workdir = t.TempDir()
				w.must(os.CopyFS(b.Workdir, os.DirFS(w.dir)))
				time.Sleep(runner.LockTime) // of the hosts
				exchanged := false
				b.Notice = func(text string) {
					if strings.Contains(text, "waiting for another kubexm") && !exchanged {
						w.fresh("node3", "fedcba9876543210fedcba9876543210")
						exchanged = true
					}
				}
				if _, err := run(b); !exchanged || err == nil || !strings.Contains(err.Error(), "host node3 is another machine than before") {
					t.Errorf("exchanged %v, %v", exchanged, err)
				}
				if w.lease() != nil {
					t.Error("it is not released")
				}
			})
		})
	}
}

// unlock removes all locks from a work directory, and is told of them.
func (w *world) unlock(dir string) {
	w.Helper()
	unlock := func(may func(context.Context, []app.Locked) error) ([]app.Locked, error) {
		b := w.attempt(w.Context())
		b.Workdir, b.MayUnlock = dir, may
		return b.App.Unlock(b.ctx, b.Request, b.Observer)
	}
	if _, err := unlock(nil); err == nil || w.lease() == nil {
		w.Errorf("unlocked unasked: %v", err)
	}
	var asked []app.Locked
	held, err := unlock(func(_ context.Context, held []app.Locked) error { asked = held; return nil })
	w.must(err)
	last := held[len(held)-1]
	if len(held) != len(w.hosts)+1 || !slices.Equal(asked, held) || last.Where != "lease kube-system/kubexm" || last.Who != held[0].Who {
		w.Errorf("held by %v, asked for %v", held, asked)
	}
	if w.lease() != nil {
		w.Error("it is not removed")
	}
	if held, err := unlock(nil); err != nil || held != nil {
		w.Errorf("unlocked again: %v, %v", held, err)
	}
}

// TestLeaseOutlivesAPI takes all API servers away for longer than the lease lasts: the run goes on, and renews it when they are back.
func TestLeaseOutlivesAPI(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := changing(t, "row1")
		a := w.attempt(t.Context())
		a.during(func() {
			w.down(w.hosts["node1"])
			a.hangUp()
			time.Sleep(3 * runner.LockTime)
			if ago := w.renewed(); ago < 2*runner.LockTime {
				t.Errorf("renewed %s ago, without an API server", ago)
			}
			w.must(w.serve(w.hosts["node1"]))
			time.Sleep(runner.LockTime / 6)
			if ago := w.renewed(); ago > runner.LockTime/6 {
				t.Errorf("renewed %s ago, with an API server", ago)
			}
		})
		_, err := a.create()
		w.must(err)
		if w.lease() != nil {
			t.Error("it is not released")
		}
	})
}

// TestLeaseOfBroken works on a cluster of which no API server answers: the run goes on, takes the lease once one does, and keeps another out from then on.
func TestLeaseOfBroken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := changing(t, "row1")
		w.down(w.hosts["node1"])
		a := w.attempt(t.Context())
		a.during(func() {
			if w.lease() != nil {
				t.Error("there is a lease without an API server")
			}
			w.must(w.serve(w.hosts["node1"]))
			time.Sleep(runner.LockTime / 10)
			if ago := w.renewed(); ago > runner.LockTime/10 {
				t.Errorf("renewed %s ago", ago)
			}
		})
		_, err := a.create()
		w.must(err)
		const warning = "warning: the cluster is not locked against another kubexm that reaches other hosts: "
		if !strings.Contains(strings.Join(a.Notices, "\n"), warning) {
			t.Errorf("told: %q", a.Notices)
		}
		if w.lease() != nil {
			t.Error("it is not released")
		}
	})
}

// TestLeaseTakenOver has another one take the lease.
func TestLeaseTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := changing(t, "row1")
		a := w.attempt(t.Context())
		a.during(func() {
			l := w.lease()
			w.must(unstructured.SetNestedField(l.Object, "a colleague #other", "spec", "holderIdentity"))
			w.api.Put(l)
			time.Sleep(runner.LockTime / 2)
		})
		res, err := a.create()
		if err == nil || !strings.Contains(err.Error(), "the lease kube-system/kubexm was taken over, by a colleague: stopped") || res == nil || res.Summary.Skipped == 0 {
			t.Errorf("it went on: %+v, %v", res, err)
		}
		if w.lease() == nil {
			t.Error("the lease of another was removed")
		}
	})
}

// TestLeaseStopped stops a run that waits to see whether another one is at work.
func TestLeaseStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := changing(t, "row1")
		a := w.attempt(t.Context())
		a.during(a.kill)
		if _, err := a.create(); err == nil {
			t.Fatal("it was not killed")
		}
		stop := make(chan struct{})
		b := w.attempt(t.Context())
		b.Workdir, b.Stop = t.TempDir(), stop
		w.must(os.CopyFS(b.Workdir, os.DirFS(w.dir)))
		time.Sleep(runner.LockTime)
		start := time.Now()
		time.AfterFunc(10*time.Second, func() { close(stop) })
		if _, err := b.create(); !errors.Is(err, app.ErrStopped) || time.Since(start) > 15*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

// TestLeaseBetweenRuns has another control machine apply another configuration between two runs of one apply, of which the second one then refuses to begin.
func TestLeaseBetweenRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		was := joinedBy(row(t, "row2"), "node5 worker")
		w, _ := between(t, [2]string{was, was})
		other := w.attempt(t.Context())
		other.Workdir, other.File = t.TempDir(), filepath.Join(t.TempDir(), "cluster.yaml")
		w.must(os.CopyFS(other.Workdir, os.DirFS(w.dir)))
		w.must(os.WriteFile(other.File, []byte(without(was, "node5")), 0o600))
		w.configure(roles(was, "node2", "master"))
		a, came := w.attempt(t.Context()), false
		a.Notice = func(text string) {
			if strings.Contains(text, "(run 2 of 2)") {
				came = true
				_, err := other.App.Apply(other.ctx, other.Request, other.Observer, nil)
				w.must(err)
			}
		}
		_, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		if !came || err == nil || !strings.Contains(err.Error(), "another run, from another control machine, has changed cluster row2 meanwhile") {
			t.Errorf("came: %v; %v", came, err)
		}
		if w.lease() != nil {
			t.Error("it is not released")
		}
	})
}

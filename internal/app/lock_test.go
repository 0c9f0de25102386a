package app_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// before does something before the first script that has a text, while others run.
func before(text string, do func()) func(*runnertest.Host, context.Context, connector.Cmd) error {
	var done atomic.Bool
	return func(h *runnertest.Host, ctx context.Context, c connector.Cmd) error {
		if strings.Contains(c.Line, text) && done.CompareAndSwap(false, true) {
			do()
		}
		return h.Exec(ctx, c)
	}
}

// TestLocked deletes from a copy of the work directory while create is at work, and after it was killed.
func TestLocked(t *testing.T) {
	for _, end := range []string{"ends", "killed", "unlocked"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, "row1"), "")
				copied := t.TempDir()
				elsewhere := func() *attempt {
					b := w.attempt(t.Context())
					b.Workdir = copied
					return b
				}
				a := w.attempt(t.Context())
				a.around = before("KubeXM Managed Block", func() {
					w.must(os.CopyFS(copied, os.DirFS(w.dir)))
					time.Sleep(3 * runner.LockTime) // it is renewed
					_, err := elsewhere().delete()
					if err == nil || !strings.Contains(err.Error(), "another kubexm is at work on cluster row1: ") {
						t.Errorf("delete elsewhere: %v", err)
					}
					b := elsewhere()
					b.DryRun = true
					if _, err := b.create(); err != nil {
						t.Errorf("a look elsewhere: %v", err)
					}
					if end != "ends" {
						a.kill()
					}
				})
				_, err := a.create()
				switch end {
				case "ends":
					w.must(err)
				case "killed":
					if _, err := elsewhere().delete(); err == nil {
						t.Error("deleted elsewhere at once")
					}
					time.Sleep(runner.LockTime)
				case "unlocked":
					b := elsewhere()
					b.MayUnlock = func(context.Context, []app.Locked) error { return nil }
					held, err := b.App.Unlock(b.ctx, b.Request, b.Observer)
					if err != nil || len(held) != len(w.hosts) || !strings.Contains(held[0].Who, "process ") {
						t.Errorf("held by %v, %v", held, err)
					}
				}
				_, err = elsewhere().delete()
				w.must(err)
				for _, h := range w.hosts {
					if strings.Contains(h.Snapshot(), runner.StateDir) || strings.Contains(h.Snapshot(), "/run/kubexm/") {
						t.Errorf("%s is not as before", h.Name)
					}
				}
			})
		})
	}
}

// TestUnlockInPart tells only of the locks that it has removed.
func TestUnlockInPart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := changing(t, "row1")
		a := w.attempt(t.Context())
		a.during(func() {
			b, asked := w.attempt(t.Context()), 0
			b.Workdir = w.TempDir()
			b.MayUnlock = func(_ context.Context, held []app.Locked) error { asked = len(held); return nil }
			b.around = func(h *runnertest.Host, ctx context.Context, c connector.Cmd) error {
				if asked > 0 && h.Name == "node2" {
					return runnertest.ErrLost
				}
				return h.Exec(ctx, c)
			}
			removed, err := b.App.Unlock(b.ctx, b.Request, b.Observer)
			if err == nil || len(removed) != asked-1 || slices.ContainsFunc(removed, func(l app.Locked) bool { return l.Where == "node2" }) {
				t.Errorf("removed %v of %d: %v", removed, asked, err)
			}
		})
		_, _ = a.create()
	})
}

// TestLockOutlivesHost takes a worker away for longer than its lock lasts: the run goes on.
func TestLockOutlivesHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row1"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		a, away := w.attempt(t.Context()), 0
		run := before("kubexm/env", func() { time.Sleep(2 * runner.LockTime) })
		a.around = func(h *runnertest.Host, ctx context.Context, c connector.Cmd) error {
			if h.Name == "node3" && strings.Contains(c.Line, `lock "$TOKEN" 60`) {
				if away++; away > 2 { // taken, looked at once more, and renewed
					return runnertest.ErrLost
				}
			}
			return run(h, ctx, c)
		}
		if _, err := a.create(); err != nil || away < 5 {
			t.Errorf("asked for %d times, %v", away, err)
		}
	})
}

// TestLockTakenOver has kubexm sleep for longer than its locks last, and another one at work when it wakes up.
func TestLockTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row1"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		text, _ := os.ReadFile(w.file)
		w.configure(strings.Replace(string(text), "spec:\n", "spec:\n  extra: {hosts: [{domain: nas.example.org, address: 10.9.9.9}]}\n", 1))
		a := w.attempt(t.Context())
		var asleep atomic.Bool
		run := before("kubexm/env", func() {
			asleep.Store(true)
			time.Sleep(2 * runner.LockTime)
			if err := w.hosts["node3"].Runner().Lock(t.Context(), runner.Holder{Token: "other", Who: "a colleague", Known: true, Cluster: "row1"}); err != nil {
				t.Error(err)
			}
			asleep.Store(false)
			time.Sleep(runner.LockTime / 2)
		})
		a.around = func(h *runnertest.Host, ctx context.Context, c connector.Cmd) error {
			if asleep.Load() && strings.Contains(c.Line, `lock "$TOKEN" 60`) {
				return runnertest.ErrLost
			}
			return run(h, ctx, c)
		}
		res, err := a.create()
		if err == nil || !strings.Contains(err.Error(), "the lock on node3 was taken over, by a colleague: stopped") || res == nil || res.Summary.Skipped == 0 {
			t.Errorf("it went on: %+v, %v", res, err)
		}
	})
}

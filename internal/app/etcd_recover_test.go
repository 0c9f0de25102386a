package app_test

import (
	"context"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// recoverFrom is one run of a recovery. killed: at the nth step that has changed something; 0: at none.
func (w *world) recoverFrom(host string, force bool, killed int) error {
	a := w.attempt(w.Context())
	a.Force = force
	a.MayRestore = func(_ context.Context, what app.Restoring) error {
		if what.From != host {
			w.Errorf("asked for %+v", what)
		}
		return nil
	}
	n := 0
	a.Event = func(ev engine.Event) {
		if ev.Status == engine.Changed {
			if n++; n == killed {
				a.kill()
			}
		}
	}
	_, err := a.App.RecoverEtcd(a.ctx, a.Request, a.Observer, host)
	return err
}

// TestRecoverEtcd loses two of three masters for good, and goes on with what the third one has. Then it has three again.
func TestRecoverEtcd(t *testing.T) {
	for _, name := range []string{"row7", "row9"} {
		for _, killed := range []int{0, 2, 5, 9} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) {
					w := newWorld(t, row(t, name), "")
					_, err := w.attempt(t.Context()).create()
					w.must(err)
					w.note("before")
					if err := w.recoverFrom("node3", false, 0); fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), "there is nothing to recover") {
						t.Errorf("of an etcd that is well: %v", err)
					}
					w.settled()
					data := w.everything()
					w.burn("node1")
					w.burn("node2")
					w.hosts["node3"].Put("/var/lib/etcd/member/snap/db", data+strings.Repeat("\x00", 512-len(data)%512), 0o600)
					w.configure(without(row(t, name), "node1", "node2"))
					if err := w.recoverFrom("node4", true, 0); fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), "node4 has no member of etcd") {
						t.Errorf("from a worker: %v", err)
					}
					if killed > 0 && w.recoverFrom("node3", true, killed) == nil {
						t.Log("it had ended before")
					}
					w.must(w.recoverFrom("node3", true, 0))
					w.whole(t)
					if killed > 0 {
						return
					}
					w.fresh("node1", machineID(1))
					w.fresh("node2", machineID(2))
					w.configure(row(t, name))
					w.apply()
					w.whole(t)
				})
			})
		}
	}
}

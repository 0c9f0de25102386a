package app_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestWorkerDies cuts the power of one of three workers in the middle of a script: the
// others become nodes of a cluster that works, and --resume heals the one.
func TestWorkerDies(t *testing.T) {
	for _, name := range []string{"row1", "row2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := ended(t, name, with("  kubernetes:", "  - {name: node4, address: 10.0.0.14, roles: [worker]}\n  kubernetes:")(row(t, name)))
			for _, m := range moments(t, e.commands["node3"], 2) {
				t.Run(fmt.Sprint(m), func(t *testing.T) {
					t.Parallel()
					bubble(t, func(t *testing.T) { workerDies(t, e.again(t, name), e, m) })
				})
			}
		})
	}
}

func workerDies(t *testing.T, w *world, e ending, m int) {
	node3, a := w.hosts["node3"], w.attempt(t.Context())
	node3.Cut = &runnertest.Kill{After: int64(m), Then: func() { node3.SetDown(true) }}
	res, err := a.create()
	if err == nil { // it was in the last script, and all was done
		node3.Reboot()
		e.check(t, w, "node3")
		return
	}
	if fault.ExitCode(err) != fault.ExitFailed {
		t.Errorf("exit code %d", fault.ExitCode(err))
	}
	if res == nil { // it was lost while facts were asked for
		var lost *app.HostError
		if !errors.As(err, &lost) || lost.Host != "node3" {
			t.Errorf("not told: %v", err)
		}
	} else {
		w.aroundNode3(t, a, e, err)
	}
	node3.Reboot()
	w.resume(t.Context())
	node3.Reboot()
	e.check(t, w, "node3")
}

// aroundNode3 checks whether all but node3 is as it should be, and node3 told.
func (w *world) aroundNode3(t *testing.T, a *attempt, e ending, err error) {
	t.Helper()
	for _, failure := range leaves(err) {
		if !strings.Contains(failure, "node3: connection lost") {
			t.Errorf("told: %s", failure)
		}
	}
	for _, ev := range a.Events {
		if (ev.Status == engine.Failed || ev.Status == engine.Skipped) && !strings.Contains(string(ev.Node), "node3") {
			t.Errorf("%s: %s", ev.Status, ev.Node)
		}
	}
	for _, n := range []string{"node1", "node2", "node4"} {
		same(t, n, e.hosts[n], joined.ReplaceAllString(w.hosts[n].Snapshot(), "$1"))
	}
	others := func(objects string) string {
		return strings.Join(slices.DeleteFunc(strings.Split(objects, "---\n"), func(o string) bool { return strings.Contains(o, "name: node3\n") }), "---\n")
	}
	same(t, "objects", others(e.objects), others(w.objects()))
}

package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestHooks runs commands of the user's around each node that is drained: one after the other, and those after a node also when something of it failed, in the next run.
func TestHooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		is := row(t, "row2")
		w := newWorld(t, ofRelease(t, is, "36"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		told := filepath.Join(t.TempDir(), "told")
		hooks := func(fails string) string {
			return fmt.Sprintf(`hooks: {beforeNode: [{name: silence, command: 'echo before $KUBEXM_NODE $KUBEXM_ADDRESS >> %[1]s'}],
    afterNode: [{name: test, command: 'echo after $KUBEXM_NODE $KUBEXM_KUBERNETES_VERSION >> %[1]s%[2]s'}, {name: ticket, command: "false", failurePolicy: Ignore}]}`, told, fails)
		}
		w.configure(edited(t, is, hooks("; [ $KUBEXM_NODE != node2 ]")))
		a := w.attempt(t.Context())
		_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		if err == nil || !strings.Contains(err.Error(), "hook test of afterNode, on the control machine: ") {
			t.Fatalf("with a hook that fails: %v", err)
		}
		w.configure(edited(t, is, hooks("")))
		w.apply()
		w.released(config.VersionsFor("v1.37.0"))
		w.settled()
		text, err := os.ReadFile(told)
		w.must(err)
		want := `before node1 10.0.0.11
after node1 v1.37.1
before node2 10.0.0.12
after node2 v1.37.1
after node2 v1.37.1
before node3 10.0.0.13
after node3 v1.37.1
`
		if string(text) != want {
			t.Errorf("hooks:\n%s", text)
		}
	})
}

// TestOnly gives some nodes their new kubelets, and later the others, which wait while the first of them is watched.
func TestOnly(t *testing.T) {
	for _, name := range []string{"row2", "row7"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				is := edited(t, row(t, name), "upgrade: {pause: 20m}")
				w := newWorld(t, ofRelease(t, is, "34"), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				w.configure(is)
				some := func(only ...string) error {
					a := w.attempt(t.Context())
					a.Only = only
					_, err := a.App.Upgrade(a.ctx, a.Request, a.Observer, map[string]string{"spec.kubernetes.version": "v1.37.1"})
					return err
				}
				if err := some("worker", "node99"); fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), "--only node99") {
					t.Errorf("only a node that there is not: %v", err)
				}
				w.must(some("node2"))
				for name := range w.kubelets {
					want := config.VersionsFor("v1.34.0").Kubernetes
					if name == "node2" {
						want = "v1.37.1"
					}
					if is := release(w.hosts[name], "kubelet"); is != want {
						t.Errorf("the kubelet of %s is %s, not %s", name, is, want)
					}
				}
				begun := time.Now()
				w.apply()
				if took := time.Since(begun); took < 20*time.Minute {
					t.Errorf("the other nodes waited for %s", took)
				}
				w.released(config.VersionsFor("v1.37.0"))
				w.settled()
				born(t, name, is, w.certs(name)).same(t, "as if made so", w.image())
			})
		})
	}
}

// TestUpgradeStops has an upgrade over three minor versions stop in the second: the file has the goal, and kubexm apply goes on to it.
func TestUpgradeStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, ofRelease(t, row(t, "row2"), "34"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		a := w.attempt(t.Context())
		runs, m := 0, 0
		a.onNode(&m, a.kill)
		a.Begin = func(_ string, g *plan.ExecutionGraph) {
			if runs++; runs == 2 {
				m = len(g.Nodes) / 2
			}
		}
		if _, err = a.App.Upgrade(a.ctx, a.Request, a.Observer, map[string]string{"spec.kubernetes.version": "v1.37.1"}); err == nil || runs != 2 {
			t.Fatalf("after %d runs: %v", runs, err)
		}
		text, err := os.ReadFile(w.file)
		w.must(err)
		if !strings.Contains(string(text), "version: v1.37.1") {
			t.Errorf("the configuration is\n%s", text)
		}
		back := w.attempt(t.Context())
		_, err = back.App.RollBack(back.ctx, back.Request, back.Observer)
		w.must(err)
		if is := drained(back); len(is) > 0 || release(w.hosts["node1"], "kube-apiserver") != "v1.35.8" || release(w.hosts["node1"], "kubelet") != "v1.34.11" {
			t.Errorf("drained for the way back: %v", is)
		}
		w.configure(string(text))
		w.apply()
		w.released(config.VersionsFor("v1.37.0"))
		w.settled()
	})
}

// TestEtcdAlong lets etcd go with Kubernetes, there and back, unless the file has a version of the user's own.
func TestEtcdAlong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		is := ofRelease(t, row(t, "row2"), "35")
		w := newWorld(t, is, "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		plan := func() *app.Upgrading {
			t.Helper()
			a := w.attempt(t.Context())
			u, err := a.App.PlanUpgrade(a.ctx, a.Request, a.Observer, map[string]string{"spec.kubernetes.version": "v1.37.1"})
			w.must(err)
			return u
		}
		upgrade := func(field, to string) {
			t.Helper()
			a := w.attempt(t.Context())
			_, err := a.App.Upgrade(a.ctx, a.Request, a.Observer, map[string]string{field: to})
			w.must(err)
		}
		back := func() error {
			a := w.attempt(t.Context())
			_, err := a.App.RollBack(a.ctx, a.Request, a.Observer)
			return err
		}
		for written, want := range map[string]string{"": "v3.7.1", "v3.6.16": "v3.7.1", "v3.6.15": "v3.6.15"} {
			if w.configure(is); written != "" {
				w.configure(edited(t, is, "etcd: {version: "+written+"}"))
			}
			if u := plan(); u.Path[len(u.Path)-1].Etcd != want || u.BackTo != "v1.36.4" {
				t.Errorf("with etcd %q written: %v, back to %q", written, u.Path, u.BackTo)
			}
		}
		w.configure(is)
		upgrade("spec.kubernetes.version", "v1.36.4")
		w.must(back())
		text, err := os.ReadFile(w.file)
		w.must(err)
		if strings.Contains(string(text), "v3.6.16") {
			t.Errorf("etcd is written after the way back:\n%s", text)
		}
		upgrade("spec.kubernetes.version", "v1.36.4")
		upgrade("spec.etcd.version", "v3.7.1")
		if err := back(); err == nil || !strings.Contains(err.Error(), "the last upgrade was not one of Kubernetes (spec.etcd.version: v3.6.16 -> v3.7.1)") {
			t.Errorf("back from another etcd: %v", err)
		}
	})
}

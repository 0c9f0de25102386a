package app_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// TestOnTheWay leaves what gives masters their address, and pinned images, as they are until the last run: the images of this release come with it.
func TestOnTheWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const manifest = "/etc/kubernetes/manifests/kube-vip.yaml"
		w := newWorld(t, ofRelease(t, row(t, "row15"), "35"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		kept := map[string]string{}
		pinned := func() string {
			list, err := w.hosts["node1"].Runner().Sh(w.Context(), "/usr/local/bin/ctr -n k8s.io images ls | grep kubexm.io/pinned=yes")
			w.must(err)
			return list
		}
		for _, m := range []string{"node1", "node2", "node3"} {
			rewrite(w.hosts[m], manifest, "/kube-vip:v", "/kube-vip:v0.") // as an older kubexm has made it
			kept[m], _ = w.hosts[m].Get(manifest)
		}
		before, runs := pinned(), 0
		w.configure(ofRelease(t, row(t, "row15"), "37"))
		a := w.attempt(t.Context())
		a.Begin = func(string, *plan.ExecutionGraph) {
			if runs++; runs != 2 {
				return
			}
			for m, was := range kept {
				if is, _ := w.hosts[m].Get(manifest); is != was {
					t.Errorf("on the way %s has\n%s", m, is)
				}
			}
			if is := pinned(); is != before {
				t.Errorf("on the way these are pinned:\n%s\nbefore:\n%s", is, before)
			}
		}
		_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		w.must(err)
		if is, _ := w.hosts["node1"].Get(manifest); runs != 2 || is == kept["node1"] {
			t.Errorf("after %d runs it has\n%s", runs, is)
		}
	})
}

// TestLetBack lets pods back on a node that a killed run has drained, also when the next run fails early; what is to run afterwards waits.
func TestLetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		told := filepath.Join(t.TempDir(), "told")
		is := edited(t, row(t, "row2"), "hooks: {afterNode: [{name: note, command: 'echo $KUBEXM_NODE >> "+told+"'}]}")
		w := newWorld(t, ofRelease(t, is, "36"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.configure(ofRelease(t, is, "37"))
		a := w.attempt(t.Context())
		a.Event = func(ev engine.Event) {
			if ev.What == "drain the node" && ev.Host == "node2" && ev.Status == engine.Changed {
				a.kill()
			}
		}
		if _, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil {
			t.Fatal("the killed run ended well")
		}
		if !slices.Contains(w.running(), "node2 takes no pods") {
			t.Fatal("it was killed elsewhere")
		}
		a = w.attempt(t.Context())
		a.around = func(h *runnertest.Host, ctx context.Context, cmd connector.Cmd) error {
			if h.Name == "node1" && strings.Contains(cmd.Line, "images ls") {
				return errors.New("containerd does not answer")
			}
			return h.Exec(ctx, cmd)
		}
		if _, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil {
			t.Fatal("the run on a broken host ended well")
		}
		text, err := os.ReadFile(told)
		if slices.Contains(w.running(), "node2 takes no pods") || err != nil || string(text) != "node1\n" {
			t.Errorf("%v; hooks after %s, %v", w.running(), text, err)
		}
		w.apply()
		if text, err = os.ReadFile(told); err != nil || string(text) != "node1\nnode2\nnode3\n" {
			t.Errorf("hooks after %s, %v", text, err)
		}
		w.released(config.VersionsFor("v1.37.0"))
		w.settled()
	})
}

package app_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/store"
	kubexm "github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/engine"
)

// machineID is that of the nth fresh machine.
func machineID(n int) string { return fmt.Sprintf("fedcba987654321%017d", n) }

// removes takes hosts out of the configuration and the cluster.
func (w *world) removes(force bool, hosts ...string) (*attempt, error) {
	a := w.attempt(w.Context())
	a.Force, a.Edit = force, &kubexm.Edit{Remove: hosts}
	_, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil)
	return a, err
}

// TestLostBefore has a host leave the cluster whose name was that of a machine which was given up, and kills kubexm meanwhile.
func TestLostBefore(t *testing.T) {
	for name, hosts := range map[string][]string{"row4": {"node4"}, "row9": {"node4", "node3"}} {
		for _, host := range hosts {
			t.Run(name+"/"+host, func(t *testing.T) { bubble(t, func(t *testing.T) { lostBefore(t, name, host) }) })
		}
	}
}

func lostBefore(t *testing.T, name, host string) {
	config := joinedBy(row(t, name), "node5 worker")
	w := newWorld(t, config, "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	w.burn(host)
	_, err = w.removes(true, host)
	w.must(err)
	w.fresh(host, machineID(1))
	before := w.hosts[host].Snapshot()
	w.configure(config)
	w.apply()

	a := w.attempt(t.Context())
	a.Edit = &kubexm.Edit{Remove: []string{host}}
	a.Event = func(ev engine.Event) {
		if ev.Host == host && ev.Status == engine.Changed && strings.Contains(string(ev.Node), "clean") {
			a.kill()
		}
	}
	if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil {
		t.Fatal("it was not killed")
	}
	w.apply()
	w.settled()
	same(t, host+", which left", before, w.hosts[host].Snapshot())
	if nodes := w.everything(); strings.Contains(nodes, "kind: Node\nmetadata:\n  annotations:\n  name: "+host) || !strings.Contains(nodes, "kubexm-lost-machines") {
		t.Errorf("a node is left, or the first machine is kept out no more:\n%s", nodes)
	}
}

// TestReplacedTwice lets fresh machines take the place of one that burnt, one after the other: all are kept out.
func TestReplacedTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row4"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		var gone []string
		for n := range 2 {
			id, _ := w.hosts["node4"].Get("/etc/machine-id")
			gone = append(gone, strings.TrimSpace(id))
			w.burn("node4")
			w.fresh("node4", machineID(n))
			a := w.attempt(t.Context())
			_, err = a.App.ReplaceNode(a.ctx, a.Request, a.Observer, "node4", kubexm.Addresses{})
			w.must(err)
		}
		w.settled()
		w.verified()
		for _, o := range w.api.Objects() {
			if o.GetKind() == "ValidatingAdmissionPolicyBinding" {
				w.api.Delete(o)
				if text := checked(w.verify(), false); !strings.Contains(text, "machines kept out | API | differs | nothing | "+strings.Join(slices.Sorted(slices.Values(gone)), ", ")) {
					t.Errorf("without the fence:\n%s", text)
				}
				w.api.Put(o)
			}
		}
		for _, id := range gone {
			if !strings.Contains(w.everything(), id) {
				t.Errorf("machine %s may come back", id)
			}
		}
		w.records(func(_ string, st store.Store) {
			left, err := st.Departed()
			w.must(err)
			var ids []string
			for _, d := range left {
				ids = append(ids, d.MachineID)
			}
			if slices.Sort(ids); len(ids) != len(gone) {
				t.Errorf("%d machines are known to be lost: %q", len(ids), ids)
			}
		})
	})
}

// TestFenceOfSilent brings back the only API server of a cluster that keeps a lost machine out.
func TestFenceOfSilent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, joinedBy(row(t, "row1"), "node5 worker"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.burn("node5")
		_, err = w.removes(true, "node5")
		w.must(err)
		w.sh("node1", "rm /etc/kubernetes/manifests/kube-apiserver.yaml")
		w.apply()
		w.settled()
	})
}

// TestLostCleaned cleans a machine that was given up, once it is back: it is kept out no more.
func TestLostCleaned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row4"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		gone := w.hosts["node4"]
		w.burn("node4")
		_, err = w.removes(true, "node4")
		w.must(err)
		w.verified()
		w.hosts["node4"] = gone
		gone.SetDown(false)
		_, err = w.removes(false, "node4")
		w.must(err)
		w.settled()
		w.verified()
	})
}

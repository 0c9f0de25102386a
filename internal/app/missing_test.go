package app_test

import (
	"slices"
	"strings"
	"testing"
)

// TestMissing makes a cluster without a worker that is down, and adds it when it is back.
func TestMissing(t *testing.T) {
	for _, name := range []string{"row1", "row2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) { missing(t, newWorld(t, settled(row(t, name)), "")) })
		})
	}
}

// settled is a configuration that leaves nothing to the kernels of nodes.
func settled(config string) string {
	return strings.Replace(config, "  kubernetes: {", "  kubernetes: {proxyMode: nftables, ", 1)
}

func missing(t *testing.T, w *world) {
	before, node3 := w.snapshot(), w.hosts["node3"]
	node3.SetDown(true)
	without := func(use func(*attempt)) {
		t.Helper()
		a := w.attempt(t.Context())
		a.AllowMissing = true
		use(a)
		if told := strings.Join(a.Notices, "\n"); !strings.Contains(told, "warning: left out: host node3: gathering facts of node3: node3: connection lost") {
			t.Errorf("told:\n%s", told)
		}
	}
	without(func(a *attempt) {
		graph, err := a.App.Plan(a.ctx, a.Request, a.Observer, "create")
		w.must(err)
		if hosts := graph.Hosts(); slices.Contains(hosts, "node3") {
			t.Errorf("planned on %s", hosts)
		}
	})
	for n := range 2 {
		without(func(a *attempt) {
			res, err := a.create()
			w.must(err)
			if n == 1 && res.Summary.OK != res.Summary.Total {
				t.Errorf("second run: %+v", res.Summary)
			}
			runs, err := a.App.Runs(a.Request)
			w.must(err)
			for what, missing := range map[string][]string{"result": res.Missing, "record": runs[len(runs)-1].Missing} {
				if !slices.Equal(missing, []string{"node3"}) {
					t.Errorf("missing in the %s: %s", what, missing)
				}
			}
		})
	}
	for _, h := range []string{"node1", "node2"} {
		if hosts, _ := w.hosts[h].Get("/etc/hosts"); !strings.Contains(hosts, "10.0.0.13 node3") {
			t.Errorf("%s does not know node3:\n%s", h, hosts)
		}
	}

	if _, err := w.attempt(t.Context()).create(); err == nil {
		t.Error("made without a host, unasked")
	}
	look := w.attempt(t.Context())
	status, err := look.App.Status(look.ctx, look.Request, look.Observer)
	w.must(err)
	if status.Healthy || !strings.Contains(strings.Join(status.Problems, "\n"), "node3") {
		t.Errorf("problems: %q", status.Problems)
	}

	node3.SetDown(false)
	others := w.hosts["node1"].Snapshot() + w.hosts["node2"].Snapshot()
	res, err := w.attempt(t.Context()).create()
	w.must(err)
	if res.Missing != nil || !strings.Contains(w.objects(), "name: node3\n") {
		t.Errorf("not added: %+v", res)
	}
	same(t, "the others", others, w.hosts["node1"].Snapshot()+w.hosts["node2"].Snapshot())
	w.live()
	_, err = w.attempt(t.Context()).delete()
	w.must(err)
	same(t, "hosts after delete", before, w.snapshot())
}

// TestMissingForGood takes a worker out of the configuration that never was there.
func TestMissingForGood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, settled(row(t, "row1")), "")
		w.hosts["node3"].SetDown(true)
		a := w.attempt(t.Context())
		a.AllowMissing = true
		_, err := a.create()
		w.must(err)
		w.configure(smaller(settled(row(t, "row1"))))
		_, err = w.attempt(t.Context()).create()
		w.must(err)
		if hosts, _ := w.hosts["node1"].Get("/etc/hosts"); strings.Contains(hosts, "node3") {
			t.Errorf("node1 still knows node3:\n%s", hosts)
		}
		_, err = w.attempt(t.Context()).delete()
		w.must(err)
	})
}

package app_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// lose takes the power from a machine, and returns what brings it back.
func (w *world) lose(host string) (back func()) {
	h := w.hosts[host]
	h.SetDown(true)
	w.down(h)
	w.etcdDown(h)
	return func() {
		h.SetDown(false)
		w.etcd(h)
		w.must(w.serve(h))
	}
}

// applyTo brings the cluster to its configuration, without hosts that are down where that is allowed.
func (w *world) applyTo(t *testing.T, allow bool) (*attempt, *app.Result, error) {
	t.Helper()
	a := w.attempt(t.Context())
	a.AllowMissing = allow
	res, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil)
	return a, res, err
}

// TestFirstMasterDown works on a cluster whose first master has no power, and on it when it is back.
func TestFirstMasterDown(t *testing.T) {
	for _, name := range []string{"row7", "row9"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) { firstMasterDown(t, newWorld(t, row(t, name), ""), row(t, name)) })
		})
	}
}

func firstMasterDown(t *testing.T, w *world, config string) {
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	back := w.lose("node1")

	_, _, err = w.applyTo(t, false)
	if err == nil || !strings.Contains(err.Error(), "host node1: ") || !strings.Contains(fault.Advice(err), "to continue without hosts that are down: --allow-missing") {
		t.Errorf("unasked: %v, advice %q", err, fault.Advice(err))
	}
	look := w.attempt(t.Context())
	status, err := look.App.Status(look.ctx, look.Request, look.Observer)
	w.must(err)
	if len(status.Nodes) != 4 || !strings.Contains(strings.Join(status.Problems, "\n"), "node1: connection lost") {
		t.Errorf("status: %+v", status)
	}

	a := w.attempt(t.Context())
	a.AllowMissing = true
	p, err := a.App.PlanApply(a.ctx, a.Request, a.Observer)
	w.must(err)
	if !p.Empty() || !slices.Equal(p.Missing, []string{"node1"}) {
		t.Errorf("there is something to do without node1: %+v", p)
	}
	if told := strings.Join(a.Notices, "\n"); !strings.Contains(told, "warning: left out: host node1: ") {
		t.Errorf("told:\n%s", told)
	}

	w.configure(strings.Replace(config, "version: v1.37.1", `version: v1.37.1, apiServer: {extraArgs: {profiling: "false"}}`, 1))
	a = w.attempt(t.Context())
	a.AllowMissing = true
	p, err = a.App.PlanApply(a.ctx, a.Request, a.Observer)
	w.must(err)
	if len(p.Restarts) != 1 || p.Restarts[0].Service != "kube-apiserver" || !slices.Equal(slices.Sorted(slices.Values(p.Restarts[0].Hosts)), []string{"node2", "node3"}) {
		t.Errorf("restarts: %+v", p.Restarts)
	}
	a, res, err := w.applyTo(t, true)
	w.must(err)
	if !slices.Equal(res.Missing, []string{"node1"}) {
		t.Errorf("missing: %s", res.Missing)
	}
	var rolled []string
	for _, ev := range a.Events {
		if ev.Status == engine.Changed && (ev.What == "service kube-apiserver" || ev.What == "static pods of control plane") {
			rolled = append(rolled, ev.Host)
		}
		if ev.Host == "node1" {
			t.Errorf("%s on node1", ev.What)
		}
	}
	if slices.Sort(rolled); !slices.Equal(rolled, []string{"node2", "node3"}) {
		t.Errorf("rolled over %s", rolled)
	}

	back()
	_, res, err = w.applyTo(t, false)
	w.must(err)
	if res.Missing != nil || !strings.Contains(w.hosts["node1"].Snapshot(), "profiling") {
		t.Errorf("node1 is not up to date: %+v", res)
	}
	if _, res, err = w.applyTo(t, false); err != nil || res.Summary.OK != res.Summary.Total {
		t.Errorf("again: %+v, %v", res, err)
	}
}

// TestTooManyDown refuses to go on without hosts that the others need.
func TestTooManyDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row9"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.lose("node1")
		w.lose("node2")
		before := w.snapshot()
		_, _, err = w.applyTo(t, true)
		why := "--allow-missing cannot leave it out: it has a member of etcd, and without it 0 of 3 are healthy, which is no majority"
		if err == nil || !strings.Contains(fault.Advice(err), why) {
			t.Errorf("%v, advice %q", err, fault.Advice(err))
		}
		same(t, "hosts", before, w.snapshot())
	})
}

// TestMasterDiesInApply has the API server that is asked die in the middle of an apply.
func TestMasterDiesInApply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row9"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.configure(strings.Replace(row(t, "row9"), "network:", "dns: {coredns: {replicas: 3}}\n  network:", 1))
		a := w.attempt(t.Context())
		died := false
		a.Event = func(ev engine.Event) {
			if !died && ev.What == "apply coredns" && ev.Status == engine.Started {
				died = true
				w.down(w.hosts["node1"])
				a.hangUp()
			}
		}
		_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		if err != nil || !died {
			t.Errorf("died: %t, %v", died, err)
		}
		if !strings.Contains(w.objects(), "replicas: 3") {
			t.Error("CoreDNS has not its replicas")
		}
	})
}

package app_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	kubexm "github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/etcd/etcdtest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// defragment is one run of it, and returns the hosts whose members were defragmented, in their order.
func (w *world) defragment(t *testing.T) (hosts []string, err error) {
	t.Helper()
	a := w.attempt(t.Context())
	a.Event = func(ev engine.Event) {
		if ev.Status == engine.Changed && strings.Contains(string(ev.Node), "etcd-defragmented") {
			hosts = append(hosts, ev.Host)
		}
	}
	_, err = a.App.Defragment(a.ctx, a.Request, a.Observer)
	return hosts, err
}

// TestDefragment gives freed space of members back: one by one, the one that leads last, and only where it is worth it.
func TestDefragment(t *testing.T) {
	for _, name := range []string{"row5", "row9"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, name), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				if hosts, err := w.defragment(t); err != nil || hosts != nil {
					t.Errorf("where nothing is free: %q, %v", hosts, err)
				}
				w.etcds.Lead(w.members["node1"])
				for host, free := range map[string]int64{"node1": 300 << 20, "node2": 10 << 20, "node3": 500 << 20} {
					w.etcds.Set(w.members[host], func(m *etcdtest.Member) { m.Size, m.Free = 600<<20, free })
				}
				a := w.attempt(t.Context())
				is, err := a.App.Etcd(a.ctx, a.Request, a.Observer)
				w.must(err)
				if len(is.Members) != 3 || is.Members[2].DBSize != 600<<20 || is.Members[2].InUse != 100<<20 || is.Problems != nil {
					t.Errorf("members are %+v", is)
				}
				if hosts, err := w.defragment(t); err != nil || !slices.Equal(hosts, []string{"node3", "node1"}) {
					t.Errorf("defragmented are %q, %v", hosts, err)
				}
				w.settled()
			})
		})
	}
}

// TestFull has an etcd that takes no writes: it is compacted, and defragmented although no member is healthy, and the alarm is taken back, but only if there is space then.
func TestFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row9"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		full := func(free, history int64) {
			for _, member := range w.members {
				w.etcds.Set(member, func(m *etcdtest.Member) { m.Size, m.Free, m.History, m.Alarm = 8<<30, free, history, "NOSPACE" })
			}
		}
		full(1<<20, 1<<20)
		if hosts, err := w.defragment(t); err == nil || hosts != nil || !strings.Contains(err.Error(), "of the 8.0 GiB that it may take") || fault.Advice(err) == "" {
			t.Errorf("where nothing is free: %q, %v", hosts, err)
		}
		full(1<<20, 7<<30)
		if hosts, err := w.defragment(t); err != nil || len(hosts) != 3 {
			t.Errorf("defragmented are %q, %v", hosts, err)
		}
		w.settled()
	})
}

// TestMembers gives workers members of etcd, and takes that of a master and that of a worker away.
func TestMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, joinedBy(row(t, "row9"), "node5 worker"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		for _, e := range []struct {
			kubexm.Edit
			members []string
		}{
			{kubexm.Edit{Gain: map[string]v1alpha1.Role{"node4": v1alpha1.RoleEtcd, "node5": v1alpha1.RoleEtcd}}, []string{"node1", "node2", "node3", "node4", "node5"}},
			{kubexm.Edit{Lose: map[string]v1alpha1.Role{"node2": v1alpha1.RoleEtcd, "node5": v1alpha1.RoleEtcd}}, []string{"node1", "node3", "node4"}},
		} {
			a := w.attempt(t.Context())
			a.Edit = &e.Edit
			_, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil)
			w.must(err)
			a = w.attempt(t.Context())
			is, err := a.App.Etcd(a.ctx, a.Request, a.Observer)
			w.must(err)
			var hosts []string
			for _, m := range is.Members {
				hosts = append(hosts, m.Host)
			}
			if !slices.Equal(hosts, e.members) || is.Problems != nil {
				t.Errorf("members are on %q: %q", hosts, is.Problems)
			}
			w.settled()
			w.verified()
		}
		w.hosts["node4"].SetDown(true)
		a := w.attempt(t.Context())
		a.AllowMissing, a.Edit = true, &kubexm.Edit{Lose: map[string]v1alpha1.Role{"node4": v1alpha1.RoleEtcd}}
		if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil || !strings.Contains(fault.Advice(err), "its member of etcd is to go") {
			t.Errorf("a host is left out whose member of etcd is to go: %v: %s", err, fault.Advice(err))
		}
	})
}

// TestNotOurEtcd leaves an etcd alone that is somebody else's.
func TestNotOurEtcd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row22"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		a := w.attempt(t.Context())
		if _, err := a.App.Defragment(a.ctx, a.Request, a.Observer); fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), "etcd is external") {
			t.Error(err)
		}
		if _, err := a.App.Etcd(a.ctx, a.Request, app.Observer{}); fault.ExitCode(err) != fault.ExitUsage {
			t.Error(err)
		}
	})
}

package app_test

import (
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/etcd/etcdtest"
)

// TestSilentEtcd lets two members join one that does not answer: whether they are to join it, or to begin with it, is not guessed.
func TestSilentEtcd(t *testing.T) {
	for name, make := range map[string]func(*attempt) error{
		"apply":  func(a *attempt) error { _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); return err },
		"create": func(a *attempt) error { _, err := a.create(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, "row9"), "")
				w.configure(alone(row(t, "row9")))
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				if name == "create" {
					w.sh("node1", "systemctl stop kube-apiserver")
				}
				w.etcds.Set(w.members["node1"], func(m *etcdtest.Member) { m.Down = true })
				w.configure(row(t, "row9"))
				if err := make(w.attempt(t.Context())); err == nil || !strings.Contains(err.Error(), "whether node2, node3 are to join it cannot be found out") {
					t.Errorf("%v", err)
				}
				for _, h := range []string{"node2", "node3"} {
					if _, began := w.hosts[h].Get("/var/lib/etcd/member/snap/db"); began {
						t.Errorf("a member has begun on %s", h)
					}
				}
				w.etcds.Set(w.members["node1"], func(m *etcdtest.Member) { m.Down = false })
				w.sh("node1", "systemctl start kube-apiserver")
				w.apply()
				w.settled()
			})
		})
	}
}

// TestSilentEtcdElsewhere lets a member join one that has stopped, on a host that is to have none any more.
func TestSilentEtcdElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		was := alone(row(t, "row9"))
		w, _ := between(t, [2]string{was, joinedBy(roles(was, "node1", "master"), "node5 etcd")})
		w.sh("node1", "systemctl stop etcd")
		w.configure(joinedBy(roles(was, "node1", "master"), "node5 etcd"))
		if _, _, err := w.applyTo(t, false); err == nil || !strings.Contains(err.Error(), "whether node5 are to join it cannot be found out") {
			t.Errorf("%v", err)
		}
		if _, began := w.hosts["node5"].Get("/var/lib/etcd/member/snap/db"); began {
			t.Error("a member has begun on node5")
		}
		w.sh("node1", "systemctl start etcd")
		w.apply()
		w.settled()
	})
}

package app_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/etcd/etcdtest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// health serves the pages on which scheduler and controller manager say how they are.
func (w *world) health() {
	store := &pki.Store{Dir: w.TempDir()}
	pair, err := store.Leaf(pki.EtcdMember("node1", nil))
	w.must(err)
	conf := &tls.Config{Certificates: []tls.Certificate{*pair.TLS()}}
	page := func(text string, conf *tls.Config) func() (net.Conn, error) {
		return answering(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, text) }), conf)
	}
	h := w.hosts["node1"]
	h.Serve("127.0.0.1:10257", page("ok", conf))
	h.Serve("127.0.0.1:10259", page("ok", conf))
}

// once is a listener of the connections it was given.
type once struct{ conns chan net.Conn }

func (o *once) Accept() (net.Conn, error) {
	if c, ok := <-o.conns; ok {
		return c, nil
	}
	return nil, io.EOF
}
func (o *once) Close() error   { return nil }
func (o *once) Addr() net.Addr { return &net.UnixAddr{} }

// TestStatus looks at a cluster that is well, and at one that is not.
func TestStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row1"), "")
		a := w.attempt(t.Context())
		if _, err := a.App.Status(a.ctx, a.Request, a.Observer); err == nil || !strings.Contains(err.Error(), "there is no cluster") {
			t.Errorf("status of nothing: %v", err)
		}
		_, err := a.create()
		w.must(err)
		w.health()
		golden.File(t, "testdata/status/well.yaml", w.status(w.attempt(t.Context())))

		w.etcds.Set(w.members["node1"], func(m *etcdtest.Member) { m.Alarm = "NOSPACE" })
		w.hosts["node1"].Serve("127.0.0.1:10259", nil)
		w.api.AddNode("stranger", true)
		w.api.AddNode("node2", false)
		a = w.attempt(t.Context())
		dial := a.Dial
		a.Dial = func(ctx context.Context, h *v1alpha1.Host, known string) (connector.Connector, error) {
			if h.Name == "node2" {
				return nil, errors.New("connection refused")
			}
			return dial(ctx, h, known)
		}
		golden.File(t, "testdata/status/badly.yaml", w.status(a))

		a.Dial = func(context.Context, *v1alpha1.Host, string) (connector.Connector, error) {
			return nil, errors.New("connection refused")
		}
		golden.File(t, "testdata/status/gone.yaml", w.status(a))
	})
}

func (w *world) status(a *attempt) string {
	is, err := a.App.Status(a.ctx, a.Request, a.Observer)
	w.must(err)
	if is.LastRun != nil {
		is.LastRun.Summary = engine.Summary{} // counts steps, which is beside the point here
	}
	return w.yaml(is)
}

// yaml shows what is told, with a name for the work directory: how long that one's is decides where YAML breaks lines.
func (w *world) yaml(told any) string {
	text, err := json.Marshal(told)
	w.must(err)
	text, err = yaml.JSONToYAML(bytes.ReplaceAll(text, []byte(filepath.Clean(w.dir)), []byte("WORKDIR")))
	w.must(err)
	return string(text)
}

// TestStatusWithoutKeys looks at a cluster whose keys are lost, and at one whose authority of etcd is damaged.
func TestStatusWithoutKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row2"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		certs := filepath.Join(w.dir, "row2", "certs")
		w.must(os.WriteFile(filepath.Join(certs, "etcd", "ca.crt"), []byte("rubbish"), 0o600))
		golden.File(t, "testdata/status/damaged.yaml", w.status(w.attempt(t.Context())))
		w.must(os.RemoveAll(certs))
		golden.File(t, "testdata/status/lost.yaml", w.status(w.attempt(t.Context())))
		if _, err := os.Stat(certs); err == nil {
			t.Error("a look made keys")
		}
	})
}

// TestStatusOfTimers has a snapshot that fails, and a timer that somebody has stopped.
func TestStatusOfTimers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, changedBy(t, row(t, "row1"), "timers of etcd"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		h := w.hosts["node1"]
		h.OnStart["kubexm-etcd-backup.service"] = func(*runnertest.Host) error {
			return errors.New("/var/lib/etcd has 50000 KiB free, and a snapshot of etcd needs 65536 KiB")
		}
		if h.Start("kubexm-etcd-backup") == nil {
			t.Error("it starts")
		}
		w.sh("node1", "systemctl stop kubexm-etcd-defrag.timer")
		a := w.attempt(t.Context())
		is, err := a.App.Status(a.ctx, a.Request, a.Observer)
		w.must(err)
		for _, want := range []string{
			"etcd-backup on node1: it failed the last time: /var/lib/etcd has 50000 KiB free, and a snapshot of etcd needs 65536 KiB", "etcd-defrag on node1: its timer does not run",
		} {
			if !slices.Contains(is.Problems, want) {
				t.Errorf("%q is not told: %q", want, is.Problems)
			}
		}
		delete(h.OnStart, "kubexm-etcd-backup.service")
		w.apply()
		w.settled()
		w.configure(edited(t, changedBy(t, row(t, "row1"), "timers of etcd"), `etcd: {autoBackup: {schedule: "Foo *-*-* 02:00:00"}}`))
		a = w.attempt(t.Context())
		if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil || !strings.Contains(err.Error(), "systemd does not take the time Foo *-*-* 02:00:00") {
			t.Errorf("a time that there is not: %v", err)
		}
		if is := h.Unit("kubexm-etcd-backup.timer"); is != "active enabled" {
			t.Errorf("the timer is %s", is)
		}
	})
}

// TestFollow reads the events of a run while it goes on.
func TestFollow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row1"), "")
		a := w.attempt(t.Context())
		var followed int
		seen := make(chan error, 1)
		var first sync.Once
		sink := a.Event
		a.Event = func(ev engine.Event) {
			sink(ev)
			first.Do(func() {
				go func() {
					seen <- a.App.Events(a.ctx, a.Request, "", true, func(engine.Event) error { followed++; return nil })
				}()
			})
		}
		_, err := a.create()
		w.must(err)
		w.must(<-seen)
		recorded := slices.DeleteFunc(a.Events, func(ev engine.Event) bool { return ev.Status == engine.Progress })
		if followed != len(recorded) {
			t.Errorf("%d events were followed, %d happened", followed, len(recorded))
		}
		runs, err := a.App.Runs(a.Request)
		w.must(err)
		if len(runs) != 1 || runs[0].Result != "ok" {
			t.Errorf("runs: %+v", runs)
		}
	})
}

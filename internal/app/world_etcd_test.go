package app_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// externalEtcd is where an etcd runs that is not kubexm's.
const externalEtcd = "10.0.0.31:2379"

// etcdCerts is the directory of that etcd's certificates; in scenarios it is called ETCD.
// Time begins in 2000 there.
var etcdCerts = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "kubexm-test-etcd-")
	if err != nil {
		panic(err)
	}
	store := &pki.Store{Dir: dir, Now: func() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }}
	for _, spec := range []pki.Spec{pki.EtcdMember("etcd1", []string{"10.0.0.31"}), pki.EtcdClient("kubernetes")} {
		if _, err := store.Leaf(spec); err != nil {
			panic(err)
		}
	}
	if err := store.Flush(); err != nil {
		panic(err)
	}
	return filepath.Join(dir, "etcd")
})

// etcd31 is that etcd.
type etcd31 struct {
	health, version string
	hidden          bool // it has no gateway
}

func (e *etcd31) serve(w *world) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(rw, `{"health":%q,"reason":"NOSPACE"}`, e.health)
	})
	mux.HandleFunc("GET /version", func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(rw, `{"etcdserver":%q,"etcdcluster":"3.6.0"}`, e.version)
	})
	mux.HandleFunc("POST /v3/kv/range", func(rw http.ResponseWriter, r *http.Request) {
		var asked struct {
			Key []byte
			End []byte `json:"range_end"`
		}
		err := json.NewDecoder(r.Body).Decode(&asked)
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case e.hidden:
			http.NotFound(rw, r)
		case err != nil || string(asked.Key) != "/registry/" || string(asked.End) != "/registry0":
			http.Error(rw, fmt.Sprint(err, asked), http.StatusBadRequest)
		case w.api == nil:
			fmt.Fprint(rw, `{"header":{"revision":"1"}}`)
		default:
			fmt.Fprint(rw, `{"header":{"revision":"9"},"kvs":[{"key":"L3JlZ2lzdHJ5L25hbWVzcGFjZXMvZGVmYXVsdA=="}],"more":true,"count":"4"}`)
		}
	})
	return mux
}

// answering returns a function whose every connection ends at a handler; conf nil: without TLS.
func answering(handler http.Handler, conf *tls.Config) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		here, there := net.Pipe()
		if conf != nil {
			there = tls.Server(there, conf)
		}
		listener := &once{conns: make(chan net.Conn, 1)}
		listener.conns <- there
		close(listener.conns)
		server := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)} // a refused certificate is the client's to report
		go func() { _ = server.Serve(listener) }()
		return here, nil
	}
}

// runEtcd lets all hosts reach the etcd that is not kubexm's.
func (w *world) runEtcd() {
	w.etcd31 = &etcd31{health: "true", version: "3.6.16"}
	ca, err := os.ReadFile(filepath.Join(etcdCerts(), "ca.crt"))
	w.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	pair, err := tls.LoadX509KeyPair(filepath.Join(etcdCerts(), "member-etcd1.crt"), filepath.Join(etcdCerts(), "member-etcd1.key"))
	w.must(err)
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
	for _, h := range w.hosts {
		h.Serve(externalEtcd, answering(w.etcd31.serve(w), conf))
	}
}

// called reports whether a master has with what the user calls the etcd that is not kubexm's.
func (w *world) called(h *runnertest.Host) bool {
	for file, name := range map[string]string{"ca.crt": "ca.pem", "node-kubernetes.crt": "CLIENT.pem", "node-kubernetes.key": "CLIENT-key.pem"} {
		want, err := os.ReadFile(filepath.Join(etcdCerts(), file))
		w.must(err)
		kubeadm, _ := h.Get("/etc/ssl/etcd/ssl/" + strings.Replace(name, "CLIENT", "apiserver", 1))
		kubexm, _ := h.Get("/etc/ssl/etcd/ssl/" + strings.Replace(name, "CLIENT", "node-"+h.Name, 1))
		if string(want) != kubeadm && string(want) != kubexm {
			return false
		}
	}
	return true
}

// wipe removes what a deleted cluster left in the etcd that is not kubexm's, as the user was told: before, it
// takes no other cluster.
func (w *world) wipe(told []string) {
	if w.etcd31 == nil {
		return
	}
	if !strings.Contains(strings.Join(told, "\n"), "etcdctl del --prefix /registry/") {
		w.Errorf("delete did not tell what is left: %q", told)
	}
	_, err := w.attempt(w.Context()).create()
	if fault.ExitCode(err) != fault.ExitPreflight || !strings.Contains(err.Error(), "like /registry/namespaces/default") {
		w.Errorf("create on an etcd that holds another cluster: %v", err)
	}
	w.api = nil
}

// TestExternalEtcd has etcds that no cluster can be made with, and one of which not all is known.
func TestExternalEtcd(t *testing.T) {
	for name, spoil := range map[string]func(w *world){
		"well":           func(*world) {},
		"out of reach":   func(w *world) { w.hosts["node2"].Serve(externalEtcd, nil) },
		"sick":           func(w *world) { w.etcd31.health = "false" },
		"too old":        func(w *world) { w.etcd31.version = "3.5.9" },
		"another's":      func(w *world) { w.api = kubetest.New() },
		"hidden":         func(w *world) { w.etcd31.hidden = true },
		"expired":        func(*world) { time.Sleep(2 * 365 * 24 * time.Hour) },
		"another server": func(w *world) { w.hosts["node1"].Serve(externalEtcd, answering(http.NotFoundHandler(), nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, "row22"), "")
				spoil(w)
				a := w.attempt(t.Context())
				is, err := app.Preflight(a.ctx, a.Options)
				w.must(err)
				var b strings.Builder
				for _, f := range is.Findings {
					if f.Check == cluster.EtcdCheck {
						fmt.Fprintf(&b, "%s (error: %t)\nfound: %s\nneeded: %s\nfix: %s\n\n", f.Host, f.Error, f.Found, f.Needed, f.Fix)
					}
				}
				golden.Equal(t, b.String())
				a.SkipPreflight = []string{cluster.EtcdCheck}
				if is, err = app.Preflight(a.ctx, a.Options); err != nil || !is.Fit {
					t.Errorf("skipped: %v, %v", is, err)
				}
			})
		})
	}
}

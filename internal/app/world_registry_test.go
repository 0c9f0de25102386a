package app_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/registry"
	"golang.org/x/crypto/bcrypt"

	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// serveAt lets all hosts connect to an address; nil ends that.
func (w *world) serveAt(address string, dial func() (net.Conn, error)) {
	for _, from := range w.hosts {
		from.Serve(address, dial)
	}
}

// serveRegistry runs the private registry by the files on its host. It has what was pushed as long as
// its directory is there.
func (w *world) serveRegistry(h *runnertest.Host) error {
	guarded, err := w.guardedRegistry(h, "/etc/registry/", ":443", true)
	if err == nil {
		w.serveAt(w.socket(h.Name, "443"), guarded)
	}
	return err
}

// serveRegistryPush takes images, on the loopback alone.
func (w *world) serveRegistryPush(h *runnertest.Host) error {
	guarded, err := w.guardedRegistry(h, "/etc/registry/push/", "127.0.0.1:5001", false)
	if err == nil {
		h.Serve("127.0.0.1:5001", guarded)
	}
	return err
}

func (w *world) guardedRegistry(h *runnertest.Host, dir, at string, readOnly bool) (func() (net.Conn, error), error) {
	const data = "/var/lib/registry/docker/registry"
	config, _ := h.Get(dir + "config.yml")
	crt, _ := h.Get(dir + "tls.crt")
	key, _ := h.Get(dir + "tls.key")
	users, _ := h.Get(dir + "htpasswd")
	pair, err := tls.X509KeyPair([]byte(crt), []byte(key))
	user, hash, ok := strings.Cut(strings.TrimSpace(users), ":")
	if err != nil || !ok || !strings.Contains(config, "rootdirectory: /var/lib/registry\n") || !strings.Contains(config, "addr: "+at+"\n") ||
		strings.Contains(config, "readonly:\n      enabled: true\n") != readOnly {
		return nil, errors.Join(err, errors.New("configuration error: "+config))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, kept := h.Get(data); !kept || w.registry == nil {
		w.registry = registry.New(registry.Logger(log.New(io.Discard, "", 0)))
		h.Put(data, "", 0o600)
	}
	pushed := w.registry
	var compared sync.Map // of a password whether it is right: bcrypt is slow, and slower with the race detector
	right := func(password string) bool {
		is, known := compared.Load(password)
		if !known {
			is = bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
			compared.Store(password, is)
		}
		return is == true
	}
	guarded := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		name, password, given := r.BasicAuth()
		if !given || name != user || !right(password) {
			rw.Header().Set("WWW-Authenticate", `Basic realm="kubexm"`)
			http.Error(rw, "", http.StatusUnauthorized)
			return
		}
		if readOnly && r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(rw, "", http.StatusMethodNotAllowed)
			return
		}
		pushed.ServeHTTP(rw, r)
	})
	return answering(guarded, &tls.Config{Certificates: []tls.Certificate{pair}}), nil
}

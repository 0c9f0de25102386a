package app_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// proxying reports whether a host runs a proxy of its own.
func proxying(h *runnertest.Host) bool {
	for _, conf := range []string{"/etc/haproxy/haproxy.cfg", "/etc/nginx/nginx.conf"} {
		if text, _ := h.Get(conf); strings.Contains(text, "10.0.0.11:6443") {
			return true
		}
	}
	return false
}

// shared reports whether some host has the shared address.
func (w *world) shared() bool {
	for _, h := range w.hosts {
		_, pod := h.Get("/etc/kubernetes/manifests/kube-vip.yaml")
		conf, _ := h.Get("/etc/keepalived/keepalived.conf")
		if pod || strings.Contains(conf, vip) && proxying(h) {
			return true
		}
	}
	return false
}

// endpoints are the names that the endpoint has in configurations.
var endpoints = []string{"lb.kubexm.local", "api.example.com"}

// named connects to where a name of the endpoint leads on a host.
func (w *world) named(h *runnertest.Host, name string) (net.Conn, error) {
	hosts, _ := h.Get("/etc/hosts")
	for l := range strings.Lines(hosts) {
		if ip, ok := strings.CutSuffix(strings.TrimSpace(l), " "+name); ok {
			return h.Dial(w.Context(), "tcp", ip+":6443")
		}
	}
	return nil, fault.Transient(errors.New("no such host"))
}

// balanced connects to any API server, where there is a load balancer.
func (w *world) balanced(there bool) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, dial := range w.servers {
		if there {
			return dial()
		}
	}
	return nil, fault.Transient(errors.New("connection refused"))
}

// serve runs the API server with the certificates on the host, and lets all hosts reach it.
func (w *world) serve(h *runnertest.Host) error {
	if _, _, err := serving(w, h); err != nil {
		return err
	}
	w.mu.Lock()
	if w.api == nil && w.etcd31 != nil && w.called(h) {
		w.api = kubetest.New()
	}
	if w.api == nil {
		w.mu.Unlock()
		return errors.New("etcd does not answer")
	}
	api := w.api
	connect := func() (net.Conn, error) { // it reads its certificate again
		pair, ca, err := serving(w, h)
		if err != nil {
			return nil, err
		}
		return api.Dialer(mutual(pair, ca))(context.Background(), "", "")
	}
	w.servers[h.Name] = connect
	w.mu.Unlock()
	for _, from := range w.hosts {
		from.Serve(addresses[h.Name]+":6443", connect)
	}
	w.register("")
	return nil
}

// serving is the API server's certificate on the host; kubeadm makes it from the authority.
func serving(w *world, h *runnertest.Host) (pair tls.Certificate, ca string, err error) {
	const dir = "/etc/kubernetes/pki/"
	ca, _ = h.Get(dir + "ca.crt")
	crt, _ := h.Get(dir + "apiserver.crt")
	own, _ := h.Get(dir + "apiserver.key")
	if pair, err = tls.X509KeyPair([]byte(crt), []byte(own)); err == nil {
		return pair, ca, nil
	}
	pair, err = signed(w, h, dir+"ca", pki.APIServer(h.Name, []string{addresses[h.Name]}, "cluster.local", []netip.Prefix{netip.MustParsePrefix("10.233.0.0/18")}, endpoints...))
	return pair, ca, err
}

// signed is a certificate of the authority whose files on the host begin with a path.
func signed(w *world, h *runnertest.Host, authority string, spec pki.Spec) (tls.Certificate, error) {
	store := &pki.Store{Dir: w.TempDir()}
	at := filepath.Join(store.Dir, string(spec.CA))
	w.must(os.MkdirAll(at, 0o700))
	for _, ext := range []string{".crt", ".key"} {
		text, _ := h.Get(authority + ext)
		w.must(os.WriteFile(filepath.Join(at, "ca"+ext), []byte(text), 0o600))
	}
	p, err := store.Leaf(spec)
	if err != nil {
		return tls.Certificate{}, err
	}
	return *p.TLS(), nil
}

// down ends the API server of a host.
func (w *world) down(h *runnertest.Host) {
	w.mu.Lock()
	delete(w.servers, h.Name)
	w.mu.Unlock()
	for _, from := range w.hosts {
		from.Serve(addresses[h.Name]+":6443", nil)
	}
}

package resource

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/connector/sshtest"
	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// private is a registry with TLS that one user may use, and what it was asked to take.
type private struct {
	Registry
	mu   sync.Mutex
	sent map[string]int // requests by method
}

func newPrivate(t *testing.T) *private {
	return servePrivate(t, registry.New(registry.Logger(log.New(io.Discard, "", 0))))
}

func servePrivate(t *testing.T, inner http.Handler) *private {
	t.Helper()
	p := &private{sent: map[string]int{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "nodes" || password != "hunter2" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		p.mu.Lock()
		p.sent[r.Method]++
		p.mu.Unlock()
		inner.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that do not trust it say so themselves
	server.StartTLS()
	t.Cleanup(server.Close)
	p.Registry = Registry{
		Name: "example.com:5000", Address: server.Listener.Addr().String(), User: "nodes", Password: secret.New("hunter2"),
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	return p
}

// writes counts the requests that bring something, and forgets them.
func (p *private) writes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.sent[http.MethodPut] + p.sent[http.MethodPost] + p.sent[http.MethodPatch]
	clear(p.sent)
	return n
}

const nginx = "docker.io/library/nginx:1.30.4"

// TestPush fills a registry from the store, adds to it, and looks into it.
func TestPush(t *testing.T) {
	u := resourcetest.New()
	defer u.Close()
	s, err := Open(t.TempDir(), source.Config{Mirrors: u.Sources()})
	if err != nil {
		t.Fatal(err)
	}
	pull := func(ref, arch string) {
		t.Helper()
		if err := s.Pull(t.Context(), ref, arch, nil); err != nil {
			t.Fatal(err)
		}
	}
	pull(pause, "amd64")
	pull(nginx, "amd64")
	r := newPrivate(t)
	if err := r.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	lacks := func(want ...string) {
		t.Helper()
		if got, err := s.Lacks(t.Context(), r.Registry, pause, nginx); err != nil || !slices.Equal(got, want) {
			t.Errorf("lacks %v, %v; want %v", got, err, want)
		}
	}
	lacks(pause, nginx)
	var done, total int64
	push := func() {
		t.Helper()
		if err := s.Push(t.Context(), r.Registry, func(d, of int64) { done, total = d, of }, pause, nginx); err != nil {
			t.Fatal(err)
		}
	}
	push()
	if done != total || total == 0 {
		t.Errorf("%d of %d bytes", done, total)
	}
	lacks()
	r.writes()
	push()
	if n := r.writes(); n > 0 {
		t.Errorf("%d requests brought what was there", n)
	}
	manifest, err := s.Digest(pause, "amd64")
	top, err2 := s.TopDigest(t.Context(), pause)
	if err := errors.Join(err, err2); err != nil || top != manifest {
		t.Errorf("of one architecture: %s, want %s, %v", top, manifest, err)
	}

	pull(pause, "arm64")
	lacks(pause)
	push()
	if n := r.writes(); n == 0 || n > 8 { // two blobs of three requests at most, a manifest and an index
		t.Errorf("%d requests for a second architecture", n)
	}
	lacks()
	list, err := r.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if top, err = s.TopDigest(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(list[0].Repository, list[0].Tag, list[0].Archs, list[1].Repository, list[1].Tag, list[1].Archs, list[1].Digest == top)
	if want := fmt.Sprint("docker.io/library/nginx", "1.30.4", []string(nil), "registry.k8s.io/pause", "3.10", []string{"amd64", "arm64"}, true); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if list[1].Size <= list[0].Size || list[0].Size == 0 {
		t.Errorf("sizes: %+v", list)
	}
	if all, err := s.Images(); err != nil || !slices.Equal(all, []string{nginx, pause}) {
		t.Errorf("%v, %v", all, err)
	}
}

// TestPushFails shows what is told where nothing can be pushed.
func TestPushFails(t *testing.T) {
	u := resourcetest.New()
	defer u.Close()
	s, err := Open(t.TempDir(), source.Config{Mirrors: u.Sources()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Pull(t.Context(), pause, "amd64", nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil  func(*Registry)
		ref    string
		error  string
		advice bool
	}{
		"another password":  {func(r *Registry) { r.Password = secret.New("hunter3") }, pause, "does not let user nodes in", true},
		"another authority": {func(r *Registry) { r.CA = nil }, pause, "certificate", false},
		"nobody there":      {func(r *Registry) { r.Address = "127.0.0.1:1" }, pause, "connection refused", true},
		"not in the store":  {func(*Registry) {}, nginx, "is not in the store", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPrivate(t)
			c.spoil(&r.Registry)
			err := s.Push(t.Context(), r.Registry, nil, c.ref)
			if fault.IsTransient(err) != (name == "nobody there") {
				t.Errorf("transient: %t", fault.IsTransient(err))
			}
			if err == nil || !strings.Contains(err.Error(), c.error) || strings.Contains(err.Error(), "hunter") || (fault.Advice(err) != "") != c.advice {
				t.Errorf("%v, advice %q", err, fault.Advice(err))
			}
		})
	}
	d, err := s.Digest(pause, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.blobPath(digest.Digest(d)), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Push(t.Context(), newPrivate(t).Registry, nil, pause); err == nil {
		t.Error("a damaged image was pushed")
	}
}

// withImages is a store that has two images.
func withImages(t *testing.T) *Store {
	t.Helper()
	u := resourcetest.New()
	defer u.Close()
	s, err := Open(t.TempDir(), source.Config{Mirrors: u.Sources()})
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{pause, nginx} {
		if err := s.Pull(t.Context(), ref, "amd64", nil); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestPushOverSSH pushes through the connection to a registry's host, which is lost once in the middle.
func TestPushOverSSH(t *testing.T) {
	s := withImages(t)
	server := sshtest.Start(t, sshtest.Config{})
	host, err := connector.SSH(t.Context(), connector.SSHConfig{
		Name: "node1", Address: server.Address, Port: server.Port, User: "root", KnownHosts: filepath.Join(t.TempDir(), "known_hosts"), Password: secret.New("any"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	r := newPrivate(t)
	r.Dial = host.Dial
	var lost atomic.Bool
	err = s.Push(t.Context(), r.Registry, func(done, _ int64) {
		if done > 0 && !lost.Swap(true) {
			server.Drop()
		}
	}, pause, nginx)
	if !lost.Load() || err != nil && !fault.IsTransient(err) { // net/http itself tries again what it can
		t.Errorf("the connection was lost: %v", err)
	}
	if err := s.Push(t.Context(), r.Registry, nil, pause, nginx); err != nil {
		t.Fatal(err)
	}
	if lacks, err := s.Lacks(t.Context(), r.Registry, pause, nginx); err != nil || lacks != nil {
		t.Errorf("lacks %v, %v", lacks, err)
	}
}

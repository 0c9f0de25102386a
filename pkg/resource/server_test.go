package resource

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/kubexm/kubexm/pkg/resource/source"
)

// upstream stands in for every host that files are published on (the file of
// https://HOST/PATH is /HOST/PATH) and, under /v2/, for a registry.
type upstream struct {
	*httptest.Server
	registry http.Handler

	mu    sync.Mutex
	files map[string][]byte
	fault func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
	asked []string
}

func newUpstream(t testing.TB) *upstream {
	u := &upstream{files: map[string][]byte{}, registry: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	u.Server = httptest.NewServer(u)
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if host, _, _ := net.SplitHostPort(r.Host); host != "127.0.0.1" && !strings.HasPrefix(r.URL.Path, "/v2/") {
		r.URL.Path = "/" + r.Host + r.URL.Path // asked as the original
	}
	u.mu.Lock()
	content, ok := u.files[r.URL.Path]
	fault := u.fault
	u.asked = append(u.asked, strings.TrimSpace(path.Base(r.URL.Path)+" "+r.Header.Get("Range")+" "+r.Header.Get("If-Range")))
	u.mu.Unlock()
	switch {
	case fault != nil && fault(w, r):
	case strings.HasPrefix(r.URL.Path, "/v2/"):
		u.registry.ServeHTTP(w, r)
	case !ok:
		http.NotFound(w, r)
	default:
		w.Header().Set("ETag", etag(content))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

func etag(content []byte) string { return `"` + sumOf(content[:min(len(content), 4096)])[:8] + `"` }

// publish offers the artifact's file and its checksum, and returns the file's path on the server.
func (u *upstream) publish(t testing.TB, a Artifact, content []byte) string {
	t.Helper()
	c, err := find(a.Component)
	if err != nil {
		t.Fatal(err)
	}
	base := "/" + strings.TrimPrefix(a.expand(c.Base), "https://")
	u.mu.Lock()
	defer u.mu.Unlock()
	u.files[base+a.File] = content
	u.files[base+a.expand(c.Sums)] = fmt.Appendf(nil, "%s  %s\n", sumOf(content), a.File)
	return base + a.File
}

// move puts all files below a folder.
func (u *upstream) move(folder string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	moved := map[string][]byte{}
	for name, content := range u.files {
		moved[folder+name] = content
	}
	u.files = moved
}

// fail lets f answer requests for a path. It may decline.
func (u *upstream) fail(path string, f func(w http.ResponseWriter, r *http.Request) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fault = func(w http.ResponseWriter, r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, path) && f(w, r)
	}
}

// requests returns what was asked for since the last call: "name range condition".
func (u *upstream) requests() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := u.asked
	u.asked = nil
	return out
}

// cutter passes only so many bytes of a body, then breaks the connection.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) > c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left])
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// openStore returns a store that has one server as its mirror for all, sees no
// other machine, and does not wait long.
func openStore(t testing.TB, dir string, mirror *upstream) *Store {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Setenv("KXZONE", "")
	s, err := testStore(dir, mirror.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.source.Transport.CloseIdleConnections)
	return s
}

func testStore(dir, mirror string) (*Store, error) {
	refuse := func(_ context.Context, network, address string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New(address + " is outside of the test")}
	}
	s, err := Open(dir, source.Config{
		Mirrors:   map[string]string{"https://": mirror + "/", "registry.k8s.io": mirror + "/registry.k8s.io"},
		Transport: &http.Transport{DialTLSContext: refuse},
	})
	if err == nil {
		s.retry.Pause, s.retry.Longest = time.Millisecond, 5*time.Millisecond
	}
	return s, err
}

// original lets the store reach u under the name of every host that is asked with TLS.
func original(s *Store, u *upstream) {
	s.source.Transport.DialTLSContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, u.Listener.Addr().String())
	}
}

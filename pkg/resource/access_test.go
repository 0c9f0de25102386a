package resource

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/golden"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// mirror is a server for everything, as a company has it.
type mirror struct {
	*httptest.Server
	*upstream
	other   *httptest.Server // serves the same
	proxied atomic.Int64     // requests through proxy
	proxy   *httptest.Server
	asked   atomic.Int64
	leaked  atomic.Bool // a login came to other
	docker  string      // content of docker's config.json; empty: there is none
	ca      string      // file
}

var quiet = log.New(io.Discard, "", 0)

// kind is what a mirror wants before it serves.
type kind func(m *mirror, next http.Handler) http.Handler

func open(_ *mirror, next http.Handler) http.Handler { return next }

func logIn(_ *mirror, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, word, _ := r.BasicAuth(); name == "me" && word == "hush" {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
	})
}

// tokens gives those out for a login, as large registries do. Files want the login.
func tokens(m *mirror, next http.Handler) http.Handler {
	files := logIn(m, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/service/token":
			logIn(m, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"token":"abc"}`) })).ServeHTTP(w, r)
		case !strings.HasPrefix(r.URL.Path, "/v2/"):
			files.ServeHTTP(w, r)
		case r.Header.Get("Authorization") == "Bearer abc":
			next.ServeHTTP(w, r)
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+m.Server.URL+`/service/token",service="test"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
}

// moved wants a login, and sends on to another server for what is large.
func moved(m *mirror, next http.Handler) http.Handler {
	return logIn(m, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/manifests/") {
			next.ServeHTTP(w, r)
			return
		}
		http.Redirect(w, r, m.other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
}

func forbidden(*mirror, http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
}

// newMirror starts a mirror, and a proxy that wants a login if word is not empty.
func newMirror(t *testing.T, is kind, tls bool, word string) *mirror {
	m := &mirror{upstream: newUpstream(t)}
	front := is(m, m.upstream)
	m.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.asked.Add(1)
		front.ServeHTTP(w, r)
	}))
	m.Server.Config.ErrorLog = quiet
	if tls {
		m.Server.StartTLS()
		m.ca = filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(m.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Server.Certificate().Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		m.Server.Start()
	}
	m.other = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			m.leaked.Store(true)
		}
		m.upstream.ServeHTTP(w, r)
	}))
	m.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.Header.Get("Proxy-Authorization"), word) {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		m.proxied.Add(1)
		if r.Method == http.MethodConnect {
			tunnel(w, r)
			return
		}
		(&httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, ErrorLog: quiet}).ServeHTTP(w, r)
	}))
	for _, s := range []*httptest.Server{m.Server, m.other, m.proxy} {
		t.Cleanup(s.Close)
	}
	return m
}

func tunnel(w http.ResponseWriter, r *http.Request) {
	to, err := net.Dial("tcp", r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer to.Close()
	from, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer from.Close()
	fmt.Fprint(from, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(to, from); to.Close() }()
	_, _ = io.Copy(from, to)
}

// store is one that reaches the mirror, and nothing outside of the test.
func (m *mirror) store(t *testing.T, base *http.Transport, access map[string]source.Access) *Store {
	t.Helper()
	docker := t.TempDir()
	if m.docker != "" {
		if err := os.WriteFile(filepath.Join(docker, "config.json"), []byte(m.docker), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("DOCKER_CONFIG", docker)
	t.Setenv("KXZONE", "")
	base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !strings.HasPrefix(address, "127.0.0.1:") {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New(address + " is outside of the test")}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	registry := strings.TrimPrefix(m.Server.URL, "https://") + "/registry.k8s.io"
	s, err := Open(t.TempDir(), source.Config{Mirrors: map[string]string{"https://": m.Server.URL + "/", "registry.k8s.io": registry}, Access: access, Transport: base})
	if err != nil {
		t.Fatal(err)
	}
	resourcetest.SigningKey(t, s.dir)
	s.retry.Pause, s.retry.Longest = time.Millisecond, 2*time.Millisecond
	t.Cleanup(base.CloseIdleConnections)
	return s
}

// newTransport is the one that a source makes itself where it is given none.
func newTransport(t *testing.T) *http.Transport {
	t.Helper()
	c, err := source.New(source.Config{Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	return c.Transport
}

// TestAccess gets a file, an image and packages, and their size, from servers that want something.
func TestAccess(t *testing.T) {
	right, wrong := source.Access{Username: "me", Password: secret.New("hush")}, source.Access{Username: "me", Password: secret.New("hush-hush")}
	const tls, plain = true, false
	for _, tt := range []struct {
		name    string
		is      kind
		tls     bool
		access  source.Access // of the mirror; Proxy and CAFile "yes": those of the test
		fails   bool
		proxied bool
	}{
		{"a login, right", logIn, plain, right, false, false},
		{"a login, none", logIn, plain, source.Access{}, true, false},
		{"a login, wrong", logIn, plain, wrong, true, false},
		{"a login, not enough", forbidden, plain, right, true, false},
		{"tokens, right", tokens, plain, right, false, false},
		{"tokens, wrong", tokens, plain, wrong, true, false},
		{"a login, and elsewhere none", moved, plain, right, false, false},
		{"an unknown CA", open, tls, source.Access{}, true, false},
		{"an unknown CA, named", open, tls, source.Access{CAFile: "yes"}, false, false},
		{"an unknown CA, named, and tokens", tokens, tls, source.Access{Username: "me", Password: secret.New("hush"), CAFile: "yes"}, false, false},
		{"a proxy", open, plain, source.Access{Proxy: "yes"}, false, true},
		{"a proxy, with TLS and a login", logIn, tls, source.Access{Username: "me", Password: secret.New("hush"), CAFile: "yes", Proxy: "yes"}, false, true},
		{"a proxy, and elsewhere too", moved, plain, source.Access{Username: "me", Password: secret.New("hush"), Proxy: "yes"}, false, true},
		{"a proxy that is down", open, plain, source.Access{Proxy: "down"}, true, false},
		{"a proxy that is down, with TLS", open, tls, source.Access{Proxy: "down"}, true, false},
		{"a proxy that wants another login", open, plain, source.Access{Proxy: "wrong"}, true, false},
		{"a proxy that wants another login, with TLS", open, tls, source.Access{Proxy: "wrong"}, true, false},
		{"a proxy for all but it", open, plain, source.Access{Proxy: "direct"}, false, false},
	} {
		for _, what := range []string{"file", "image", "packages"} {
			t.Run(tt.name+"/"+what, func(t *testing.T) {
				word := ""
				if tt.access.Proxy == "wrong" {
					word = "other"
				}
				m := newMirror(t, tt.is, tt.tls, word)
				a := tt.access
				if a.CAFile != "" {
					a.CAFile = m.ca
				}
				base := newTransport(t)
				base.Proxy = nil
				switch a.Proxy {
				case "direct":
					base.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:1"})
				case "yes", "wrong":
					a.Proxy = strings.Replace(m.proxy.URL, "//", "//me:hush@", 1)
				case "down":
					a.Proxy = "http://me:hush@127.0.0.1:1"
				}
				s := m.store(t, base, map[string]source.Access{m.Server.URL: a, "https://elsewhere.example.com": wrong})
				size, err := m.get(t, s, what)
				if (err != nil) != tt.fails || (size >= 0) == tt.fails {
					t.Errorf("got %v, size %d", err, size)
				}
				if tt.fails {
					text := told(err, m.Server.URL, "MIRROR", strings.TrimPrefix(strings.TrimPrefix(m.Server.URL, "https://"), "http://"), "MIRROR",
						strings.TrimPrefix(m.proxy.URL, "http://"), "PROXY", s.dir, "STORE")
					golden.Equal(t, text)
					if strings.Contains(text, "hush") {
						t.Error("the password shows")
					}
				}
				if n := m.asked.Load(); tt.fails && n > 4 || !tt.fails && n == 0 {
					t.Errorf("the mirror was asked %d times", n)
				}
				if m.leaked.Load() || (m.proxied.Load() > 0) != tt.proxied {
					t.Errorf("a login went astray: %v, %d requests through the proxy", m.leaked.Load(), m.proxied.Load())
				}
			})
		}
	}
}

// Logins of docker are for images, where the configuration has none.
func TestDockerLogIn(t *testing.T) {
	for _, is := range []kind{logIn, tokens} {
		m := newMirror(t, is, false, "")
		host := strings.TrimPrefix(m.Server.URL, "http://")
		m.docker = fmt.Sprintf(`{"auths":{%q:{"auth":"bWU6aHVzaA=="}}}`, host) // me:hush
		s := m.store(t, newTransport(t), map[string]source.Access{"https://elsewhere.example.com": {Username: "you", Password: secret.New("other")}})
		if size, err := m.get(t, s, "image"); err != nil || size < 0 {
			t.Errorf("an image: %v, size %d", err, size)
		}
		if _, err := m.get(t, s, "file"); err == nil || !strings.Contains(err.Error(), "401 Unauthorized") {
			t.Errorf("a file: %v", err)
		}
	}
}

// get asks for the size of a file, of an image or of packages, and fetches them.
func (m *mirror) get(t *testing.T, s *Store, what string) (int64, error) {
	if what == "packages" {
		return m.packages(t, s)
	}
	a := mustNew(t, "kubelet", "1.99.7")
	m.publish(t, a, program)
	m.pushIndex(t, "registry.k8s.io/pause", "3.10")
	item := Item{Artifact: a}
	if what == "image" {
		item = ImageItem(pause, "amd64")
	}
	stock, err := s.Look(t.Context(), []Item{item}, true)
	if err != nil {
		t.Fatal(err)
	}
	if what == "image" {
		err = s.Pull(t.Context(), pause, "amd64", nil)
	} else {
		_, err = s.Fetch(t.Context(), a, nil)
	}
	if there, lookErr := s.Look(t.Context(), []Item{item}, false); lookErr != nil || there[0].There != (err == nil) {
		t.Errorf("afterwards: %+v, %v", there, lookErr)
	}
	return stock[0].Size, err
}

// TestPlacesInOrder shows whom a file and an image are asked of: the mirror of its prefix,
// that of the zone, the original. What the tag of an image means is asked of the zone's mirror last.
func TestPlacesInOrder(t *testing.T) {
	for what, want := range map[string][]string{
		"file":  {"mirror.example.com", "files.m.daocloud.io", "dl.k8s.io"},
		"image": {"mirror.example.com", "registry.k8s.io", "m.daocloud.io"},
	} {
		m := &mirror{upstream: newUpstream(t)}
		s, err := Open(t.TempDir(), source.Config{Zone: "cn", Transport: newTransport(t), Mirrors: map[string]string{
			"https://dl.k8s.io/": "https://mirror.example.com/k8s", "registry.k8s.io": "mirror.example.com/k8s",
		}})
		if err != nil {
			t.Fatal(err)
		}
		original(s, m.upstream)
		t.Cleanup(s.source.Transport.CloseIdleConnections)
		m.pushIndex(t, "pause", "3.10")
		var hosts []string
		var asked sync.Mutex
		m.fail("", func(w http.ResponseWriter, r *http.Request) bool {
			asked.Lock() // blobs are asked for side by side
			if !slices.Contains(hosts, r.Host) {
				hosts = append(hosts, r.Host)
			}
			asked.Unlock()
			if missing := !strings.HasSuffix(r.Host, "k8s.io"); missing {
				http.NotFound(w, r)
				return true
			}
			return false
		})
		a := mustNew(t, "kubelet", "1.99.7")
		m.publish(t, a, program)
		if a.SHA256 = sumOf(program); what == "image" {
			err = s.Pull(t.Context(), pause, "amd64", nil)
		} else {
			_, err = s.Fetch(t.Context(), a, nil)
		}
		if diff := cmp.Diff(want, hosts); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
		}
	}
}

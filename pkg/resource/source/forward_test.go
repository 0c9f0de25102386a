package source

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/util/golden"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// TestForward reads from a server that wants a login, as apt does: without one.
func TestForward(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, word, _ := r.BasicAuth()
		switch {
		case name != "me" || word != "hush":
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasPrefix(r.URL.Path, "/debian/dists/"):
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader("an index"))
		case r.URL.Path == "/debian/secret":
			w.WriteHeader(http.StatusForbidden)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	c, err := New(Config{Access: map[string]Access{server.URL: {Username: "me", Password: secret.New("hush")}}})
	if err != nil {
		t.Fatal(err)
	}
	covered, other := server.URL+"/debian/", "http://other.example.org/debian/"
	f, err := c.Forward(t.Context(), []string{covered, other, covered})
	if err != nil {
		t.Fatal(err)
	}
	if at := f.URL(other); at != other {
		t.Errorf("what no entry covers is asked for at %s", at)
	}
	for _, tt := range []struct {
		path, part string
		status     int
		text       string
	}{
		{"dists/a%2Bb/InRelease", "", http.StatusOK, "an index"},
		{"dists/bookworm/InRelease", "bytes=3-", http.StatusPartialContent, "index"},
		{"dists/bookworm/InRelease", "bytes=99-", http.StatusRequestedRangeNotSatisfiable, "416"},
		{"nothing", "", http.StatusNotFound, "404 Not Found"},
		{"secret", "", http.StatusForbidden, "403 Forbidden"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL(covered)+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.part != "" {
			req.Header.Set("Range", tt.part)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(text), tt.text) {
			t.Errorf("%s: %s %q, %v", tt.path, resp.Status, text, err)
		}
	}
	wrong := errors.New("apt-get failed")
	err = f.Close(wrong)
	if answer, ok := errors.AsType[*StatusError](err); !errors.Is(err, wrong) || !ok || answer.Code != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("the first refusal but for 404 is not told: %v", err)
	}
	if err := f.Close(nil); err != nil {
		t.Errorf("what went well: %v", err)
	}
}

// TestForwardCut has a server that breaks off in the middle of a file.
func TestForwardCut(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10000")
		_, _ = io.WriteString(w, strings.Repeat("x", 8192))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	c, err := New(Config{Access: map[string]Access{server.URL: {Proxy: "direct"}}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.Forward(t.Context(), []string{server.URL + "/debian/"})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL(server.URL+"/debian/")+"Packages", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a file that was cut short looks whole")
	}
	golden.Equal(t, strings.ReplaceAll(told(f.Close(errors.New("apt-get failed"))), server.URL, "MIRROR"))
}

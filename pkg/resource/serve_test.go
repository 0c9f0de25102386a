package resource

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/registry/remote"
)

// TestServe pulls an image with a client of registries: whole, by its tag and by its digest, of the architecture that is served.
func TestServe(t *testing.T) {
	u, s := gallery(t)
	mustPull(t, s, pause, "amd64", "arm64")
	u.Close()
	var done, total atomic.Int64
	served, err := s.Serve("arm64", func(d, of int64) { done.Store(d); total.Store(of) }, pause)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(served)
	defer server.Close()
	domain, rest, _ := strings.Cut(pause, "/")
	at := served.Mirror(strings.TrimPrefix(server.URL, "http://"), domain) + "/" + rest
	if served.Asked(pause) {
		t.Error("it was asked for before anybody did")
	}
	repo, err := remote.NewRepository(at[:strings.LastIndex(at, ":")])
	if err != nil {
		t.Fatal(err)
	}
	repo.PlainHTTP = true
	tag := at[strings.LastIndex(at, ":")+1:]
	top, err := oras.Copy(t.Context(), repo, tag, memory.New(), "", oras.DefaultCopyOptions) // which compares digests
	digest := top.Digest
	if want, _ := s.Digest(pause, "arm64"); err != nil || digest.String() != want {
		t.Errorf("pulled %s, want %s: %v", digest, want, err)
	}
	if _, err := oras.Copy(t.Context(), repo, digest.String(), memory.New(), "", oras.DefaultCopyOptions); err != nil {
		t.Error(err)
	}
	if !served.Asked(pause) || done.Load() == 0 || done.Load() > total.Load() {
		t.Errorf("asked for: %t; %d bytes of %d", served.Asked(pause), done.Load(), total.Load())
	}
	repository := strings.TrimPrefix(at[:strings.LastIndex(at, ":")], strings.TrimPrefix(server.URL, "http://"))
	secret, of, _ := strings.Cut(strings.TrimPrefix(repository, "/"), "/")
	for what, c := range map[string]struct {
		method, path string
		status       int
	}{
		"the protocol":   {"GET", "/v2/", 200},
		"head":           {"HEAD", "/v2" + repository + "/manifests/" + tag, 200},
		"push":           {"PUT", "/v2" + repository + "/manifests/" + tag, 404},
		"another tag":    {"GET", "/v2" + repository + "/manifests/latest", 404},
		"another secret": {"GET", "/v2/x" + secret + "/" + of + "/manifests/" + tag, 404},
		"no secret":      {"GET", "/v2/" + of + "/blobs/" + digest.String(), 404},
		"tags":           {"GET", "/v2" + repository + "/tags/list", 404},
		"something else": {"GET", "/etc/passwd", 404},
	} {
		q, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", what, resp.StatusCode, c.status)
		}
	}
	if _, err := s.Serve("arm64", nil, "registry.k8s.io/nothing:1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an image that is not in the store: %v", err)
	}
}

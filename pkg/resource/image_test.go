package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/content/oci"

	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/golden"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// put uploads to the registry and returns the descriptor.
func (u *upstream) put(t testing.TB, repo, kind, tag string, body []byte) ocispec.Descriptor {
	t.Helper()
	d := ocispec.Descriptor{MediaType: kind, Digest: digest.FromBytes(body), Size: int64(len(body))}
	method, url := http.MethodPost, fmt.Sprintf("%s/v2/%s/blobs/uploads/?digest=%s", u.URL, repo, d.Digest)
	if kind == ocispec.MediaTypeImageManifest || kind == ocispec.MediaTypeImageIndex {
		if tag == "" {
			tag = d.Digest.String()
		}
		method, url = http.MethodPut, fmt.Sprintf("%s/v2/%s/manifests/%s", u.URL, repo, tag)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	resp, err := u.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s %s: %s", method, url, resp.Status)
	}
	return d
}

// pushImage uploads an image with one layer of its own and one shared by all.
func (u *upstream) pushImage(t testing.TB, repo, arch, tag string) ocispec.Descriptor {
	t.Helper()
	config := fmt.Appendf(nil, `{"architecture":%q,"os":"linux","rootfs":{"type":"layers","diff_ids":[]}}`, arch)
	manifest := newManifest(
		u.put(t, repo, ocispec.MediaTypeImageConfig, "", config),
		u.put(t, repo, ocispec.MediaTypeImageLayer, "", noise(1, 300_000)),
		u.put(t, repo, ocispec.MediaTypeImageLayer, "", noise(uint64(len(path.Base(repo)+arch)), 200_000)),
	)
	d := u.put(t, repo, ocispec.MediaTypeImageManifest, tag, mustJSON(t, manifest))
	d.Platform = &ocispec.Platform{OS: "linux", Architecture: arch}
	return d
}

// pushIndex uploads an image for amd64 and arm64.
func (u *upstream) pushIndex(t testing.TB, repo, tag string) ocispec.Descriptor {
	t.Helper()
	index := newIndex([]ocispec.Descriptor{u.pushImage(t, repo, "amd64", ""), u.pushImage(t, repo, "arm64", "")})
	return u.put(t, repo, ocispec.MediaTypeImageIndex, tag, mustJSON(t, index))
}

func newManifest(config ocispec.Descriptor, layers ...ocispec.Descriptor) ocispec.Manifest {
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: config, Layers: layers}
	m.SchemaVersion = 2
	return m
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// noise returns bytes that do not compress, the same for the same seed.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = r.Read(b)
	return b
}

const pause = "registry.k8s.io/pause:3.10"

// gallery is a server with pause 3.10 and a store that has it for its registry.
func gallery(t *testing.T) (*upstream, *Store) {
	u := newUpstream(t)
	u.pushIndex(t, "registry.k8s.io/pause", "3.10")
	u.requests()
	return u, openStore(t, t.TempDir(), u)
}

func mustPull(t testing.TB, s *Store, ref string, arches ...string) {
	t.Helper()
	for _, arch := range arches {
		if err := s.Pull(t.Context(), ref, arch, nil); err != nil {
			t.Fatal(err)
		}
		if ok, err := s.Has(ref, arch); !ok || err != nil {
			t.Errorf("Has %s %s: %v, %v", ref, arch, ok, err)
		}
	}
}

func TestPull(t *testing.T) {
	u, s := gallery(t)
	last := int64(0)
	err := s.Pull(t.Context(), pause, "amd64", func(done, total int64) {
		if done < last || total < 500_000 || total > 501_000 {
			t.Errorf("progress: %d of %d after %d", done, total, last)
		}
		last = done
	})
	if err != nil || last < 500_000 {
		t.Fatalf("got %v, last progress %d", err, last)
	}
	if ok, err := s.Has(pause, "arm64"); ok || err != nil {
		t.Errorf("arm64 before it is pulled: %v, %v", ok, err)
	}
	mustPull(t, s, pause, "arm64")
	u.Close()
	mustPull(t, s, pause, "amd64", "arm64") // without a network

	text, err := os.ReadFile(s.lockPath())
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, string(text))
	amd, err := s.Digest(pause, "amd64")
	if err != nil || !strings.Contains(string(text), amd) {
		t.Errorf("Digest: %q, %v", amd, err)
	}
	nothingLeft(t, s)
}

// The layout is one that other tools read: an index of just the pulled architectures.
func TestLayout(t *testing.T) {
	u, s := gallery(t)
	u.pushImage(t, "registry.k8s.io/kube-proxy", "amd64", "v1.99.7")
	const proxy = "registry.k8s.io/kube-proxy:v1.99.7"
	mustPull(t, s, pause, "arm64", "amd64")
	mustPull(t, s, proxy, "amd64")
	layout, err := oci.NewFromFS(t.Context(), os.DirFS(string(s.layout())))
	if err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string][]string{pause: {"amd64", "arm64"}, proxy: {"amd64"}} {
		root, err := layout.Resolve(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		memory := memory.New() // a copy needs every blob to be there and right
		if err := oras.CopyGraph(t.Context(), layout, memory, root, oras.DefaultCopyGraphOptions); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
		var got []string
		if root.MediaType == ocispec.MediaTypeImageIndex {
			each, err := content.Successors(t.Context(), layout, root)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range each {
				got = append(got, d.Platform.Architecture)
			}
		} else {
			got = append(got, root.Platform.Architecture)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", ref, diff)
		}
	}
}

func TestPullInTrouble(t *testing.T) {
	own := digest.FromBytes(noise(uint64(len("pauseamd64")), 200_000))
	for _, tt := range []struct {
		name string
		set  func(t *testing.T, u *upstream, s *Store)
	}{
		{"a blob cut", func(t *testing.T, u *upstream, _ *Store) {
			var cut atomic.Bool
			u.fail("/blobs/"+own.String(), func(w http.ResponseWriter, r *http.Request) bool {
				if cut.CompareAndSwap(false, true) {
					u.registry.ServeHTTP(&cutter{w, 100_000}, r)
				} else if got := r.Header.Get("Range"); got != "bytes=100000-199999" {
					t.Errorf("Range: %q", got)
				}
				return false
			})
		}},
		{"a blob that is said to be longer than it is", func(_ *testing.T, u *upstream, _ *Store) {
			u.fail("/blobs/"+own.String(), func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Content-Length", "200010")
				_, _ = w.Write(noise(uint64(len("pauseamd64")), 200_000))
				return true
			})
		}},
		{"a manifest asked for too often", func(_ *testing.T, u *upstream, _ *Store) {
			var asked atomic.Int64
			u.fail("/manifests/3.10", func(w http.ResponseWriter, r *http.Request) bool {
				if asked.Add(1) > 1 {
					return false
				}
				status(429)(w, r)
				return true
			})
		}},
		{"a manifest overloaded", func(_ *testing.T, u *upstream, _ *Store) {
			var asked atomic.Int64
			u.fail("/manifests/3.10", func(w http.ResponseWriter, r *http.Request) bool {
				if asked.Add(1) > 2 {
					return false
				}
				status(503)(w, r)
				return true
			})
		}},
		{"a blob stalled", func(_ *testing.T, u *upstream, s *Store) {
			s.retry.Stall = 100 * time.Millisecond
			var asked atomic.Int64
			u.fail("/blobs/"+own.String(), func(_ http.ResponseWriter, r *http.Request) bool {
				if asked.Add(1) > 1 {
					return false
				}
				<-r.Context().Done()
				return true
			})
		}},
		{"the mirror down", func(t *testing.T, u *upstream, s *Store) {
			origin := newUpstream(t)
			origin.pushIndex(t, "pause", "3.10")
			original(s, origin)
			u.Close()
		}},
		{"the mirror without a blob", func(t *testing.T, u *upstream, s *Store) {
			origin := newUpstream(t)
			origin.pushIndex(t, "pause", "3.10")
			original(s, origin)
			u.fail("/blobs/"+own.String(), func(w http.ResponseWriter, r *http.Request) bool { status(404)(w, r); return true })
		}},
		{"a login", func(t *testing.T, u *upstream, s *Store) {
			u.fail("", func(w http.ResponseWriter, r *http.Request) bool {
				if name, word, _ := r.BasicAuth(); name == "me" && word == "hush" {
					return false
				}
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				w.WriteHeader(http.StatusUnauthorized)
				return true
			})
			from := s.source.Config
			from.Access = map[string]source.Access{u.URL: {Username: "me", Password: secret.New("hush")}}
			var err error
			if s.source, err = source.New(from); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := newUpstream(t)
			u.pushImage(t, "registry.k8s.io/pause", "arm64", "unused")
			u.pushIndex(t, "registry.k8s.io/pause", "3.10")
			s := openStore(t, t.TempDir(), u)
			tt.set(t, u, s)
			mustPull(t, s, pause, "amd64")
		})
	}
}

func TestPullFails(t *testing.T) {
	layer := digest.FromBytes(noise(1, 300_000))
	for _, tt := range []struct {
		name, ref, arch string
		set             func(u *upstream, s *Store)
	}{
		{"wrong blob", pause, "amd64", func(u *upstream, _ *Store) {
			u.fail("/blobs/"+layer.String(), func(w http.ResponseWriter, _ *http.Request) bool {
				_, _ = w.Write(noise(9, 300_000))
				return true
			})
		}},
		{"wrong manifest", pause, "amd64", func(u *upstream, _ *Store) {
			u.fail("", func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/manifests/sha256:") {
					return false
				}
				w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
				_, _ = w.Write([]byte(`{}`))
				return true
			})
		}},
		{"no such tag", "registry.k8s.io/pause:4", "amd64", nil},
		{"no such architecture", pause, "riscv64", nil},
		{"no registry in the name", "pause:3.10", "amd64", nil},
		{"no tag in the name", "registry.k8s.io/pause", "amd64", nil},
		{"offline", pause, "amd64", func(_ *upstream, s *Store) { s.source.Offline = true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u, s := gallery(t)
			if tt.set != nil {
				tt.set(u, s)
			}
			err := s.Pull(t.Context(), tt.ref, tt.arch, nil)
			golden.Equal(t, told(err, u.URL, "MIRROR", strings.TrimPrefix(u.URL, "http://"), "MIRROR", s.dir, "STORE"))
			if ok, err := s.Has(tt.ref, tt.arch); ok || err != nil {
				t.Errorf("Has: %v, %v", ok, err)
			}
			if _, err := s.Digest(tt.ref, tt.arch); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("Digest: %v", err)
			}
		})
	}
}

func TestPullHeals(t *testing.T) {
	u, s := gallery(t)
	mustPull(t, s, pause, "amd64")
	layer := s.blobPath(digest.FromBytes(noise(1, 300_000)))
	if err := os.WriteFile(layer, noise(9, 300_000), 0o644); err != nil {
		t.Fatal(err)
	}
	u.pushImage(t, "registry.k8s.io/pause", "amd64", "3.10") // the tag moves: the lock file holds
	before, _ := s.Digest(pause, "amd64")
	u.requests()
	mustPull(t, s, pause, "amd64")
	if after, _ := s.Digest(pause, "amd64"); after != before {
		t.Errorf("the digest went from %s to %s", before, after)
	}
	if got := strings.Join(u.requests(), "\n"); strings.Count(got, "sha256:") != 2 || strings.Contains(got, "3.10") { // manifest and layer
		t.Errorf("asked for:\n%s", got)
	}

	// A lock file alone is enough to get the same again.
	other := openStore(t, t.TempDir(), u)
	lock, err := os.ReadFile(s.lockPath())
	if err := errors.Join(err, os.WriteFile(other.lockPath(), lock, 0o644)); err != nil {
		t.Fatal(err)
	}
	mustPull(t, other, pause, "arm64")
	mustPull(t, other, pause, "amd64")
	if again, _ := other.Digest(pause, "amd64"); again != before {
		t.Errorf("from the lock file: %s, want %s", again, before)
	}
}

func TestPullSideBySide(t *testing.T) {
	u, s := gallery(t)
	refs := []string{pause}
	for _, name := range []string{"a", "bb", "ccc"} {
		u.pushIndex(t, "registry.k8s.io/"+name, "1")
		refs = append(refs, "registry.k8s.io/"+name+":1")
	}
	u.requests()
	var wg sync.WaitGroup
	for _, ref := range refs {
		for _, arch := range []string{"amd64", "arm64"} {
			wg.Go(func() {
				if err := s.Pull(t.Context(), ref, arch, nil); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	seen := map[string]int{}
	for _, r := range u.requests() {
		seen[r]++
	}
	shared := digest.FromBytes(noise(1, 300_000)).String()
	if seen[shared] != 1 {
		t.Errorf("the layer that all share was asked for %d times", seen[shared])
	}
	var index ocispec.Index
	text, err := os.ReadFile(filepath.Join(string(s.layout()), "index.json"))
	if err := errors.Join(err, json.Unmarshal(text, &index)); err != nil || len(index.Manifests) != len(refs) {
		t.Errorf("index.json: %v\n%s", err, text)
	}
}

// TestLyingRegistry has a mirror of a zone that serves an image of its own under a tag. What the publisher says counts, as long as it answers; what it
// does not have, no mirror makes up.
func TestLyingRegistry(t *testing.T) {
	publisher, mirror := newUpstream(t), newUpstream(t)
	said := publisher.pushIndex(t, "pause", "3.10").Digest
	mirror.pushIndex(t, "registry.k8s.io/pause", "3.10")
	config := mirror.put(t, "registry.k8s.io/pause", ocispec.MediaTypeImageConfig, "", []byte(`{"architecture":"amd64","os":"linux"}`))
	lie := mirror.put(t, "registry.k8s.io/pause", ocispec.MediaTypeImageManifest, "3.10", mustJSON(t, newManifest(config))).Digest
	for answers, want := range map[bool]digest.Digest{true: said, false: lie} {
		s := zoned(t, publisher, mirror, answers)
		mustPull(t, s, pause, "amd64")
		if l, err := s.readLock(); err != nil || l.Images[pause].Digest != want.String() {
			t.Errorf("the publisher answers: %v; got %s, %v", answers, l.Images[pause].Digest, err)
		}
	}
	layer := digest.FromBytes(noise(1, 300_000)).String()
	if slices.Contains(publisher.requests(), layer) || !slices.Contains(mirror.requests(), layer) {
		t.Error("a layer that the mirror has does not come from there")
	}
	refusals(t, publisher, func() error { return zoned(t, publisher, mirror, true).Pull(t.Context(), pause, "amd64", nil) })
}

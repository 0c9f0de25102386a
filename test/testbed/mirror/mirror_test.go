package mirror

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/kubexm/kubexm/test/testbed/build"
)

// get asks a server and returns status, headers and body.
func get(t *testing.T, url string, header ...string) (int, http.Header, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header, string(body), err
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFiles(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	write(t, filepath.Join(a, "dl.k8s.io/release/v1/kubelet"), "0123456789")
	write(t, filepath.Join(b, "dl.k8s.io/release/v1/kubectl"), "other tree")
	write(t, filepath.Join(filepath.Dir(b), "secret"), "outside")
	server := httptest.NewServer(Files{Trees: func() []string { return []string{a, b} }})
	defer server.Close()

	kubelet := server.URL + "/dl.k8s.io/release/v1/kubelet"
	status, header, body, err := get(t, kubelet)
	if status != 200 || body != "0123456789" || err != nil || header.Get("Content-Length") != "10" {
		t.Fatalf("%d %q %v %v", status, body, header, err)
	}
	tag := header.Get("ETag")
	for _, c := range []struct {
		url    string
		header []string
		status int
		body   string
	}{
		{kubelet, []string{"Range", "bytes=4-"}, 206, "456789"},
		{kubelet, []string{"Range", "bytes=4-", "If-Range", tag}, 206, "456789"},
		{kubelet, []string{"Range", "bytes=4-", "If-Range", `"another"`}, 200, "0123456789"},
		{kubelet, []string{"If-None-Match", tag}, 304, ""},
		{server.URL + "/dl.k8s.io/release/v1/kubectl", nil, 200, "other tree"},
		{server.URL + "/dl.k8s.io/release/v1/", nil, 404, "404 page not found\n"},
		{server.URL + "/dl.k8s.io/release/v2/kubelet", nil, 404, "404 page not found\n"},
		{server.URL + "/..%2f../secret", nil, 404, "404 page not found\n"},
	} {
		status, _, body, err := get(t, c.url, c.header...)
		if status != c.status || body != c.body || err != nil {
			t.Errorf("%s %v: %d %q %v, want %d %q", c.url, c.header, status, body, err, c.status, c.body)
		}
	}
}

func TestFaults(t *testing.T) {
	tree := t.TempDir()
	write(t, filepath.Join(tree, "file"), strings.Repeat("abc", 1000))
	var fault Fault
	server := httptest.NewServer(WithFaults(Files{Trees: func() []string { return []string{tree} }}, func(*http.Request) Fault { return fault }))
	defer server.Close()

	whole := strings.Repeat("abc", 1000)
	for _, c := range []struct {
		fault  Fault
		status int
		body   string
		broken bool
	}{
		{Fault{}, 200, whole, false},
		{Fault{Delay: 1}, 200, whole, false},
		{Fault{Status: 503}, 503, "Service Unavailable\n", false},
		{Fault{Corrupt: true}, 200, "`" + whole[1:], false},
		{Fault{CutAfter: 1000}, 200, whole[:1000], true},
	} {
		fault = c.fault
		status, _, body, err := get(t, server.URL+"/file")
		if status != c.status || body != c.body || (err != nil) != c.broken {
			t.Errorf("%+v: %d, %d bytes, %v; want %d, %d bytes", c.fault, status, len(body), err, c.status, len(c.body))
		}
	}
}

// images makes two images in a cache and returns it; the second is for two architectures.
func images(t *testing.T) (build.Cache, []Image) {
	t.Helper()
	dir := t.TempDir()
	files := func(name, text string) map[string]string {
		return map[string]string{name: write(t, filepath.Join(dir, text), text)}
	}
	list := []Image{
		{Ref: "registry.k8s.io/coredns/coredns:v1", Files: map[string]map[string]string{runtime.GOARCH: files("/coredns", "dns")}, Entrypoint: "/coredns", User: "65532:65532"},
		{
			Ref: "kubexm.test/probe:v1", Entrypoint: "/usr/bin/probe",
			Files: map[string]map[string]string{"another": files("/usr/bin/probe", "theirs"), runtime.GOARCH: files("/usr/bin/probe", "ours")},
		},
	}
	c := build.Cache{Dir: t.TempDir()}
	if err := Make(t.Context(), c, io.Discard, list); err != nil {
		t.Fatal(err)
	}
	return c, list
}

// A real registry client gets what was made, and the same from the same input.
func TestRegistry(t *testing.T) {
	cache, list := images(t)
	server := httptest.NewServer(Registry{Layout(cache)})
	defer server.Close()
	for n, want := range []struct {
		repository, media string
		archs             []string
	}{
		{"registry.k8s.io/coredns/coredns", "application/vnd.docker.distribution.manifest.list.v2+json", []string{runtime.GOARCH}},
		{"kubexm.test/probe", "application/vnd.oci.image.index.v1+json", []string{runtime.GOARCH, "another"}},
	} {
		repo, err := remote.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/" + want.repository)
		if err != nil {
			t.Fatal(err)
		}
		repo.PlainHTTP = true
		target := memory.New()
		root, err := oras.Copy(t.Context(), repo, "v1", target, "v1", oras.DefaultCopyOptions) // checks all digests
		if err != nil {
			t.Fatal(err)
		}
		if root.MediaType != want.media || root.ArtifactType != "" {
			t.Errorf("%s is %+v", want.repository, root)
		}
		var index v1.IndexManifest
		fetch(t, target, root, &index)
		if len(index.Manifests) != len(want.archs) {
			t.Fatalf("%+v", index)
		}
		layers := map[digest.Digest]bool{}
		for i, arch := range want.archs {
			if d := index.Manifests[i]; d.Platform.Architecture != arch || d.ArtifactType != "" {
				t.Errorf("%+v", d)
			}
			var manifest ocispec.Manifest
			fetch(t, target, descriptor(index.Manifests[i]), &manifest)
			layers[manifest.Layers[0].Digest] = true
			var config v1.ConfigFile
			fetch(t, target, manifest.Config, &config)
			if config.Architecture != arch || config.Config.Entrypoint[0] != list[n].Entrypoint || config.Config.User != list[n].User {
				t.Errorf("%s: %+v", config.Architecture, config.Config)
			}
		}
		if len(layers) != len(want.archs) {
			t.Errorf("%s has the same programs for %v", want.repository, want.archs)
		}
		if status, _, body, err := get(t, server.URL+"/v2/"+want.repository+"/tags/list"); status != 200 || !strings.Contains(body, `"tags":["v1"]`) {
			t.Errorf("%d %s %v", status, body, err)
		}
	}

	var out bytes.Buffer
	if err := Make(t.Context(), cache, &out, list); err != nil || out.Len() > 0 {
		t.Errorf("made again: %s %v", out.String(), err)
	}
	first, second := digests(cache), ""
	if err := os.RemoveAll(Layout(cache)); err != nil {
		t.Fatal(err)
	}
	if err := Make(t.Context(), cache, io.Discard, list); err != nil {
		t.Fatal(err)
	}
	if second = digests(cache); first != second {
		t.Errorf("the same input gave %s and %s", first, second)
	}
}

// fetch decodes what a descriptor points to.
func fetch(t *testing.T, from *memory.Store, d ocispec.Descriptor, into any) {
	t.Helper()
	b, err := content.FetchAll(t.Context(), from, d)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func descriptor(d v1.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: string(d.MediaType), Digest: digest.Digest(d.Digest.String()), Size: d.Size}
}

func digests(c build.Cache) string {
	var s []string
	for _, d := range (Registry{Layout(c)}).index() {
		s = append(s, d.Annotations[refName]+"@"+d.Digest.String())
	}
	return strings.Join(s, " ")
}

// An image that changes leaves no blobs of its past.
func TestReplace(t *testing.T) {
	cache, list := images(t)
	blobs := func() int {
		found, _ := filepath.Glob(filepath.Join(Layout(cache), "blobs/sha256/*"))
		return len(found)
	}
	before, first := blobs(), digests(cache)
	list[1].Files["another"]["/usr/bin/probe"] = write(t, filepath.Join(t.TempDir(), "new"), "newer")
	if err := Make(t.Context(), cache, io.Discard, list); err != nil {
		t.Fatal(err)
	}
	if after := blobs(); after != before {
		t.Errorf("%d blobs, then %d", before, after)
	}
	if now := digests(cache); strings.Count(now, "@") != 2 || now == first {
		t.Errorf("%s became %s", first, now)
	}
}

func TestRegistryErrors(t *testing.T) {
	cache, _ := images(t)
	server := httptest.NewServer(Registry{Layout(cache)})
	defer server.Close()
	var layer v1.Hash
	for _, d := range (Registry{Layout(cache)}).index() {
		layer = d.Digest
	}
	for _, c := range []struct {
		path   string
		header []string
		status int
		body   string // part of it
	}{
		{"/v2/", nil, 200, "{}"},
		{"/v2/kubexm.test/probe/manifests/v2", nil, 404, "MANIFEST_UNKNOWN"},
		{"/v2/kubexm.test/nothing/tags/list", nil, 404, "NAME_UNKNOWN"},
		{"/v2/kubexm.test/probe/blobs/sha256:" + strings.Repeat("0", 64), nil, 404, "BLOB_UNKNOWN"},
		{"/v2/kubexm.test/probe/blobs/sha256:nonsense", nil, 400, "DIGEST_INVALID"},
		{"/v2/kubexm.test/probe/manifests/" + layer.String(), nil, 200, `"manifests"`},
		{"/v2/kubexm.test/probe/blobs/" + layer.String(), []string{"Range", "bytes=0-0"}, 206, "{"},
		{"/elsewhere", nil, 404, "NAME_UNKNOWN"},
	} {
		status, _, body, err := get(t, server.URL+c.path, c.header...)
		if status != c.status || !strings.Contains(body, c.body) || err != nil {
			t.Errorf("%s: %d %s %v, want %d %s", c.path, status, body, err, c.status, c.body)
		}
	}
}

func TestEtcdFor(t *testing.T) {
	table, err := build.Table("../components")
	if err != nil {
		t.Fatal(err)
	}
	for tag, want := range map[string]string{"3.6.5-0": "etcd@3.6", "v3.7.1": "etcd@3.7", "3.5.24-0": "etcd"} {
		if got := etcdFor(table, tag); got != want {
			t.Errorf("%s: %s, want %s", tag, got, want)
		}
	}
}

// Who asks for a whole URL is given what is there; who asks for a path, what the server has.
func TestProxy(t *testing.T) {
	answer := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, text+r.URL.Path) })
	}
	far, near := httptest.NewServer(answer("far")), httptest.NewServer(WithProxy(answer("near")))
	defer far.Close()
	defer near.Close()
	if _, _, body, err := get(t, near.URL+"/a"); err != nil || body != "near/a" {
		t.Errorf("%q, %v", body, err)
	}
	at, err := url.Parse(near.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at)}}
	through, err := client.Get(far.URL + "/b")
	if err != nil {
		t.Fatal(err)
	}
	defer through.Body.Close()
	if body, err := io.ReadAll(through.Body); err != nil || string(body) != "far/b" {
		t.Errorf("%q, %v", body, err)
	}
}

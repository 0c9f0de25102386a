package resource

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"

	own "github.com/kubexm/kubexm/pkg/resource/registry"
)

// Served answers like a registry that has some images of the store for one architecture, for a runtime that can only pull. Their
// repositories lie below a path that nobody can guess.
//
// Facts: https://github.com/opencontainers/distribution-spec/blob/main/spec.md
type Served struct {
	store     *Store
	secret    string
	images    map[string]string             // their references, by "repository:tag"
	manifests map[string]ocispec.Descriptor // by reference
	blobs     map[digest.Digest]ocispec.Descriptor
	total     int64
	tell      Progress

	mu    sync.Mutex
	asked map[string]bool // references
	sent  int64
}

// Serve returns a registry of images of the store, which tells what it has sent.
func (s *Store) Serve(arch string, tell Progress, refs ...string) (*Served, error) {
	l, err := s.readLock()
	if err != nil {
		return nil, err
	}
	r := &Served{store: s, secret: strings.ToLower(rand.Text()), images: map[string]string{}, manifests: map[string]ocispec.Descriptor{}, blobs: map[digest.Digest]ocispec.Descriptor{}, tell: tell, asked: map[string]bool{}}
	for _, ref := range refs {
		place, err := registry.ParseReference(ref)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", ref, err)
		}
		all, err := s.blobs(l, ref, arch)
		if err != nil {
			return nil, err
		}
		r.images[r.repository(place.Registry)+"/"+place.Repository+":"+place.Reference], r.manifests[ref] = ref, all[0]
		for _, d := range all {
			r.blobs[d.Digest] = d
		}
	}
	for _, d := range r.blobs {
		r.total += d.Size
	}
	return r, nil
}

// Mirror is where the images of another registry are, at an address of this one.
func (r *Served) Mirror(address, of string) string { return address + "/" + r.repository(of) }

func (r *Served) repository(of string) string { return r.secret + "/" + own.RepositoryName(of) }

// Asked reports whether somebody has asked for an image by its name.
func (r *Served) Asked(ref string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[ref]
}

// ServeHTTP answers who pulls.
func (r *Served) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	path := strings.TrimPrefix(q.URL.Path, "/v2/")
	if path == "" {
		return // 200: the protocol is spoken here
	}
	words := strings.Split(path, "/")
	last := len(words) - 2
	if last < 1 || words[0] != r.secret || !slices.Contains([]string{http.MethodGet, http.MethodHead}, q.Method) {
		http.NotFound(w, q)
		return
	}
	kind, name := words[last], words[last+1]
	d, is := r.blobs[digest.Digest(name)]
	if kind == "manifests" && !is {
		ref := r.images[strings.Join(words[:last], "/")+":"+name]
		if d, is = r.manifests[ref]; is {
			r.mu.Lock()
			r.asked[ref] = true
			r.mu.Unlock()
		}
	}
	if !is || kind != "manifests" && kind != "blobs" {
		http.NotFound(w, q)
		return
	}
	r.send(w, q, d)
}

// send answers with a blob as it is: who pulls it compares its digest.
func (r *Served) send(w http.ResponseWriter, q *http.Request, d ocispec.Descriptor) {
	f, err := r.store.layout().Fetch(q.Context(), d)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", d.MediaType)
	w.Header().Set("Content-Length", strconv.FormatInt(d.Size, 10))
	w.Header().Set("Docker-Content-Digest", d.Digest.String())
	if q.Method == http.MethodGet {
		_, _ = io.CopyBuffer(counted{w, r}, f, make([]byte, 256<<10))
	}
}

// counted tells how much was written in all.
type counted struct {
	io.Writer
	of *Served
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.sent += int64(n)
	c.of.tell(min(c.of.sent, c.of.total), c.of.total) // what is pulled again does not count
	return n, err
}

package mirror

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// refName is the annotation that names an image in an OCI layout.
const refName = "org.opencontainers.image.ref.name"

// Registry serves the images of an OCI layout, read-only, as the distribution
// API: the image registry.k8s.io/pause:3.10.2 is the repository
// registry.k8s.io/pause with the tag 3.10.2. Blobs support ranges.
type Registry struct {
	Layout string // directory
}

func (g Registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Docker-Distribution-API-Version", "registry/2.0")
	rest, ok := strings.CutPrefix(r.URL.Path, "/v2/")
	switch name, kind, what := splitPath(rest); {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "this registry is read-only")
	case ok && rest == "":
		w.Write([]byte("{}"))
	case ok && kind == "manifests":
		g.manifest(w, r, name, what)
	case ok && kind == "blobs":
		g.blob(w, r, what, "application/octet-stream", "BLOB_UNKNOWN")
	case ok && kind == "tags" && what == "list":
		g.tags(w, name)
	default:
		refuse(w, http.StatusNotFound, "NAME_UNKNOWN", r.URL.Path)
	}
}

// splitPath takes "library/nginx/manifests/1.2" apart.
func splitPath(p string) (name, kind, what string) {
	parts := strings.Split(p, "/")
	if len(parts) < 3 {
		return "", "", ""
	}
	n := len(parts)
	return strings.Join(parts[:n-2], "/"), parts[n-2], parts[n-1]
}

func (g Registry) manifest(w http.ResponseWriter, r *http.Request, name, reference string) {
	if strings.Contains(reference, ":") {
		g.blob(w, r, reference, "", "MANIFEST_UNKNOWN")
		return
	}
	for _, d := range g.index() {
		if d.Annotations[refName] == name+":"+reference {
			g.blob(w, r, d.Digest.String(), d.MediaType, "MANIFEST_UNKNOWN")
			return
		}
	}
	refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN", name+":"+reference)
}

// blob serves one file of the layout. An empty media type is taken from the
// file itself: it is a manifest.
func (g Registry) blob(w http.ResponseWriter, r *http.Request, digest string, media types.MediaType, unknown string) {
	h, err := v1.NewHash(digest)
	if err != nil {
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID", digest)
		return
	}
	file, info := openFile(filepath.Join(g.Layout, "blobs", h.Algorithm, h.Hex))
	if file == nil {
		refuse(w, http.StatusNotFound, unknown, digest)
		return
	}
	defer file.Close()
	if media == "" {
		var m struct{ MediaType types.MediaType }
		if err := json.NewDecoder(file).Decode(&m); err != nil {
			refuse(w, http.StatusNotFound, unknown, digest)
			return
		}
		media = m.MediaType
	}
	w.Header().Set("Content-Type", string(media))
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("ETag", `"`+digest+`"`)
	http.ServeContent(w, r, "", info.ModTime(), file)
}

func (g Registry) tags(w http.ResponseWriter, name string) {
	list := struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}{name, nil}
	for _, d := range g.index() {
		if tag, ok := strings.CutPrefix(d.Annotations[refName], name+":"); ok {
			list.Tags = append(list.Tags, tag)
		}
	}
	if list.Tags == nil {
		refuse(w, http.StatusNotFound, "NAME_UNKNOWN", name)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(list)
}

// index lists the images; it is empty when none have been made.
func (g Registry) index() []v1.Descriptor {
	path, err := layout.FromPath(g.Layout)
	if err != nil {
		return nil
	}
	index, err := path.ImageIndex()
	if err != nil {
		return nil
	}
	m, err := index.IndexManifest()
	if err != nil {
		return nil
	}
	return m.Manifests
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, code, message)
}

// removeUnused deletes blobs that no image of the layout needs any more.
func removeUnused(path layout.Path) error {
	unused, err := path.GarbageCollect()
	if err != nil {
		return fmt.Errorf("looking for unused blobs: %w", err)
	}
	for _, h := range unused {
		if err := path.RemoveBlob(h); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("removing unused blobs: %w", err)
		}
	}
	return nil
}

// Package mirror serves what the testbed has built the way the world serves
// it: files under the paths of their projects' download places, and images in
// an OCI registry. It can misbehave on request, for tests.
package mirror

import (
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Files serves the union of directory trees. The first element of a path is
// the host that the rest comes from in the real world:
// https://dl.k8s.io/release/... is /dl.k8s.io/release/... here. It supports
// ranges and entity tags.
type Files struct {
	Trees func() []string // asked for each request, so that new builds appear
}

func (f Files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	name := filepath.FromSlash(strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/"))
	for _, tree := range f.Trees() {
		if file, info := openFile(filepath.Join(tree, name)); file != nil {
			defer file.Close()
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("ETag", fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()))
			http.ServeContent(w, r, "", info.ModTime(), file)
			return
		}
	}
	http.NotFound(w, r)
}

// openFile opens a regular file; file is nil when there is none.
func openFile(name string) (file *os.File, info os.FileInfo) {
	file, err := os.Open(name)
	if err != nil {
		return nil, nil
	}
	if info, err = file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, nil
	}
	return file, info
}

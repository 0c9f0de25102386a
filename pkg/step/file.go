package step

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/diff"
)

// Content is the content of a file; it marshals as its digest, so that plans
// hold no secrets.
type Content []byte

// MarshalJSON gives the digest.
func (c Content) MarshalJSON() ([]byte, error) {
	return json.Marshal(fmt.Sprintf("sha256:%x", sha256.Sum256(c)))
}

// Writer is a step that writes files whose content is known before any host is asked
// for more than its facts.
type Writer interface {
	Step
	// Writes returns the files, of a Block the lines between its marks.
	Writes() ([]File, error)
}

// File ensures that a file has the given content, permissions and owner. A
// file that only its owner may read is taken for a secret: no diff shows it.
type File struct {
	Path    string
	Content Content
	Mode    fs.FileMode // permission bits
	Owner   string      `json:",omitempty"` // "user:group"; empty: root:root
	Reread  bool        `json:"-"`          // programs that have read it notice a change by themselves, or none has: Digest leaves its content out

	edit string // see runner.File
}

func (f File) String() string { return "file " + f.Path }

// sum is the SHA-256 of the content.
func (f File) sum() string { return fmt.Sprintf("%x", sha256.Sum256(f.Content)) }

// Writes is the file itself.
func (f File) Writes() ([]File, error) { return []File{f}, nil }

// Precheck reads the file.
func (f File) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	return Files{List: []File{f}}.Precheck(ctx, r)
}

// Files ensures several files in one round trip.
type Files struct {
	What string // "etcd certificates"
	List []File
	Also []Command `json:",omitempty"` // looked at in the same round trip, and run once the files are there
}

func (f Files) String() string { return "files " + f.What }

// Writes is the list.
func (f Files) Writes() ([]File, error) { return f.List, nil }

// Owns is the files, and what the commands note.
func (f Files) Owns() ([]string, error) {
	also, err := Commands{List: f.Also}.Owns()
	return append(pathsOf(f.List), also...), err
}

// Precheck reads all files.
func (f Files) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	also := Commands{What: f.String(), List: f.Also}
	old, out, err := r.Look(ctx, also.probes(), f.paths()...)
	if err != nil {
		return nil, err
	}
	commands, err := also.change(r, out)
	if err != nil {
		return nil, err
	}
	return f.change(r, old).then(commands), nil
}

// change closes the gap to files as they are on the host.
func (f Files) change(r *runner.Runner, old map[string]runner.File) *Change {
	g := f.gap(old)
	if g.put == nil {
		return nil
	}
	var restarts []string
	for _, was := range g.back {
		if dir, name := path.Split(was.Path); dir == runner.ManifestDir+"/" { // the kubelet's
			restarts = append(restarts, strings.TrimSuffix(name, ".yaml"))
		}
	}
	return &Change{
		Diff: g.diff, Restarts: restarts,
		Run:      func(ctx context.Context) error { return r.WriteFiles(ctx, g.put...) },
		Rollback: func(ctx context.Context) error { return g.rollBack(ctx, r) },
	}
}

func (f Files) paths() []string {
	paths := make([]string, len(f.List))
	for i, w := range f.List {
		paths[i] = w.Path
	}
	return paths
}

// gap is what differs between files on a host and those that are wanted.
type gap struct {
	diff  string
	put   []runner.File // to be written; nil: nothing differs
	back  []runner.File // as they were
	added []string      // were not there
}

func (f Files) gap(old map[string]runner.File) (g gap) {
	for _, w := range f.List {
		o, exists := old[w.Path]
		want := w.file()
		if exists && bytes.Equal(o.Data, want.Data) && o.Mode == want.Mode && o.Owner == want.Owner {
			continue
		}
		g.diff += fileDiff(o, want, exists)
		g.put = append(g.put, want)
		if exists {
			o.Edit = w.edit
			g.back = append(g.back, o)
		} else {
			g.added = append(g.added, w.Path)
		}
	}
	return g
}

func (g gap) rollBack(ctx context.Context, r *runner.Runner) error {
	if g.added != nil {
		if err := r.Remove(ctx, g.added...); err != nil {
			return err
		}
	}
	if g.back == nil {
		return nil
	}
	return r.WriteFiles(ctx, g.back...)
}

func (f File) file() runner.File {
	owner := f.Owner
	if owner == "" {
		owner = "root:root"
	}
	return runner.File{Path: path.Clean(f.Path), Data: f.Content, Mode: f.Mode.Perm(), Owner: owner, Edit: f.edit}
}

func fileDiff(old, want runner.File, exists bool) string {
	var head string
	if exists && (old.Mode != want.Mode || old.Owner != want.Owner) {
		head = fmt.Sprintf("%s: %04o %s -> %04o %s\n", want.Path, old.Mode, old.Owner, want.Mode, want.Owner)
	}
	if bytes.Equal(old.Data, want.Data) && exists {
		return head
	}
	if want.Mode&0o077 == 0 || exists && old.Mode&0o077 == 0 {
		return head + fmt.Sprintf("%s: %d -> %d bytes (content not shown: only its owner may read it)\n", want.Path, len(old.Data), len(want.Data))
	}
	return head + diff.Unified(want.Path, string(old.Data), string(want.Data))
}

package step

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/runner"
)

// LimitTransfer is the engine limit for steps that move much data.
const LimitTransfer = "transfer"

// Fetch ensures that an artifact is in the store of the control machine.
type Fetch struct {
	Artifact resource.Artifact
	Store    *resource.Store
}

func (f Fetch) String() string { return "download " + f.Artifact.String() }

// Precheck looks into the store; it asks no server.
func (f Fetch) Precheck(ctx context.Context, _ *runner.Runner) (*Change, error) {
	if _, err := f.Store.Programs(ctx, f.Artifact); err == nil {
		return nil, nil
	}
	return &Change{Diff: "+ " + f.Artifact.String(), Run: func(ctx context.Context) error {
		_, err := f.Store.Fetch(ctx, f.Artifact, Progress(ctx))
		if err != nil {
			return err
		}
		_, err = f.Store.Programs(ctx, f.Artifact)
		return err
	}}, nil
}

// Pull ensures that an image is in the store of the control machine.
type Pull struct {
	Image string
	Arch  string
	Store *resource.Store
}

func (p Pull) String() string { return "download " + p.Image + " " + p.Arch }

// Precheck looks into the store; it asks no registry.
func (p Pull) Precheck(ctx context.Context, _ *runner.Runner) (*Change, error) {
	if has, err := p.Store.Has(p.Image, p.Arch); has || err != nil {
		return nil, err
	}
	return &Change{
		Diff: "+ " + p.Image,
		Run: func(ctx context.Context) error {
			return p.Store.Pull(ctx, p.Image, p.Arch, Progress(ctx))
		},
	}, nil
}

// Programs says which programs of an artifact go into which directory of a host.
type Programs struct {
	Artifact resource.Artifact
	Dir      string
	Names    []string `json:",omitempty"` // nil: all of them
}

// Upload ensures programs from the store on a host: each is streamed once, with
// its checksum verified there, and left alone where it is right already. After a cut in
// the middle of one it goes on there.
type Upload struct {
	What     string
	Programs []Programs
	Store    *resource.Store
}

func (u Upload) String() string { return "upload " + u.What }

// Owns is the programs, by the names or the patterns of names that are known before anything is fetched.
func (u Upload) Owns() (keys []string, err error) {
	for _, p := range u.Programs {
		names := p.Names
		if names == nil {
			if names, err = p.Artifact.Names(); err != nil {
				return nil, err
			}
		}
		for _, n := range names {
			keys = append(keys, "path "+path.Join(p.Dir, n))
		}
	}
	return keys, nil
}

type placed struct {
	resource.File
	to   string
	part runner.Part // of it that is there
}

func (u Upload) wanted(ctx context.Context) ([]placed, error) {
	var all []placed
	for _, p := range u.Programs {
		members, err := u.Store.Programs(ctx, p.Artifact)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			if p.Names == nil || slices.Contains(p.Names, m.Name) {
				all = append(all, placed{File: m, to: path.Join(p.Dir, m.Name)})
			}
		}
	}
	return all, nil
}

// Precheck compares checksums, of all programs in one round trip.
func (u Upload) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	all, err := u.wanted(ctx)
	if err != nil {
		return nil, err
	}
	paths := make([]string, len(all))
	for i, p := range all {
		paths[i] = p.to
	}
	have, err := r.Sums(ctx, paths...)
	if err != nil {
		return nil, err
	}
	var missing []placed
	var added []string
	replaced := map[string]runner.Sum{}
	var text strings.Builder
	for _, p := range all {
		sum := have[p.to]
		if sum.SHA256 == p.SHA256 && sum.Mode == p.Mode {
			continue
		}
		p.part = sum.Part
		missing = append(missing, p)
		if sum.SHA256 == "" {
			added = append(added, p.to)
		} else {
			replaced[p.to] = runner.Sum{SHA256: sum.SHA256, Mode: sum.Mode}
		}
		begun := ""
		if sum.Part.Size > 0 {
			begun = fmt.Sprintf(", %d MB of an upload are there", sum.Part.Size>>20)
		}
		fmt.Fprintf(&text, "+ %s (%d MB%s)\n", p.to, p.Size>>20, begun)
	}
	if missing == nil {
		return nil, nil
	}
	return &Change{
		Diff: text.String(),
		Run:  func(ctx context.Context) error { return send(ctx, r, missing) },
		Rollback: func(ctx context.Context) error {
			if len(replaced) > 0 {
				if err := r.Revert(ctx, replaced); err != nil {
					return err
				}
			}
			if added == nil {
				return nil
			}
			return r.Remove(ctx, added...)
		},
	}, nil
}

// Send streams files to a directory of a host. What is there already stays, and of what was begun only the rest is sent.
func Send(ctx context.Context, r *runner.Runner, dir string, files ...resource.File) error {
	var paths []string
	for _, f := range files {
		paths = append(paths, path.Join(dir, f.Name))
	}
	have, err := r.Sums(ctx, paths...)
	if err != nil {
		return err
	}
	var missing []placed
	for i, f := range files {
		if sum := have[paths[i]]; sum.SHA256 != f.SHA256 || sum.Mode != f.Mode {
			missing = append(missing, placed{f, paths[i], sum.Part})
		}
	}
	if missing == nil {
		return nil
	}
	return send(ctx, r, missing)
}

func send(ctx context.Context, r *runner.Runner, files []placed) error {
	var total int64
	for _, p := range files {
		total += p.Size
	}
	var done atomic.Int64
	tell := Progress(ctx)
	var all []runner.Upload
	for _, p := range files {
		f, err := os.Open(p.Path)
		if err != nil {
			return fmt.Errorf("reading from the store: %w", err)
		}
		defer f.Close()
		part, err := p.begun(f)
		if err != nil {
			return fmt.Errorf("reading from the store: %w", err)
		}
		done.Add(part.Size)
		all = append(all, runner.Upload{
			Path: p.to, Mode: p.Mode, Size: p.Size, SHA256: p.SHA256, Part: part,
			Data: counted{f, &done, func(n int64) { tell(n, total) }},
		})
	}
	return r.Upload(ctx, all...)
}

// begun returns the part that is there, where it is the beginning of f; f is left behind it.
func (p placed) begun(f *os.File) (runner.Part, error) {
	if p.part.Size > p.Size {
		return runner.Part{}, nil
	}
	h := sha256.New()
	if _, err := io.CopyN(h, f, p.part.Size); err != nil {
		return runner.Part{}, err
	}
	if hex.EncodeToString(h.Sum(nil)) == p.part.SHA256 {
		return p.part, nil
	}
	_, err := f.Seek(0, io.SeekStart)
	return runner.Part{}, err
}

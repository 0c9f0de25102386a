package resource

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Volume is a file of a bundle, which has one or several.
type Volume struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

func volumePath(base string, n int) string { return fmt.Sprintf("%s.%03d", base, n) }

// volumeWriter spreads what is written over files, which appear on commit.
type volumeWriter struct {
	ctx   context.Context //nolint:containedctx // a writer takes none
	path  string
	limit int64
	files []*claim
	done  []Volume
	hash  hash.Hash // of the last one
}

func (w *volumeWriter) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		if n := len(w.done); n == 0 || w.limit > 0 && w.done[n-1].Size == w.limit {
			if err := w.next(); err != nil {
				return written, err
			}
		}
		last := len(w.done) - 1
		part := p
		if left := w.limit - w.done[last].Size; w.limit > 0 && int64(len(part)) > left {
			part = part[:left]
		}
		n, err := w.files[last].Write(part)
		w.hash.Write(part[:n])
		w.done[last].Size += int64(n)
		written += n
		p = p[n:]
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

func (w *volumeWriter) next() error {
	w.sum()
	path := w.path
	if w.limit > 0 {
		path = volumePath(w.path, len(w.done)+1)
	}
	c, err := claimFile(w.ctx, path)
	if err != nil {
		return err
	}
	w.files, w.done, w.hash = append(w.files, c), append(w.done, Volume{Path: path}), sha256.New()
	return c.Truncate(0)
}

// sum notes the checksum of the last file.
func (w *volumeWriter) sum() {
	if n := len(w.done); n > 0 {
		w.done[n-1].SHA256 = hexSum(w.hash)
	}
}

// commit makes the files appear, the first one last, and removes further volumes of
// a larger bundle that was there before.
func (w *volumeWriter) commit() ([]Volume, error) {
	w.sum()
	for _, c := range slices.Backward(w.files) {
		if err := c.commit(); err != nil {
			return nil, fmt.Errorf("writing bundle: %w", err)
		}
	}
	for n := len(w.done) + 1; w.limit > 0; n++ {
		err := os.Remove(volumePath(w.path, n))
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("removing a volume of the bundle that was there before: %w", err)
		}
	}
	return w.done, nil
}

// discard removes what was not committed.
func (w *volumeWriter) discard() {
	for _, c := range w.files {
		c.drop()
	}
}

var volumeNumber = regexp.MustCompile(`^\.\d{3,}$`)

// volumeReader reads the files of a bundle as one.
type volumeReader struct {
	ctx      context.Context //nolint:containedctx // a reader takes none
	paths    []string
	numbered string // what the paths have in common; empty: it is one file
	at       int    // of the file that is read
	file     *os.File
	done     int64
	total    int64 // bytes of all files
	progress Progress
}

// BundleName is the name of the bundle that a file is a volume of, or is.
func BundleName(file string) string {
	if ext := filepath.Ext(file); volumeNumber.MatchString(ext) {
		return strings.TrimSuffix(file, ext)
	}
	return file
}

// openBundle finds the files of a bundle: the one of that name, or its volumes.
func openBundle(ctx context.Context, name string, progress Progress) (*volumeReader, error) {
	v := &volumeReader{ctx: ctx, paths: []string{name}, at: -1, progress: progress}
	_, err := os.Stat(name)
	if base := BundleName(name); base != name {
		v.numbered = base
	} else if _, first := os.Stat(volumePath(name, 1)); errors.Is(err, os.ErrNotExist) && first == nil {
		v.numbered = name
	}
	if v.numbered != "" {
		v.paths, err = findVolumes(v.numbered)
	}
	if err != nil {
		return nil, notOpened(err)
	}
	for _, p := range v.paths {
		info, err := os.Stat(p)
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a regular file", p)
		}
		if err != nil {
			return nil, notOpened(err)
		}
		v.total += info.Size()
	}
	return v, nil
}

func notOpened(err error) error {
	return fault.Advise(fmt.Errorf("opening the bundle: %w", err), "name the file that 'kubexm download --export' wrote, or the first of its volumes; copy all of them")
}

// findVolumes returns the volumes of a bundle, of which none may be missing
// before the last that is there.
func findVolumes(base string) (paths []string, err error) {
	dir, prefix := filepath.Split(base)
	entries, err := os.ReadDir(filepath.Clean(dir + "."))
	if err != nil {
		return nil, err
	}
	there := 0
	for _, e := range entries {
		if n, ok := strings.CutPrefix(e.Name(), prefix); ok && volumeNumber.MatchString(n) {
			there++
		}
	}
	for n := 1; len(paths) < there; n++ {
		path := volumePath(base, n)
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("volume %d is missing: %w", n, err)
		}
		paths = append(paths, path)
	}
	if there == 0 {
		return nil, fmt.Errorf("volume 1 is missing: %w", &os.PathError{Op: "open", Path: volumePath(base, 1), Err: os.ErrNotExist})
	}
	return paths, nil
}

func (v *volumeReader) Read(p []byte) (int, error) {
	if v.ctx.Err() != nil {
		return 0, context.Cause(v.ctx)
	}
	for {
		if v.file != nil {
			n, err := v.file.Read(p)
			v.done += int64(n)
			if n > 0 && v.progress != nil {
				v.progress(v.done, v.total)
			}
			if n > 0 || err != nil && !errors.Is(err, io.EOF) {
				return n, err
			}
		}
		if v.at+1 == len(v.paths) {
			return 0, io.EOF
		}
		v.close()
		v.at++
		f, err := os.Open(v.paths[v.at])
		if err != nil {
			return 0, err
		}
		v.file = f
	}
}

// here names the file that is read.
func (v *volumeReader) here() string { return v.paths[max(v.at, 0)] }

func (v *volumeReader) close() {
	if v.file != nil {
		v.file.Close()
	}
}

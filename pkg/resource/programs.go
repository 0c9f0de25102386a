package resource

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Programs returns the programs of a fetched artifact, by name. They are
// unpacked once, beside the archive. A program that is published bare is the
// only program of itself.
func (s *Store) Programs(ctx context.Context, a Artifact) ([]File, error) {
	c, err := find(a.Component)
	if err != nil {
		return nil, err
	}
	if a, err = s.stored(a); err != nil {
		return nil, err
	}
	if len(c.Programs) == 0 {
		m, err := member(c.Name, s.path(a), a.SHA256)
		return []File{m}, err
	}
	if found := s.unpacked(a, c); found != nil {
		return found, nil
	}
	if err := s.unpack(ctx, a, c); err != nil {
		return nil, s.Discard(ctx, a, fmt.Errorf("unpacking %s: %w", s.path(a), err))
	}
	if found := s.unpacked(a, c); found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("unpacking %s: what was written does not read back", s.path(a))
}

// Discard takes an archive that cannot be unpacked, or manifests that cannot be read, and their checksum, out of the store, so that the next fetch asks for
// both again. An error of the disk is not the file's.
func (s *Store) Discard(ctx context.Context, a Artifact, why error) error {
	if _, disk := errors.AsType[*fs.PathError](why); disk || ctx.Err() != nil || errors.Is(why, syscall.ENOSPC) {
		return why
	}
	pins, err := pins()
	if err == nil && pins.Files[a.key()].SHA256 == "" {
		err = s.editLock(ctx, func(l *lock) error { delete(l.Files, a.key()); return nil })
	}
	err = cmp.Or(err, os.RemoveAll(filepath.Dir(s.path(a))))
	if err != nil {
		return errors.Join(why, fmt.Errorf("removing it from the store: %w", err))
	}
	again := "run 'kubexm download' again: it asks for the file and its checksum once more"
	if s.source.Offline {
		again = "bring a good one with 'kubexm import'"
	}
	return fault.Advise(fmt.Errorf("%w; it was removed from the store", why), again+
		"; if that one is not as expected either, ask who runs its source (spec.source), or choose another version of "+a.Component)
}

// stored returns an artifact that is in the store with its checksum.
func (s *Store) stored(a Artifact) (Artifact, error) {
	a, owed, err := s.known(a)
	if owed {
		return a, fault.Advise(fmt.Errorf("%s has no signature in %s, and spec.source.requireSignatures asks for one: %w", a, s.lockPath(), os.ErrNotExist), "run 'kubexm download', which looks for it")
	}
	if err == nil && (a.SHA256 == "" || !sumIs(s.path(a), a.SHA256)) {
		err = fault.Advise(fmt.Errorf("%s is not in %s: %w", a, s.dir, os.ErrNotExist), "run 'kubexm download' first")
	}
	return a, err
}

func member(name, file, sum string) (File, error) {
	info, err := os.Stat(file)
	if err != nil {
		return File{}, err
	}
	return File{Name: name, Mode: 0o755, Size: info.Size(), SHA256: sum, Path: file}, nil
}

// unpacked returns the members that SHA256SUMS lists, or nil when one is missing or damaged.
func (s *Store) unpacked(a Artifact, c Component) []File {
	dir := filepath.Dir(s.path(a))
	sums := readSums(dir)
	if sums[a.File] != a.SHA256 {
		return nil
	}
	delete(sums, a.File)
	for _, pattern := range c.Programs {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(sums)), func(name string) bool {
			ok, _ := path.Match(a.member(pattern), name)
			return ok
		}) {
			return nil
		}
	}
	var found []File
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		m, err := member(name, filepath.Join(dir, name), sums[name])
		if err != nil || !sumIs(m.Path, m.SHA256) {
			return nil
		}
		found = append(found, m)
	}
	return found
}

// unpack writes the wanted members beside the archive, and last SHA256SUMS, which makes them count.
func (s *Store) unpack(ctx context.Context, a Artifact, c Component) error {
	dir := filepath.Dir(s.path(a))
	record, err := claimFile(ctx, filepath.Join(dir, sumsFile))
	if err != nil {
		return err
	}
	defer record.drop()
	if s.unpacked(a, c) != nil { // another one did it meanwhile
		return nil
	}
	sums, err := extract(ctx, a, s.path(a), c.Programs)
	if err != nil {
		return explainSpace(err, dir, largerStore)
	}
	remember(dir, sums)
	sums[a.File] = a.SHA256
	if err := record.write(formatSums(sums)); err != nil {
		return err
	}
	return record.commit()
}

// extract writes the regular files in a .tar.gz that match a pattern into its
// own folder, without the folders they have in the archive. It returns their sums.
func extract(ctx context.Context, a Artifact, archive string, patterns []string) (map[string]string, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	sums, met := map[string]string{}, map[string]bool{}
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if !filepath.IsLocal(header.Name) {
			return nil, fmt.Errorf("the archive is malicious: it wants to write to %q", header.Name)
		}
		i := slices.IndexFunc(patterns, func(p string) bool {
			ok, _ := path.Match(a.expand(p), path.Clean(header.Name))
			return ok
		})
		if i < 0 || header.Typeflag != tar.TypeReg {
			continue
		}
		name := a.member(header.Name)
		if name == sumsFile || name == a.File {
			return nil, fmt.Errorf("the archive is malicious: it has a member %q", header.Name)
		}
		met[patterns[i]] = true
		if sums[name], err = extractFile(ctx, filepath.Join(filepath.Dir(archive), name), r); err != nil {
			return nil, err
		}
	}
	for _, p := range patterns {
		if !met[p] {
			return nil, fmt.Errorf("no file %s in the archive", a.expand(p))
		}
	}
	return sums, nil
}

func extractFile(ctx context.Context, file string, r io.Reader) (sum string, err error) {
	c, err := claimFile(ctx, file)
	if err != nil {
		return "", err
	}
	defer c.drop()
	if err := c.Truncate(0); err != nil {
		return "", err
	}
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(c, h), r); err != nil {
		return "", err
	}
	return hexSum(h), c.commit()
}

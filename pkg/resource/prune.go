package resource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Pruned is something that was removed, or would be.
type Pruned struct {
	Name string `json:"name"` // a folder in the store, or an image
	Size int64  `json:"size"` // bytes
}

// Prune removes what none of the items needs, and says what that was; with dry it only
// says so. The lock stays: what is fetched again must be the same. What another
// process is writing is left alone.
func (s *Store) Prune(ctx context.Context, keep []Item, dry bool) ([]Pruned, error) {
	l, err := s.readLock()
	if err != nil {
		return nil, err
	}
	kept := lock{Images: map[string]lockedImage{}}
	stays := map[string]bool{} // paths of folders and blobs
	for _, i := range keep {
		if i.System != "" {
			l.keepPackages(i, stays)
			continue
		}
		if i.Image == "" {
			stays[path.Dir(i.key())] = true
			continue
		}
		d, ok := l.Images[i.Image].Manifests[i.Arch]
		if !ok {
			continue
		}
		if kept.Images[i.Image].Manifests == nil {
			kept.Images[i.Image] = lockedImage{l.Images[i.Image].Digest, map[string]ocispec.Descriptor{}}
		}
		kept.Images[i.Image].Manifests[i.Arch] = d
		parts, _ := s.parts(d) // none where the manifest is not there
		for _, part := range append(parts, d) {
			stays[blobKey(part.Digest)] = true
		}
	}
	_, joint, err := s.listImages(kept)
	if err != nil {
		return nil, err
	}
	for _, text := range joint {
		stays[blobKey(digest.FromBytes(text))] = true
	}
	gone, err := s.unneeded(l, stays)
	if err != nil || dry || len(gone) == 0 {
		return total(gone), err
	}
	if err := s.writeLayout(ctx, kept); err != nil { // first: it names nothing that is not there
		return nil, err
	}
	for _, g := range gone {
		if err := os.Remove(s.file(g.key)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("pruning %s: %w", s.dir, err)
		}
		for dir := path.Dir(g.key); dir != "." && os.Remove(s.file(dir)) == nil; dir = path.Dir(dir) { // empty ones
			continue
		}
	}
	return total(gone), nil
}

// leftover is a file that is not needed.
type leftover struct {
	key  string
	what string // it is part of
	size int64
}

// unneeded lists the files of folders and the blobs that do not stay. What has another
// place is not of this store's making.
func (s *Store) unneeded(l lock, stays map[string]bool) (gone []leftover, err error) {
	owners := s.owners(l)
	err = s.files(func(file, key string) error {
		dir, name := path.Split(key)
		what := strings.TrimSuffix(path.Clean(dir), "/repodata")
		whole := strings.TrimSuffix(strings.TrimSuffix(key, ".origin"), ".part")
		if what == blobKey("sha256:") {
			if what = owners[digest.NewDigestFromEncoded(digest.SHA256, path.Base(whole))]; what == "" {
				what = "blobs of no image"
			}
			if stays[whole] || name == indexFile {
				return nil
			}
		} else if stays[what] || stays[whole] || !ours(key) || isPublished(key) && stays[path.Join(what, sumsFile)] {
			return nil
		}
		info, err := os.Stat(file)
		if err == nil && !busy(file) {
			gone = append(gone, leftover{key, what, info.Size()})
		}
		return err
	})
	return gone, err
}

// ours reports whether a path is one of the store's for a program, or for what belongs to a set of packages.
func ours(key string) bool {
	part := strings.Split(key, "/")
	_, err := find(part[0])
	return len(part) == 4 && (err == nil || part[0] == systemsDir) || len(part) > 3 && isPublished(key)
}

// busy reports whether another process writes the file.
func busy(file string) bool {
	file = strings.TrimSuffix(file, ".origin")
	if !strings.HasSuffix(file, ".part") {
		return false
	}
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// total adds up leftovers by what they are part of.
func total(gone []leftover) []Pruned {
	all := []Pruned{}
	for _, g := range gone {
		at := slices.IndexFunc(all, func(p Pruned) bool { return p.Name == g.what })
		if at < 0 {
			at = len(all)
			all = append(all, Pruned{Name: g.what})
		}
		all[at].Size += g.size
	}
	slices.SortFunc(all, func(a, b Pruned) int { return strings.Compare(a.Name, b.Name) })
	return all
}

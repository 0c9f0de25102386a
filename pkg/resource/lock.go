package resource

import (
	"context"
	_ "embed" // for pins.json
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// lock is the content of the lock file and of pins.json.
type lock struct {
	Files  map[string]lockedFile  `json:"files"`  // by path in the store
	Images map[string]lockedImage `json:"images"` // by reference

	Systems map[string]lockedSystem `json:"systems,omitempty"` // packages of operating systems, by folder in the store
}

type lockedFile struct {
	SHA256 string `json:"sha256"`
	From   string `json:"from"`           // where the sum was read; of a package, where it is published
	Size   int64  `json:"size,omitempty"` // bytes, of a package
	proof
}

type lockedImage struct {
	Digest    string                        `json:"digest"`    // what the reference means upstream: an index or a manifest
	Manifests map[string]ocispec.Descriptor `json:"manifests"` // by architecture
}

// manifests are the images of the lock for each of their architectures, in order.
func (l lock) manifests() iter.Seq2[Item, ocispec.Descriptor] {
	return func(yield func(Item, ocispec.Descriptor) bool) {
		for _, ref := range slices.Sorted(maps.Keys(l.Images)) {
			all := l.Images[ref].Manifests
			for _, arch := range slices.Sorted(maps.Keys(all)) {
				if !yield(ImageItem(ref, arch), all[arch]) {
					return
				}
			}
		}
	}
}

//go:embed pins.json
var pinned []byte

var pins = sync.OnceValues(func() (lock, error) { return parseLock("pins.json", pinned) })

func parseLock(name string, content []byte) (lock, error) {
	var l lock
	if len(content) > 0 {
		if err := json.Unmarshal(content, &l); err != nil {
			return l, fault.Advise(fmt.Errorf("reading %s: %w", name, err),
				"fix the file, or delete it to trust what is published now")
		}
	}
	if l.Files == nil {
		l.Files = map[string]lockedFile{}
	}
	if l.Images == nil {
		l.Images = map[string]lockedImage{}
	}
	if l.Systems == nil {
		l.Systems = map[string]lockedSystem{}
	}
	return l, nil
}

func (s *Store) lockPath() string { return filepath.Join(s.dir, lockFile) }

// readLock returns the store's lock, which is shared: to change it, use editLock.
func (s *Store) readLock() (lock, error) {
	l, err := locks.get(s.lockPath(), func(content []byte) (lock, error) { return parseLock(s.lockPath(), content) })
	if errors.Is(err, os.ErrNotExist) {
		return parseLock(s.lockPath(), nil)
	}
	return l, err
}

func (s *Store) editLock(ctx context.Context, change func(*lock) error) error {
	return edit(ctx, s.lockPath(), func(old []byte) ([]byte, error) {
		l, err := parseLock(s.lockPath(), old)
		if err != nil {
			return nil, err
		}
		if err := change(&l); err != nil {
			return nil, err
		}
		return formatLock(l)
	})
}

func formatLock(l lock) ([]byte, error) {
	content, err := json.MarshalIndent(l, "", "  ")
	return append(content, '\n'), err
}

// agree checks that a lock says the same as another of what both have.
func (l lock) agree(other lock) error {
	differ := func(what, was, is string) error { return fmt.Errorf("%s is %s, in the bundle %s", what, was, is) }
	for _, key := range slices.Sorted(maps.Keys(other.Files)) {
		if was, ok := l.Files[key]; ok && was.SHA256 != other.Files[key].SHA256 {
			return differ(key, was.SHA256, other.Files[key].SHA256)
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(other.Images)) {
		was, is := l.Images[ref], other.Images[ref]
		if was.Digest != "" && was.Digest != is.Digest {
			return differ(ref, was.Digest, is.Digest)
		}
		for arch, d := range is.Manifests {
			if old, ok := was.Manifests[arch]; ok && old.Digest != d.Digest {
				return differ(ref+" for "+arch, old.Digest.String(), d.Digest.String())
			}
		}
	}
	return nil
}

// add adds a file, or the signature that it has and the lock has not.
func (l lock) add(key string, f lockedFile) {
	was, ok := l.Files[key]
	switch {
	case !ok:
		l.Files[key] = f
	case was.Signature == "" && was.SHA256 == f.SHA256:
		was.proof = f.proof
		l.Files[key] = was
	}
}

// merge adds the entries of another lock, if the two agree.
func (l lock) merge(other lock) error {
	if err := l.agree(other); err != nil {
		return err
	}
	for key, f := range other.Files {
		l.add(key, f)
	}
	for ref, is := range other.Images {
		if was := l.Images[ref]; was.Manifests != nil {
			all := maps.Clone(was.Manifests)
			maps.Copy(all, is.Manifests)
			is.Manifests = all
		}
		l.Images[ref] = is
	}
	return l.mergePackages(other)
}

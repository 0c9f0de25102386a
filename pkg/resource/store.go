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
	"strings"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Store is the folder of everything fetched. It is safe for concurrent use. A
// step may hold one: it marshals to {}, so plans do not depend on where it is.
type Store struct {
	dir    string
	source Source
	doors  doors
	retry  retry
	read   sync.Map // of packages that were read, by checksum
}

// Open returns the store in dir, which is made when first needed.
func Open(dir string, source Source) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if source.Zone == "" {
		source.Zone = os.Getenv("KXZONE")
	}
	if _, ok := zones[source.Zone]; !ok {
		known := slices.DeleteFunc(slices.Sorted(maps.Keys(zones)), func(z string) bool { return z == "" })
		return nil, fault.Advise(fmt.Errorf("source zone %q is not known", source.Zone),
			"leave spec.source.zone and KXZONE empty or use one of: "+strings.Join(known, ", "))
	}
	all, err := newDoors(source)
	if err != nil {
		return nil, err
	}
	return &Store{
		dir: dir, source: source, doors: all,
		retry: retry{rounds: 5, pause: time.Second, longest: 2 * time.Minute, stall: 30 * time.Second},
	}, nil
}

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
				"repair the file, or delete it to trust anew what is published")
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

func (s *Store) readLock() (lock, error) {
	content, err := os.ReadFile(s.lockPath())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return lock{}, err
	}
	return parseLock(s.lockPath(), content)
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

package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/resource/source"
)

// Stock is an item, and what is known of it without fetching it.
type Stock struct {
	Item
	There bool   `json:"there"`
	From  string `json:"from"` // the first place to fetch it from
	Size  int64  `json:"size"` // bytes; -1: not known

	Signed bool `json:"signed,omitempty"` // by its publisher, as the lock proves; only of what is there
}

// Look tells of items whether they are in the store. With ask, servers are asked for
// the sizes of those that are not; one that does not answer leaves the size open.
func (s *Store) Look(ctx context.Context, items []Item, ask bool) ([]Stock, error) {
	all := make([]Stock, len(items))
	for n, i := range items {
		from, l, members, err := s.lookFor(i)
		if err != nil {
			return nil, err
		}
		all[n] = Stock{Item: i, There: members != nil, From: source.Redacted(s.source.Places(from)[0].URL), Size: -1, Signed: l.Files[i.key()].Signature != ""}
		for _, p := range members {
			all[n].Size = max(all[n].Size, 0) + p.Size
		}
	}
	if !ask || s.source.Offline {
		return all, nil
	}
	var g errgroup.Group
	g.SetLimit(8)
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for n := range all {
		if !all[n].There {
			g.Go(func() error { all[n].Size = s.askSize(ctx, all[n].Item); return nil })
		}
	}
	return all, g.Wait()
}

// lookFor returns where an item is published, and its lock and what it consists of in the store: nothing
// where it is not there.
func (s *Store) lookFor(i Item) (from string, l lock, members []packaged, err error) {
	from = i.Image
	if from == "" && i.System == "" {
		c, err := find(i.Component)
		if err != nil {
			return "", l, nil, err
		}
		from = i.expand(c.Base + "{file}")
	}
	l, members, err = s.collect([]Item{i})
	if errors.Is(err, os.ErrNotExist) {
		return from, lock{}, nil, nil
	}
	return from, l, members, err
}

// askSize asks how many bytes of an item are to be fetched; -1: nobody says.
func (s *Store) askSize(ctx context.Context, i Item) int64 {
	from, _, _, err := s.lookFor(i)
	if err != nil {
		return -1
	}
	for _, place := range s.source.Places(from) {
		n, err := s.sizeAt(ctx, i, place.URL)
		if err == nil {
			return n
		}
	}
	return -1
}

func (s *Store) sizeAt(ctx context.Context, i Item, place string) (int64, error) {
	if i.Image == "" {
		req, err := http.NewRequestWithContext(ctx, http.MethodHead, place, nil)
		if err != nil {
			return -1, err
		}
		resp, err := s.source.HTTP(place).Do(req)
		if err != nil {
			return -1, err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.ContentLength < 0 {
			return -1, errors.New(resp.Status)
		}
		return resp.ContentLength, nil
	}
	l, err := s.readLock()
	if err != nil {
		return -1, err
	}
	p := pull{Store: s, ref: i.Image, arch: i.Arch, top: l.Images[i.Image].Digest, manifest: l.Images[i.Image].Manifests[i.Arch]}
	repo, err := p.repository(place)
	if err == nil {
		err = p.resolve(ctx, repo)
	}
	var m ocispec.Manifest
	if err == nil {
		err = json.Unmarshal(p.text, &m)
	}
	n := p.manifest.Size
	for _, d := range append(m.Layers, m.Config) {
		if d.Digest.Validate() == nil && !s.hasBlob(d) {
			n += d.Size
		}
	}
	return n, err
}

// Flaw is something in the store that is not as it should be.
type Flaw struct {
	Path string `json:"path"` // in the store
	What string `json:"what"`
}

// Verified is what a look at the whole store found.
type Verified struct {
	Files int    `json:"files"` // that were read
	Bytes int64  `json:"bytes"` // of these
	Flaws []Flaw `json:"flaws"`

	Signed   int `json:"signed"`   // files in the lock with a signature of their publisher, which is right
	Unsigned int `json:"unsigned"` // without one, though their publisher signs, and not pinned
}

// Verify reads every file and blob of the store and compares it with the lock. What is
// wrong is not believed any more: the next download fetches it again. Indexes that join
// the architectures of an image, and those beside packages, are the store's own, and rewritten at once.
func (s *Store) Verify(ctx context.Context) (Verified, error) {
	v := Verified{Flaws: []Flaw{}}
	l, err := s.readLock()
	if err != nil {
		return v, err
	}
	pinned, err := pins()
	if err != nil {
		return v, err
	}
	owners := s.owners(l)
	err = s.walk(func(key string, info fs.FileInfo) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		dir, name := path.Split(key)
		want := pinned.Files[key].SHA256
		if want == "" {
			want = l.Files[key].SHA256
		}
		if want == "" {
			want = readSums(s.file(dir))[name] // unpacked
		}
		if dir == blobKey("sha256:")+"/" {
			want = name
		}
		what := ""
		switch got, err := hashFile(s.file(key)); {
		case err != nil:
			return err
		case want == "":
			what = "no lock file has a checksum of it"
		case got != want:
			what = fmt.Sprintf("its SHA-256 is %s, want %s", got, want)
			s.doubt(ctx, key)
		}
		if owner := owners[digest.NewDigestFromEncoded(digest.SHA256, name)]; owner != "" && what != "" {
			what += "; part of image " + owner
		}
		if what != "" {
			v.Flaws = append(v.Flaws, Flaw{key, what})
		}
		v.Files++
		v.Bytes += info.Size()
		return nil
	})
	if err != nil {
		return v, fmt.Errorf("verifying %s: %w", s.dir, err)
	}
	if err := s.rejoin(ctx, l, v.Flaws); err != nil {
		return v, fmt.Errorf("verifying %s: %w", s.dir, err)
	}
	incomplete, err := s.incomplete(l)
	unpublished, wrong := s.republish(ctx)
	err = errors.Join(err, wrong)
	s.verifyProofs(l, pinned, &v)
	v.Flaws = slices.Concat(v.Flaws, incomplete, s.incompletePackages(l), unpublished)
	slices.SortFunc(v.Flaws, func(a, b Flaw) int { return strings.Compare(a.Path+a.What, b.Path+b.What) })
	return v, err
}

// verifyProofs counts the signatures in a lock. What is pinned needs none.
func (s *Store) verifyProofs(l, pinned lock, v *Verified) {
	for key, err := range s.proofs(l) {
		switch {
		case err == nil:
			v.Signed++
		case !errors.Is(err, errUnsigned):
			v.Flaws = append(v.Flaws, Flaw{key, "its signature in the lock file is wrong: " + err.Error()})
		case pinned.Files[key].SHA256 == "":
			v.Unsigned++
		}
	}
}

// rejoin rewrites the indexes that are among the flaws: nobody else publishes them.
func (s *Store) rejoin(ctx context.Context, l lock, flaws []Flaw) error {
	_, joint, err := s.listImages(l)
	if err != nil {
		return err
	}
	for _, text := range joint {
		d := digest.FromBytes(text)
		at := slices.IndexFunc(flaws, func(f Flaw) bool { return f.Path == blobKey(d) })
		if at < 0 {
			continue
		}
		if err := s.putBlob(ctx, d, text); err != nil {
			return err
		}
		flaws[at].What += "; written again"
	}
	return nil
}

// incomplete finds the blobs that images lack.
func (s *Store) incomplete(l lock) (flaws []Flaw, err error) {
	for image, d := range l.manifests() {
		if !s.hasBlob(d) {
			continue // it was never there, or is damaged itself
		}
		parts, err := s.parts(d)
		if err != nil {
			return nil, err
		}
		for _, part := range parts {
			if _, err := os.Stat(s.blobPath(part.Digest)); err != nil {
				flaws = append(flaws, Flaw{blobKey(part.Digest), "it is missing; part of image " + image.String()})
			}
		}
	}
	return flaws, nil
}

// doubt forgets that a file was verified.
func (s *Store) doubt(ctx context.Context, key string) {
	dir := filepath.Dir(s.file(key))
	_ = edit(ctx, filepath.Join(dir, indexFile), func([]byte) ([]byte, error) { // fails where nothing can be fetched either
		all := maps.Clone(verified(dir))
		delete(all, path.Base(key))
		return json.Marshal(all)
	})
}

// owners names for each blob an image that it is part of.
func (s *Store) owners(l lock) map[digest.Digest]string {
	all := map[digest.Digest]string{}
	for image, d := range l.manifests() {
		parts, _ := s.parts(d) // none where the manifest is not there, or damaged
		for _, part := range append(parts, d) {
			if all[part.Digest] == "" {
				all[part.Digest] = image.String()
			}
		}
	}
	return all
}

// walk calls fn with every file that was fetched, unpacked or imported. Notes of the
// store itself, and what is still on its way, are left out.
func (s *Store) walk(fn func(key string, info fs.FileInfo) error) error {
	return s.files(func(file, key string) error {
		switch name := path.Base(key); {
		case key == lockFile, name == indexFile, name == sumsFile, unfinished(name), isPublished(key),
			key == path.Join(imagesDir, ocispec.ImageIndexFile), key == path.Join(imagesDir, ocispec.ImageLayoutFile):
			return nil
		default:
			info, err := os.Stat(file)
			if err != nil {
				return err
			}
			return fn(key, info)
		}
	})
}

// files calls fn with every file of the store, which need not be there yet.
func (s *Store) files(fn func(file, key string) error) error {
	if _, err := os.Stat(s.dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return filepath.WalkDir(s.dir, func(file string, e fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(s.dir, file)
		if err := errors.Join(err, relErr); err != nil || e.IsDir() {
			return err
		}
		return fn(file, filepath.ToSlash(rel))
	})
}

func unfinished(name string) bool {
	return strings.HasSuffix(name, ".part") || strings.HasSuffix(name, ".part.origin")
}

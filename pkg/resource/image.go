package resource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Pull makes sure that the image of a full reference ("registry.k8s.io/pause:3.10")
// is in the store for an architecture. What a tag means is decided once and
// noted in the lock file. Logins to registries are docker's. progress may be nil.
func (s *Store) Pull(ctx context.Context, ref, arch string, progress Progress) error {
	have, err := s.Has(ref, arch)
	if have || err != nil {
		return err
	}
	if s.source.Offline {
		return missing(fmt.Sprintf("image %s for %s is not in %s", ref, arch, s.dir))
	}
	l, err := s.readLock()
	if err != nil {
		return err
	}
	pinned, err := pins()
	if err != nil {
		return err
	}
	known, is := pinned.Images[ref]
	if !is {
		known = l.Images[ref]
	}
	p := pull{Store: s, ref: ref, arch: arch, top: known.Digest, manifest: known.Manifests[arch]}
	if err := p.run(ctx, progress); err != nil {
		return fmt.Errorf("pulling %s for %s: %w", ref, arch, err)
	}
	return s.editLock(ctx, func(l *lock) error {
		image := l.Images[ref]
		if image.Digest != p.top { // new, or pinned since
			image = lockedImage{p.top, map[string]ocispec.Descriptor{}}
		}
		image.Manifests[arch] = p.manifest
		l.Images[ref] = image
		return s.writeLayout(ctx, *l)
	})
}

// Has reports whether the whole image is in the store, unharmed.
func (s *Store) Has(ref, arch string) (bool, error) {
	l, err := s.readLock()
	if err != nil {
		return false, err
	}
	_, err = s.blobs(l, ref, arch)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Digest returns the digest of the image's manifest for one architecture, of
// the form sha256:..., as containerd knows it.
func (s *Store) Digest(ref, arch string) (string, error) {
	l, err := s.readLock()
	if err != nil {
		return "", err
	}
	d, ok := l.Images[ref].Manifests[arch]
	if !ok {
		return "", notPulled(ref, arch)
	}
	return d.Digest.String(), nil
}

func notPulled(ref, arch string) error {
	return fault.Advise(fmt.Errorf("image %s for %s is not in the store: %w", ref, arch, os.ErrNotExist), "run 'kubexm download' first")
}

// blobs returns the image's manifest, configuration and layers, each once, all
// of them in the store. Else the error is an os.ErrNotExist.
func (s *Store) blobs(l lock, ref, arch string) ([]ocispec.Descriptor, error) {
	manifest, ok := l.Images[ref].Manifests[arch]
	if !ok || !s.hasBlob(manifest) {
		return nil, notPulled(ref, arch)
	}
	parts, err := s.parts(manifest)
	if err != nil {
		return nil, err
	}
	for _, d := range parts {
		if !s.hasBlob(d) {
			return nil, notPulled(ref, arch)
		}
	}
	return append([]ocispec.Descriptor{manifest}, parts...), nil
}

// parts returns what a manifest in the store consists of, each once.
func (s *Store) parts(manifest ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	all, err := content.Successors(context.Background(), s.layout(), manifest)
	if err != nil {
		return nil, fmt.Errorf("reading manifest %s: %w", manifest.Digest, err)
	}
	seen := map[digest.Digest]bool{}
	once := all[:0]
	for _, d := range all {
		if d.Digest.Algorithm() != digest.SHA256 || d.Digest.Validate() != nil {
			return nil, fmt.Errorf("manifest %s names %q, which is not a SHA-256 digest", manifest.Digest, d.Digest)
		}
		if !seen[d.Digest] {
			once = append(once, d)
		}
		seen[d.Digest] = true
	}
	return once, nil
}

// pull is one image on its way into the store.
type pull struct {
	*Store
	ref, arch string
	top       string             // digest of what ref means, if known
	manifest  ocispec.Descriptor // if known
	text      []byte             // of the manifest
}

// site is a repository that may have the image.
type site struct {
	*remote.Repository
	place source.Place
}

func (p *pull) run(ctx context.Context, progress Progress) error {
	from, err := p.sites(p.source.Places(p.ref))
	if err != nil {
		return err
	}
	sayers := from
	if p.top == "" { // who serves an image is not to say what its name means
		if sayers, err = p.sites(p.source.SumPlaces(p.ref)); err != nil {
			return err
		}
	}
	failed, err := p.find(ctx, sayers)
	if err != nil {
		return err
	}
	if err := p.putBlob(ctx, p.manifest.Digest, p.text); err != nil {
		return err
	}
	parts, err := p.parts(p.manifest)
	if err != nil {
		return err
	}
	var first, last []site
	for _, at := range from {
		if slices.Contains(failed, at.place) {
			last = append(last, at)
		} else {
			first = append(first, at)
		}
	}
	return p.fetch(ctx, append(first, last...), parts, progress)
}

// sites are the repositories at places.
func (p *pull) sites(places []source.Place) (all []site, err error) {
	for _, place := range places {
		r, err := p.repository(place.URL)
		if err != nil {
			return nil, fault.Advise(err, "image references have the form registry.example.org/name:tag")
		}
		all = append(all, site{r, place})
	}
	return all, nil
}

// find asks repositories, one after the other, for the manifest, and returns those that failed.
func (p *pull) find(ctx context.Context, sites []site) (failed []source.Place, err error) {
	err = askAll(ctx, p.Store, sites, func(at site) source.Place { return at.place }, func(ctx context.Context, at site) error {
		ctx, cancel := context.WithTimeoutCause(ctx, p.retry.Stall, source.ErrStalled)
		defer cancel()
		err := source.Cause(ctx, p.resolve(ctx, at.Repository))
		if err == nil {
			return nil
		}
		failed = append(failed, at.place)
		return fmt.Errorf("%s: %w", at.Reference.Registry, source.ExplainLogin(err, scheme(at.Repository)+at.Reference.Registry))
	})
	return failed, err
}

func (p *pull) repository(place string) (*remote.Repository, error) {
	name, plain := strings.CutPrefix(place, "http://")
	ref, err := registry.ParseReference(strings.TrimPrefix(name, "https://"))
	if err == nil && ref.Reference == "" {
		err = errors.New("invalid reference: missing tag or digest")
	}
	repo := &remote.Repository{Reference: ref, PlainHTTP: plain}
	repo.Client = p.source.Registry(scheme(repo) + ref.Registry + "/" + ref.Repository)
	return repo, err
}

// resolve finds the manifest in a repository.
func (p *pull) resolve(ctx context.Context, repo *remote.Repository) error {
	top, found := p.top, p.manifest
	if found.Digest == "" {
		name := repo.Reference.Reference
		if top != "" {
			name = top
		}
		root, err := repo.Resolve(ctx, name)
		if err != nil {
			return err
		}
		top = root.Digest.String()
		found, err = oras.Resolve(ctx, repo, top, oras.ResolveOptions{TargetPlatform: &ocispec.Platform{OS: "linux", Architecture: p.arch}})
		if err != nil {
			return err
		}
	}
	text, err := content.FetchAll(ctx, repo, found)
	if err != nil {
		return err
	}
	found.Platform, found.Annotations = nil, nil
	p.top, p.manifest, p.text = top, found, text
	return nil
}

// fetch downloads what is still missing, four blobs at a time.
func (p *pull) fetch(ctx context.Context, repos []site, parts []ocispec.Descriptor, progress Progress) error {
	t := tally{report: progress, done: make([]int64, len(parts))}
	for i, d := range parts {
		t.total += d.Size
		if p.hasBlob(d) {
			t.done[i] = d.Size
			t.sum += d.Size
		}
	}
	if err := CheckSpace(string(p.layout()), t.total-t.sum); err != nil {
		return err
	}
	for _, repo := range repos {
		ctx = auth.AppendRepositoryScope(ctx, repo.Reference, auth.ActionPull)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i, d := range parts {
		b := blob{path: p.blobPath(d.Digest), sha256: d.Digest.Encoded(), progress: t.part(i)}
		b.places = blobPlaces(repos, d.Digest)
		g.Go(func() error { return p.download(ctx, b) })
	}
	return g.Wait()
}

// blobPlaces are where repositories have a blob.
func blobPlaces(repos []site, d digest.Digest) (all []place) {
	for _, repo := range repos {
		url := fmt.Sprintf("%s%s/v2/%s/blobs/%s", scheme(repo.Repository), repo.Reference.Host(), repo.Reference.Repository, d)
		all = append(all, place{source.Place{URL: url, Entry: repo.place.Entry}, repo.Client})
	}
	return all
}

func scheme(repo *remote.Repository) string {
	if repo.PlainHTTP {
		return "http://"
	}
	return "https://"
}

// tally adds up the progress of several downloads.
type tally struct {
	mu         sync.Mutex
	report     Progress
	done       []int64
	sum, total int64
}

func (t *tally) part(i int) Progress {
	return func(done, _ int64) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.sum += done - t.done[i]
		t.done[i] = done
		if t.report != nil {
			t.report(t.sum, t.total)
		}
	}
}

package resource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"

	"github.com/kubexm/kubexm/pkg/resource/registry"
)

// Push makes sure that a registry has images of the store, each for all architectures that the store has, behind the
// registry's own name under the name that it has elsewhere. Only what the registry lacks is sent, and what
// images share once. progress may be nil.
func (s *Store) Push(ctx context.Context, r registry.Private, progress Progress, refs ...string) error {
	l, err := s.readLock()
	if err != nil {
		return err
	}
	p := pushing{Store: s, to: r.Connect(), number: map[digest.Digest]int{}, has: map[digest.Digest]string{}, tally: tally{report: progress}}
	defer p.to.Close()
	trees := make([][]ocispec.Descriptor, len(refs))
	for i, ref := range refs {
		top, err := s.top(ctx, l, ref)
		if err != nil {
			return err
		}
		if trees[i], err = registry.Tree(ctx, s.layout(), top); err != nil {
			return fmt.Errorf("reading %s: %w", ref, err)
		}
		for _, d := range trees[i] {
			if _, known := p.number[d.Digest]; !known {
				p.number[d.Digest] = len(p.number)
				p.total += d.Size
			}
		}
	}
	p.done = make([]int64, len(p.number))
	for i, ref := range refs {
		if err := p.push(ctx, ref, trees[i]); err != nil {
			return fmt.Errorf("pushing %s: %w", ref, r.Explain(err))
		}
	}
	return nil
}

// pushing is images on their way to a registry, one after the other.
type pushing struct {
	*Store
	tally
	to     *registry.Client
	number map[digest.Digest]int    // of each blob in the tally
	has    map[digest.Digest]string // a repository that has the blob
}

// push brings one image: its blobs, four at a time, and then what names them.
func (p *pushing) push(ctx context.Context, ref string, tree []ocispec.Descriptor) error {
	repo, err := p.to.Repository(ctx, ref)
	if err != nil {
		return err
	}
	top := tree[0]
	err = oras.CopyGraph(ctx, p, repo, top, oras.CopyGraphOptions{
		Concurrency: 4,
		MountFrom: func(_ context.Context, d ocispec.Descriptor) ([]string, error) {
			if from := p.has[d.Digest]; from != "" {
				return []string{from}, nil
			}
			return nil, nil
		},
	})
	if err != nil {
		return err
	}
	have, err := repo.Resolve(ctx, repo.Reference.Reference)
	if err != nil || have.Digest != top.Digest {
		text, err := content.FetchAll(ctx, p.layout(), top)
		if err != nil {
			return err
		}
		if err := repo.PushReference(ctx, top, bytes.NewReader(text), repo.Reference.Reference); err != nil {
			return err
		}
	}
	for _, d := range tree {
		p.has[d.Digest] = repo.Reference.Repository
		p.part(p.number[d.Digest])(d.Size, d.Size)
	}
	return nil
}

// Exists reports whether a blob is in the store, unharmed. With Fetch it makes the store a source for oras.
func (p *pushing) Exists(_ context.Context, d ocispec.Descriptor) (bool, error) {
	return p.hasBlob(d), nil
}

// Fetch opens a blob of the store; what is read of it is progress.
func (p *pushing) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	f, err := p.layout().Fetch(ctx, d)
	if err != nil {
		return nil, err
	}
	n, ok := p.number[d.Digest]
	if !ok {
		f.Close()
		return nil, errors.New(d.Digest.String() + " is no part of what is pushed")
	}
	return &metered{ReadCloser: f, tell: p.part(n), size: d.Size}, nil
}

// metered is a blob that tells how much of it was read.
type metered struct {
	io.ReadCloser
	tell       Progress
	read, size int64
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.ReadCloser.Read(b)
	m.read += int64(n)
	m.tell(m.read, m.size)
	return n, err
}

// top is what the tag of an image means in a registry that the store is pushed to: its manifest, or
// an index of those of all architectures that the store has as a whole.
func (s *Store) top(ctx context.Context, l lock, ref string) (ocispec.Descriptor, error) {
	here := lockedImage{Manifests: map[string]ocispec.Descriptor{}}
	for arch, d := range l.Images[ref].Manifests {
		if _, err := s.blobs(l, ref, arch); err == nil {
			here.Manifests[arch] = d
		}
	}
	all, joint, err := s.listImages(lock{Images: map[string]lockedImage{ref: here}})
	if err == nil && len(all) == 0 {
		err = notPulled(ref, "any architecture")
	}
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	for _, text := range joint { // what was pulled has it
		if err := s.putBlob(ctx, digest.FromBytes(text), text); err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	return ocispec.Descriptor{MediaType: all[0].MediaType, Digest: all[0].Digest, Size: all[0].Size}, nil
}

// TopDigest returns the digest that the tag of an image has in a registry that the store was pushed to.
func (s *Store) TopDigest(ctx context.Context, ref string) (string, error) {
	l, err := s.readLock()
	if err != nil {
		return "", err
	}
	d, err := s.top(ctx, l, ref)
	return d.Digest.String(), err
}

// Images returns the references of all images that the store has for some architecture.
func (s *Store) Images() ([]string, error) {
	l, err := s.readLock()
	var all []string
	for image := range l.manifests() {
		if _, err := s.blobs(l, image.Image, image.Arch); err == nil && !slices.Contains(all, image.Image) {
			all = append(all, image.Image)
		}
	}
	return all, err
}

// Lacks returns those of the images that the registry does not have as the store has them.
func (s *Store) Lacks(ctx context.Context, r registry.Private, refs ...string) ([]string, error) {
	l, err := s.readLock()
	if err != nil {
		return nil, err
	}
	wanted := make([]ocispec.Descriptor, len(refs))
	for i, ref := range refs {
		if wanted[i], err = s.top(ctx, l, ref); err != nil {
			return nil, err
		}
	}
	have, err := r.Digests(ctx, refs...)
	if err != nil {
		return nil, err
	}
	var all []string
	for i, ref := range refs {
		if have[ref] != wanted[i].Digest {
			all = append(all, ref)
		}
	}
	return all, nil
}

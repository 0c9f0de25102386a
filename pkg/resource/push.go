package resource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
)

// Push makes sure that a registry has images of the store, each for all architectures that the store has, behind the
// registry's own name under the name that it has elsewhere. Only what the registry lacks is sent, and what
// images share once. progress may be nil.
func (s *Store) Push(ctx context.Context, r Registry, progress Progress, refs ...string) error {
	l, err := s.readLock()
	if err != nil {
		return err
	}
	p := pushing{Store: s, client: r.connect(), number: map[digest.Digest]int{}, has: map[digest.Digest]string{}, tally: tally{report: progress}}
	defer p.close()
	trees := make([][]ocispec.Descriptor, len(refs))
	for i, ref := range refs {
		top, err := s.top(ctx, l, ref)
		if err != nil {
			return err
		}
		if trees[i], err = tree(ctx, s.layout(), top); err != nil {
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
			return fmt.Errorf("pushing %s: %w", ref, r.explain(err))
		}
	}
	return nil
}

// pushing is images on their way to a registry, one after the other.
type pushing struct {
	*Store
	client
	tally
	number map[digest.Digest]int    // of each blob in the tally
	has    map[digest.Digest]string // a repository that has the blob
}

// push brings one image: its blobs, four at a time, and then what names them.
func (p *pushing) push(ctx context.Context, ref string, tree []ocispec.Descriptor) error {
	place, err := p.registry.place(ref)
	if err != nil {
		return err
	}
	if err := p.makeProject(ctx, place); err != nil {
		return err
	}
	repo, top := p.repository(place), tree[0]
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
	have, err := repo.Resolve(ctx, place.Reference)
	if err != nil || have.Digest != top.Digest {
		text, err := content.FetchAll(ctx, p.layout(), top)
		if err != nil {
			return err
		}
		if err := repo.PushReference(ctx, top, bytes.NewReader(text), place.Reference); err != nil {
			return err
		}
	}
	for _, d := range tree {
		p.has[d.Digest] = place.Repository
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

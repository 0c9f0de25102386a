package resource

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// annotationName is what containerd names an image after when it imports it.
const annotationName = "io.containerd.image.name"

// layoutVersion is the content of the file oci-layout.
const layoutVersion = `{"imageLayoutVersion":"` + ocispec.ImageLayoutVersion + `"}`

// imagesDir is the folder of the OCI layout in the store.
const imagesDir = "images"

// layout is the folder of an OCI layout.
type layout string

func (s *Store) layout() layout { return layout(filepath.Join(s.dir, imagesDir)) }

// blobKey is the path of a blob in the store, with slashes.
func blobKey(d digest.Digest) string {
	return path.Join(imagesDir, ocispec.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

func (s *Store) blobPath(d digest.Digest) string { return s.file(blobKey(d)) }

// Fetch opens a blob. It implements oras' content.Fetcher.
func (l layout) Fetch(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return os.Open(filepath.Join(string(l), ocispec.ImageBlobsDir, d.Digest.Algorithm().String(), d.Digest.Encoded()))
}

func (s *Store) hasBlob(d ocispec.Descriptor) bool {
	return sumIs(s.blobPath(d.Digest), d.Digest.Encoded())
}

func (s *Store) putBlob(ctx context.Context, d digest.Digest, text []byte) error {
	path := s.blobPath(d)
	if sumIs(path, d.Encoded()) {
		return nil
	}
	return replace(ctx, path, text)
}

// writeLayout writes the layout's index.json: all images of the lock file that
// are in the store, those of several architectures as an index of just these.
func (s *Store) writeLayout(ctx context.Context, l lock) error {
	top, joint, err := s.listImages(l)
	if err != nil {
		return err
	}
	for _, text := range joint {
		if err := s.putBlob(ctx, digest.FromBytes(text), text); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(newIndex(top), "", "  ")
	if err != nil {
		return err
	}
	root := string(s.layout())
	if err := replace(ctx, filepath.Join(root, ocispec.ImageLayoutFile), []byte(layoutVersion)); err != nil {
		return err
	}
	return replace(ctx, filepath.Join(root, ocispec.ImageIndexFile), text)
}

// listImages returns the descriptors of all images whose manifests are in the store,
// and the indexes that join those of several architectures.
func (s *Store) listImages(l lock) (out []ocispec.Descriptor, indexes [][]byte, err error) {
	for _, ref := range slices.Sorted(maps.Keys(l.Images)) {
		var each []ocispec.Descriptor
		for _, arch := range slices.Sorted(maps.Keys(l.Images[ref].Manifests)) {
			if d := l.Images[ref].Manifests[arch]; s.hasBlob(d) {
				d.Platform = &ocispec.Platform{OS: "linux", Architecture: arch}
				each = append(each, d)
			}
		}
		if len(each) > 1 {
			text, err := json.Marshal(newIndex(each))
			if err != nil {
				return nil, nil, err
			}
			joint := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromBytes(text), Size: int64(len(text))}
			indexes = append(indexes, text)
			each = []ocispec.Descriptor{joint}
		}
		for _, d := range each {
			out = append(out, named(d, ref))
		}
	}
	return out, indexes, nil
}

func newIndex(manifests []ocispec.Descriptor) ocispec.Index {
	return ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: manifests}
}

func named(d ocispec.Descriptor, ref string) ocispec.Descriptor {
	d.Annotations = map[string]string{annotationName: ref, ocispec.AnnotationRefName: ref}
	return d
}

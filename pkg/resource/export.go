package resource

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
)

// Export streams images of one architecture as one OCI archive, as
// "ctr --namespace k8s.io images import -" takes it, each blob once and checked
// on the way. The same images give the same bytes.
func (s *Store) Export(ctx context.Context, w io.Writer, arch string, refs ...string) error {
	files, err := s.archive(arch, refs)
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := t.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: f.Size, Format: tar.FormatUSTAR}); err != nil {
			return fmt.Errorf("exporting images: %w", err)
		}
		if err := s.exportFile(ctx, t, f); err != nil {
			return fmt.Errorf("exporting images: %s: %w", f.name, err)
		}
	}
	return t.Close()
}

// ExportSize returns how many bytes Export writes.
func (s *Store) ExportSize(arch string, refs ...string) (int64, error) {
	const block = 512
	files, err := s.archive(arch, refs)
	total := int64(2 * block) // the end of a tar
	for _, f := range files {
		total += block + (f.Size+block-1)/block*block
	}
	return total, err
}

// archived is one file of an OCI archive: a text, or a blob of the store.
type archived struct {
	ocispec.Descriptor
	name string
	text []byte
}

// archive lists the files of the OCI archive of some images.
func (s *Store) archive(arch string, refs []string) ([]archived, error) {
	l, err := s.readLock()
	if err != nil {
		return nil, err
	}
	var (
		top   []ocispec.Descriptor
		files []archived
		seen  = map[digest.Digest]bool{}
	)
	for _, ref := range refs {
		blobs, err := s.blobs(l, ref, arch)
		if err != nil {
			return nil, err
		}
		manifest := blobs[0]
		manifest.Platform = &ocispec.Platform{OS: "linux", Architecture: arch}
		top = append(top, named(manifest, ref))
		for _, d := range blobs {
			if !seen[d.Digest] {
				files = append(files, archived{d, path.Join(ocispec.ImageBlobsDir, d.Digest.Algorithm().String(), d.Digest.Encoded()), nil})
			}
			seen[d.Digest] = true
		}
	}
	index, err := json.Marshal(newIndex(top))
	if err != nil {
		return nil, err
	}
	return append([]archived{textFile(ocispec.ImageLayoutFile, []byte(layoutVersion)), textFile(ocispec.ImageIndexFile, index)}, files...), nil
}

func textFile(name string, text []byte) archived {
	return archived{ocispec.Descriptor{Size: int64(len(text))}, name, text}
}

func (s *Store) exportFile(ctx context.Context, w io.Writer, f archived) error {
	if f.text != nil {
		_, err := io.Copy(w, bytes.NewReader(f.text))
		return err
	}
	r, err := s.layout().Fetch(ctx, f.Descriptor)
	if err != nil {
		return err
	}
	defer r.Close()
	v := content.NewVerifyReader(r, f.Descriptor)
	if _, err := io.CopyBuffer(w, v, make([]byte, 256<<10)); err != nil {
		return err
	}
	return v.Verify()
}

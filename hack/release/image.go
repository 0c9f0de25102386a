package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image writes one for all processors, an OCI layout in an archive: as of `docker load`, `podman load` and `skopeo copy oci-archive:`.
func (r *release) image() error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.platforms {
		if !p.linux() {
			continue
		}
		img, err := r.imageFor(p)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
	}
	dir, err := os.MkdirTemp("", "kubexm-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	out, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = out.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version}))
	}
	if err != nil {
		return err
	}
	files, err := tree(dir)
	if err != nil {
		return err
	}
	packed, err := pack(files, r.date)
	if err != nil {
		return err
	}
	return os.WriteFile(r.named("_image.tar"), packed, 0o644)
}

// imageFor has nothing but the program, and what it asks of a system: who root is, and a place for temporary files.
func (r *release) imageFor(p platform) (v1.Image, error) {
	program, err := os.ReadFile(filepath.Join(r.dir, p.program()))
	if err != nil {
		return nil, err
	}
	packed, err := pack([]file{
		{"etc/", 0o755, nil},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/usr/bin/kubexm\n")},
		{"root/", 0o700, nil},
		{"tmp/", 0o1777, nil},
		{"usr/", 0o755, nil},
		{"usr/bin/", 0o755, nil},
		{"usr/bin/kubexm", 0o755, program},
		{"work/", 0o755, nil},
	}, r.date)
	if err == nil {
		packed, err = compress(packed)
	}
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "make release"}})
	if err != nil {
		return nil, err
	}
	conf, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	conf = conf.DeepCopy()
	conf.OS, conf.Architecture, conf.Created = p.os, p.arch, v1.Time{Time: r.date}
	conf.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/kubexm"}, WorkingDir: "/work", Env: []string{"PATH=/usr/bin", "HOME=/root"},
		Labels: map[string]string{
			"org.opencontainers.image.title": "kubexm", "org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.source": home, "org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(img, conf)
}

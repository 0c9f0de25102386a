package resource

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/zstd"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// A bundle is a tar, compressed with zstd: manifest.json, its signature where it is signed,
// lock.json, sbom.cdx.json, then files and blobs under their paths in the store, in the order
// of the manifest. ADR 0018, ADR 0021.
const (
	manifestFile = "manifest.json"
	lockFile     = "lock.json"
	bundleFormat = 2 // 1: without signature and list of contents
)

// Bundle is a part of the store on its way to another one.
type Bundle struct {
	Path    string // of the file; with a limit that of the volumes, without .001
	Limit   int64  // of a volume in bytes; 0: all is one file
	Cluster string // what it was made for; like Program for people only
	Program string // version of kubexm
	SignKey string // file of the private key to sign with, or of the public one of a key in the SSH agent; empty: no signature
	Items   []Item
}

// manifest lists what is in a bundle.
type manifest struct {
	Format  int        `json:"format"`
	Kubexm  string     `json:"kubexm"`
	Cluster string     `json:"cluster"`
	Members []packaged `json:"members"` // lock.json first, then sbom.cdx.json
}

// stored are the members that go into a store.
func (m manifest) stored() []packaged {
	if len(m.Members) > 1 && m.Members[1].Path == sbomFile {
		return m.Members[2:]
	}
	return m.Members[1:]
}

// packaged is a member of a bundle.
type packaged struct {
	Path   string `json:"path"` // in the store, with slashes
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// Pack writes a bundle of items, all of them in the store, and returns its files. The
// same items of the same store give the same bytes. The files appear when all are whole.
func (s *Store) Pack(ctx context.Context, b Bundle, progress Progress) ([]Volume, error) {
	l, members, err := s.collect(b.Items)
	if err != nil {
		return nil, err
	}
	out := &volumeWriter{ctx: ctx, path: b.Path, limit: b.Limit}
	defer out.discard()
	if err := s.pack(ctx, out, b, l, members, progress); err != nil {
		return nil, fmt.Errorf("writing bundle %s: %w", b.Path, explainSpace(err, filepath.Dir(b.Path), "free space there, or name a file on a larger disk with --export"))
	}
	return out.commit()
}

func (s *Store) pack(ctx context.Context, w io.Writer, b Bundle, l lock, members []packaged, progress Progress) error {
	locked, err := formatLock(l)
	if err != nil {
		return err
	}
	listed, err := s.sbom(b, l, members)
	if err != nil {
		return err
	}
	m := manifest{bundleFormat, b.Program, b.Cluster, append([]packaged{describe(lockFile, locked), describe(sbomFile, listed)}, members...)}
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	signed, err := sign(text, b.SignKey)
	if err != nil {
		return err
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)) // most members are compressed already
	if err != nil {
		return err
	}
	defer func() { _ = z.Close() }() // an earlier error counts more
	t := tar.NewWriter(z)
	err = packText(t, manifestFile, text)
	if signed != nil {
		err = errors.Join(err, packText(t, signatureFile, signed))
	}
	if err := errors.Join(err, packText(t, lockFile, locked), packText(t, sbomFile, listed)); err != nil {
		return err
	}
	var done, total int64
	for _, p := range members {
		total += p.Size
	}
	buf := make([]byte, 256<<10)
	for _, p := range members {
		tell := func(n int64) {
			done += n
			if progress != nil {
				progress(done, total)
			}
		}
		if err := s.packFile(ctx, t, p, buf, tell); err != nil {
			return fmt.Errorf("%s: %w", p.Path, err)
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// describe is a text as a member.
func describe(name string, text []byte) packaged {
	return packaged{name, int64(len(text)), fmt.Sprintf("%x", sha256.Sum256(text))}
}

func header(name string, size int64) *tar.Header {
	return &tar.Header{Name: name, Mode: 0o644, Size: size, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
}

func packText(t *tar.Writer, name string, text []byte) error {
	if err := t.WriteHeader(header(name, int64(len(text)))); err != nil {
		return err
	}
	_, err := io.Copy(t, bytes.NewReader(text))
	return err
}

// packFile writes a member and makes sure that it is what the lock says.
func (s *Store) packFile(ctx context.Context, t *tar.Writer, p packaged, buf []byte, tell func(n int64)) error {
	f, err := os.Open(s.file(p.Path))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := t.WriteHeader(header(p.Path, p.Size)); err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.CopyBuffer(io.MultiWriter(t, h), &watched{ctx, f, tell}, buf); err != nil {
		return err
	}
	if got := hexSum(h); got != p.SHA256 {
		return fault.Advise(fmt.Errorf("damaged in the store: its SHA-256 is %s, want %s", got, p.SHA256),
			"run 'kubexm download --verify', then download it again")
	}
	return nil
}

// watched is a reader that ends with its context and tells of what passes.
type watched struct {
	ctx context.Context //nolint:containedctx // a reader takes none
	io.Reader
	tell func(n int64)
}

func (w *watched) Read(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	n, err := w.Reader.Read(p)
	w.tell(int64(n))
	return n, err
}

// collect returns the lock of some items, and their files and blobs sorted by path.
func (s *Store) collect(items []Item) (lock, []packaged, error) {
	own, err := s.readLock()
	if err != nil {
		return lock{}, nil, err
	}
	pinned, err := pins()
	if err != nil {
		return lock{}, nil, err
	}
	l := lock{Files: map[string]lockedFile{}, Images: map[string]lockedImage{}, Systems: map[string]lockedSystem{}}
	members := map[string]packaged{}
	add := func(key, sum string) error {
		info, err := os.Stat(s.file(key))
		if err == nil {
			members[key] = packaged{key, info.Size(), sum}
		}
		return err
	}
	for _, i := range items {
		if i.System != "" {
			if err := s.collectPackages(own, l, i, add); err != nil {
				return l, nil, err
			}
			continue
		}
		if i.Image == "" {
			a, err := s.stored(i.Artifact)
			if err == nil {
				err = add(a.key(), a.SHA256)
			}
			if err != nil {
				return l, nil, err
			}
			f := own.Files[a.key()]
			if f.SHA256 != a.SHA256 { // it is pinned, and was not when it was locked
				f.proof = proof{}
			}
			l.Files[a.key()] = lockedFile{SHA256: a.SHA256, From: cmp.Or(pinned.Files[a.key()].From, f.From), proof: f.proof}
			continue
		}
		blobs, err := s.blobs(own, i.Image, i.Arch)
		if err != nil {
			return l, nil, err
		}
		if l.Images[i.Image].Manifests == nil {
			l.Images[i.Image] = lockedImage{own.Images[i.Image].Digest, map[string]ocispec.Descriptor{}}
		}
		l.Images[i.Image].Manifests[i.Arch] = blobs[0]
		for _, d := range blobs {
			if err := add(blobKey(d.Digest), d.Digest.Encoded()); err != nil {
				return l, nil, err
			}
		}
	}
	return l, slices.SortedFunc(maps.Values(members), func(a, b packaged) int { return cmp.Compare(a.Path, b.Path) }), nil
}

package resource

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"

	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Limits of what is believed of a bundle before it is verified.
const (
	maxText   = 16 << 20 // bytes of manifest.json and of lock.json
	maxMember = 16 << 30 // bytes; the largest known file has a tenth of a GiB
	maxWindow = 64 << 20 // bytes of memory to unpack it with
)

// Imported is what an import did.
type Imported struct {
	Cluster string `json:"cluster"`    // that the bundle was made for
	Kubexm  string `json:"kubexm"`     // version that made it
	Added   int    `json:"added"`      // files and blobs
	Present int    `json:"present"`    // that were there already
	Bytes   int64  `json:"addedBytes"` // of those added
	Images  int    `json:"images"`     // of all architectures
	Files   int    `json:"files"`      // published files
	Volumes int    `json:"volumes"`    // that were read
	Signer  string `json:"signer"`     // fingerprint of the key that it is signed with; empty: it is not
	Trusted bool   `json:"trusted"`    // that key is one of those that were given
}

// Import takes the content of a bundle into the store: of the file of that name, or of
// its volumes. Each member is verified before it appears in the store, and left alone
// where it is there already, so that an import that broke off goes on where it stopped. The
// lock is merged last: what a broken bundle brought does not count. Where the two locks
// disagree nothing is taken. Where keys are given (signature.PublicKeys), one of them must
// have signed it. progress counts bytes of the bundle's files.
func (s *Store) Import(ctx context.Context, name string, keys []string, progress Progress) (Imported, error) {
	v, err := openBundle(ctx, name, progress)
	if err != nil {
		return Imported{}, err
	}
	defer v.close()
	z, err := zstd.NewReader(v, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return Imported{}, err
	}
	defer z.Close()
	i := &imports{Store: s, keys: keys, from: v, stream: z, tar: tar.NewReader(z)}
	if err := i.run(ctx); err != nil {
		return i.done, fault.Advise(fmt.Errorf("importing %s: %w", name, err), "nothing of it is used yet. Copy the bundle again; each file must have the SHA-256 that 'kubexm download --export' printed")
	}
	return i.done, nil
}

// imports is an import on its way.
type imports struct {
	*Store
	keys     []string
	from     *volumeReader
	stream   io.Reader // from, unpacked
	tar      *tar.Reader
	ahead    *tar.Header // that was read, and whose turn is to come
	manifest manifest
	lock     lock
	done     Imported
}

func (i *imports) run(ctx context.Context) error {
	if err := i.open(); err != nil {
		return err
	}
	if err := i.agrees(); err != nil {
		return err
	}
	var missing int64
	for _, p := range i.manifest.stored() {
		if !sumIs(i.file(p.Path), p.SHA256) {
			missing += p.Size
		}
	}
	if err := CheckSpace(i.dir, missing); err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	for n := 1; n < len(i.manifest.Members); n++ {
		if err := i.next(n); err != nil {
			return err
		}
		if err := i.take(ctx, i.manifest.Members[n], buf); err != nil {
			return fmt.Errorf("member %s: %w", i.manifest.Members[n].Path, explainSpace(err, i.dir, largerStore))
		}
	}
	if err := i.end(); err != nil {
		return err
	}
	return i.count(ctx)
}

// open reads manifest and lock, and checks what they say.
func (i *imports) open() error {
	h, err := i.tar.Next()
	if err != nil && !errors.Is(err, tar.ErrHeader) {
		return i.cut(err)
	}
	if err != nil || h.Name != manifestFile || h.Typeflag != tar.TypeReg {
		return errForeign
	}
	text, err := i.text(h.Size)
	if err == nil {
		if err := i.signed(text); err != nil { // before anything of it is believed
			return err
		}
		err = json.Unmarshal(text, &i.manifest)
	}
	switch {
	case err != nil:
		return fmt.Errorf("member %s: %w", manifestFile, err)
	case i.manifest.Format > bundleFormat:
		return fault.Advise(fmt.Errorf("its format is %d, and this kubexm knows %d", i.manifest.Format, bundleFormat), "import it with kubexm "+i.manifest.Kubexm+", which made it, or a newer one")
	case i.manifest.Format < 1 || len(i.manifest.Members) == 0 || i.manifest.Members[0].Path != lockFile:
		return errForeign
	}
	i.done.Cluster, i.done.Kubexm, i.done.Volumes = i.manifest.Cluster, i.manifest.Kubexm, len(i.from.paths)
	seen := map[string]bool{}
	for n, p := range i.manifest.Members {
		if err := p.check(n); err != nil {
			return err
		}
		if seen[p.Path] {
			return fmt.Errorf("the manifest lists %s twice", p.Path)
		}
		seen[p.Path] = true
	}
	if err := i.next(0); err != nil {
		return err
	}
	if text, err = i.text(i.manifest.Members[0].Size); err != nil {
		return fmt.Errorf("member %s: %w", lockFile, err)
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(text)); got != i.manifest.Members[0].SHA256 {
		return fmt.Errorf("member %s: %w", lockFile, tampered(got, i.manifest.Members[0].SHA256))
	}
	if i.lock, err = parseLock(lockFile, text); err != nil {
		return err
	}
	return i.covered()
}

var errForeign = fault.Advise(errors.New("this is not a kubexm bundle"), "name the file that 'kubexm download --export' wrote, or the first of its volumes")

func tampered(got, want string) error {
	return fmt.Errorf("it was changed: its SHA-256 is %s, want %s", got, want)
}

// check refuses what has no place in a store.
func (p packaged) check(n int) error {
	switch dir, name := path.Split(p.Path); {
	case !filepath.IsLocal(filepath.FromSlash(p.Path)) || p.Path != path.Clean(p.Path):
		return fmt.Errorf("the manifest is malicious: it wants to write to %q", p.Path)
	case !isSum(p.SHA256) || p.SHA256 != strings.ToLower(p.SHA256):
		return fmt.Errorf("the manifest has no SHA-256 of %s", p.Path)
	case p.Size < 0 || p.Size > maxMember || (n == 0 || p.Path == sbomFile) && p.Size > maxText:
		return fmt.Errorf("member %s is too large: the manifest gives it %d bytes", p.Path, p.Size)
	case n == 0, n == 1 && p.Path == sbomFile, dir == blobKey("sha256:")+"/" && name == p.SHA256, isPackage(p.Path):
		return nil
	}
	if part := strings.Split(p.Path, "/"); len(part) == 4 {
		if a, err := New(part[0], part[1], part[2]); err == nil && a.key() == p.Path {
			return nil
		}
	}
	return fault.Advise(fmt.Errorf("member %q is not something that this kubexm keeps in its store", p.Path), "import it with the kubexm that made it, or a newer one")
}

// covered checks that lock and manifest are about the same things.
func (i *imports) covered() error {
	members, named := map[string]packaged{}, map[string]bool{}
	for _, p := range i.manifest.stored() {
		members[p.Path] = p
	}
	for _, key := range slices.Sorted(maps.Keys(i.lock.Files)) {
		if is := i.lock.Files[key]; members[key].SHA256 != is.SHA256 || isPackage(key) && members[key].Size != is.Size {
			return fmt.Errorf("lock file and manifest disagree about %s", key)
		}
		named[key] = true
		i.done.Files++
	}
	for image, d := range i.lock.manifests() {
		if err := d.Digest.Validate(); err != nil || d.Digest.Algorithm() != digest.SHA256 || members[blobKey(d.Digest)].Size != d.Size {
			return fmt.Errorf("the manifest of image %s is not in the bundle", image)
		}
		i.done.Images++
	}
	for _, p := range i.manifest.stored() {
		if !named[p.Path] && !strings.HasPrefix(p.Path, imagesDir+"/") {
			return fmt.Errorf("lock file and manifest disagree about %s", p.Path)
		}
	}
	return i.lock.coveredPackages()
}

// agrees refuses a bundle that says something else than this store, or this program.
func (i *imports) agrees() error {
	pinned, err := pins()
	if err != nil {
		return err
	}
	own, err := i.readLock()
	if err != nil {
		return err
	}
	if err := pinned.agree(i.lock); err != nil {
		return fault.Advise(fmt.Errorf("it is not what this kubexm was released with: %w", err), "do not use the bundle: find out where it comes from")
	}
	if err := own.agree(i.lock); err != nil {
		return fault.Advise(fmt.Errorf("%s says otherwise: %w", i.lockPath(), err),
			"one of the two was replaced upstream, or changed on its way. To trust the bundle, delete that entry of the lock and import again")
	}
	for key, err := range i.proofs(i.lock) {
		if err != nil && !errors.Is(err, errUnsigned) {
			return fault.Advise(fmt.Errorf("the signature of %s in %s is wrong: %w", key, lockFile, err), "do not use the bundle: find out where it comes from")
		}
	}
	own.Systems = maps.Clone(own.Systems) // the rest is not changed
	i.dropIncomplete(&own, i.lock)
	return own.mergePackages(i.lock)
}

// next goes on to a member, which must be the next one.
func (i *imports) next(n int) error {
	want := i.manifest.Members[n]
	h, err := i.header()
	if err != nil {
		return fmt.Errorf("before member %s: %w", want.Path, i.cut(err))
	}
	at := slices.IndexFunc(i.manifest.Members, func(p packaged) bool { return p.Path == h.Name })
	switch {
	case !filepath.IsLocal(filepath.FromSlash(h.Name)):
		return fmt.Errorf("the bundle is malicious: it wants to write to %q", h.Name)
	case at < 0 && h.Name != manifestFile:
		return fmt.Errorf("member %q is not in the manifest", h.Name)
	case at < n:
		return fmt.Errorf("member %s is there twice", h.Name)
	case at > n:
		return fmt.Errorf("member %s is missing: %s is in its place", want.Path, h.Name)
	case h.Typeflag != tar.TypeReg:
		return fmt.Errorf("member %s is not a regular file", h.Name)
	case h.Size != want.Size:
		return fmt.Errorf("member %s has %d bytes, the manifest says %d", h.Name, h.Size, want.Size)
	}
	return nil
}

// text reads a small member.
func (i *imports) text(size int64) ([]byte, error) {
	if size > maxText {
		return nil, fmt.Errorf("%d bytes are too large", size)
	}
	text, err := io.ReadAll(i.tar)
	return text, i.cut(err)
}

// take reads a member, and puts it into the store where it is not there yet.
func (i *imports) take(ctx context.Context, p packaged, buf []byte) error {
	file, h := i.file(p.Path), sha256.New()
	var w io.Writer = h
	var c *claim
	if p.Path != sbomFile && !sumIs(file, p.SHA256) {
		var err error
		if c, err = claimFile(ctx, file); err != nil {
			return err
		}
		defer c.drop()
		os.Remove(originPath(c)) // of a download that broke off
		if err := c.Truncate(0); err != nil {
			return err
		}
		w = io.MultiWriter(c, h)
	}
	if _, err := io.CopyBuffer(w, i.tar, buf); err != nil {
		return i.cut(err)
	}
	if got := hexSum(h); got != p.SHA256 {
		return tampered(got, p.SHA256)
	}
	if p.Path == sbomFile {
		return nil // what it lists comes, and the store can list that itself
	}
	if c == nil {
		i.done.Present++
		return nil
	}
	if err := c.commit(); err != nil {
		return err
	}
	remember(filepath.Dir(file), map[string]string{filepath.Base(file): p.SHA256})
	i.done.Added++
	i.done.Bytes += p.Size
	return nil
}

// cut says of an error while reading where the bundle ends, if that is what it is.
func (i *imports) cut(err error) error {
	switch {
	case err == nil, source.Local(err):
		return err
	case i.from.ctx.Err() != nil:
		return context.Cause(i.from.ctx)
	case errors.Is(err, zstd.ErrMagicMismatch), i.from.total == 0:
		return errForeign
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the bundle is damaged, in %s: %w", i.from.here(), err)
	case i.from.numbered == "":
		return fmt.Errorf("the bundle ends too early: it was cut off after %s", human.Bytes(i.from.total))
	}
	n := len(i.from.paths)
	return fmt.Errorf("the bundle ends too early: %s is missing, or %s was cut off", volumePath(i.from.numbered, n+1), i.from.paths[n-1])
}

// end checks that nothing follows the last member.
func (i *imports) end() error {
	h, err := i.tar.Next()
	switch {
	case err == nil:
		return fmt.Errorf("member %q is not in the manifest, or there twice", h.Name)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("after the last member: %w", i.cut(err))
	}
	n, err := io.Copy(io.Discard, io.LimitReader(i.stream, 1<<20))
	if err != nil {
		return fmt.Errorf("after the last member: %w", i.cut(err))
	}
	if n > 0 {
		return errors.New("there is more after the last member")
	}
	return nil
}

// count makes what was taken count.
func (i *imports) count(ctx context.Context) error {
	for image := range i.lock.manifests() {
		if _, err := i.blobs(i.lock, image.Image, image.Arch); err != nil {
			return fmt.Errorf("image %s is not complete in it: %v", image, err) //nolint:errorlint // its advice is for another case
		}
	}
	if err := i.noteSums(ctx, i.lock); err != nil {
		return err
	}
	err := i.editLock(ctx, func(l *lock) error {
		i.dropIncomplete(l, i.lock)
		if err := l.merge(i.lock); err != nil {
			return err
		}
		return i.writeLayout(ctx, *l)
	})
	if err != nil || len(i.lock.Systems) == 0 {
		return err
	}
	sets, err := i.PackageSets()
	for _, set := range sets {
		if _, ok := i.lock.Systems[set.dir()]; ok {
			err = errors.Join(err, i.publish(ctx, set))
		}
	}
	return err
}

package resource

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

const (
	signingFile = systemsDir + "/signing.key" // of the store's own repositories, 0600
	publicFile  = "kubexm.asc"                // the public part of it, in each repository
)

// repositoryIndex is what publish writes for a set, by path in its folder, but for the signatures.
type repositoryIndex struct {
	files          map[string][]byte
	top, signature string // the file that is signed, and where its signature is
}

func (s *Store) repositoryIndex(set PackageSet) (repositoryIndex, error) {
	r := Repository{System: set.System, Arch: set.Arch, Store: s}
	all, err := r.Index("/")
	if err != nil {
		return repositoryIndex{}, err
	}
	sums := map[string]string{}
	for _, f := range set.Files {
		sums[f.Name] = f.SHA256
	}
	i := repositoryIndex{map[string][]byte{sumsFile: formatSums(sums)}, "repodata/repomd.xml", "repodata/repomd.xml.asc"}
	list := "repodata/primary.xml.gz"
	if all["Packages"] != nil {
		list, i.top, i.signature = "Packages", "Release", "Release.gpg"
		all[i.top] = release(set, all[list])
	}
	i.files[list], i.files[i.top] = all[list], all[i.top]
	return i, nil
}

// isIn reports whether a folder has it as it should be, signed with a key.
func (i repositoryIndex) isIn(dir string, key *openpgp.Entity) bool {
	for name, text := range i.files {
		is, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(undated(is), undated(text)) {
			return false
		}
	}
	return i.signedIn(dir, key)
}

// signedIn reports whether what a folder has is signed with a key, which is beside it.
func (i repositoryIndex) signedIn(dir string, key *openpgp.Entity) bool {
	read := func(name string) []byte {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // none is as wrong as another
		return text
	}
	var public bytes.Buffer
	if err := armored(&public, openpgp.PublicKeyType, key.Serialize); err != nil || !bytes.Equal(read(publicFile), public.Bytes()) {
		return false
	}
	text, keys := read(i.top), openpgp.EntityList{key}
	if _, err := openpgp.CheckArmoredDetachedSignature(keys, bytes.NewReader(text), bytes.NewReader(read(i.signature)), nil); err != nil {
		return false
	}
	if i.top != "Release" {
		return true
	}
	inline, _ := clearsign.Decode(read("InRelease"))
	if inline == nil || !bytes.Equal(bytes.TrimSpace(inline.Plaintext), bytes.TrimSpace(text)) {
		return false
	}
	_, err := inline.VerifySignature(keys, nil)
	return err == nil
}

// republish writes anew what the store itself publishes of sets that are whole, where it is not as it should be.
func (s *Store) republish(ctx context.Context) (flaws []Flaw, err error) {
	sets, err := s.PackageSets()
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		if !s.LookPackages(set).There {
			continue // what is missing is told of each package
		}
		has, err := s.HasPackages(set)
		if err == nil && !has {
			flaws = append(flaws, Flaw{set.dir(), "its index or a signature of it is missing or wrong; written anew"})
			err = s.publish(ctx, set)
		}
		if err != nil {
			return flaws, err
		}
	}
	return flaws, nil
}

// publish writes the index of a set beside its packages, signed with the store's key: the folder is a
// repository, for machines that kubexm does not install. Its own hosts get theirs
// another way (ADR 0019). What is as it should be is left alone.
func (s *Store) publish(ctx context.Context, set PackageSet) error {
	index, err := s.repositoryIndex(set)
	if err != nil {
		return err
	}
	key, err := s.signingKey()
	dir := s.file(set.dir())
	if err != nil || index.isIn(dir, key) {
		return err
	}
	var detached, public bytes.Buffer
	text := index.files[index.top]
	inline, err := clearsigned(key, text)
	err = errors.Join(err, openpgp.ArmoredDetachSign(&detached, key, bytes.NewReader(text), nil), armored(&public, openpgp.PublicKeyType, key.Serialize))
	if err != nil {
		return fmt.Errorf("signing the index of %s: %w", set, err)
	}
	index.files[publicFile], index.files[index.signature] = public.Bytes(), detached.Bytes()
	if index.top == "Release" {
		index.files["InRelease"] = inline
	}
	delete(index.files, index.top)
	for name, text := range index.files {
		err = errors.Join(err, replace(ctx, filepath.Join(dir, name), text))
	}
	return errors.Join(err, replace(ctx, filepath.Join(dir, index.top), text)) // last: it tells the next time that all is there
}

// isPublished reports whether a path is one that publish writes.
func isPublished(key string) bool {
	part := strings.Split(key, "/")
	if key == signingFile {
		return true
	}
	if len(part) < 4 || part[0] != systemsDir {
		return false
	}
	switch path.Join(part[3:]...) {
	case "Packages", "Release", "Release.gpg", "InRelease", publicFile, "repodata/repomd.xml", "repodata/repomd.xml.asc", "repodata/primary.xml.gz":
		return true
	}
	return false
}

// dated begins the line of a Release that says when it was made.
const dated = "Date: "

// release is the file of that name of a repository without suites: https://wiki.debian.org/DebianRepository/Format.
func release(set PackageSet, packages []byte) []byte {
	return fmt.Appendf(nil, "Origin: kubexm\nLabel: kubexm\nSuite: %[1]s\nCodename: %[1]s\nArchitectures: %[2]s\n"+dated+"%[3]s\nSHA256:\n %[4]x %[5]d Packages\n",
		set.System, set.Arch, time.Now().UTC().Format(time.RFC1123), sha256.Sum256(packages), len(packages))
}

// undated is a text without its line of the date.
func undated(text []byte) []byte {
	var lines [][]byte
	for l := range bytes.Lines(text) {
		if !bytes.HasPrefix(l, []byte(dated)) {
			lines = append(lines, l)
		}
	}
	return bytes.Join(lines, nil)
}

func clearsigned(key *openpgp.Entity, text []byte) ([]byte, error) {
	var signed bytes.Buffer
	w, err := clearsign.Encode(&signed, key.PrivateKey, nil)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(text)
	err = errors.Join(err, w.Close())
	return signed.Bytes(), err
}

func armored(to io.Writer, kind string, write func(io.Writer) error) error {
	w, err := armor.Encode(to, kind, nil)
	if err != nil {
		return err
	}
	return errors.Join(write(w), w.Close())
}

// signingKey returns the key of the store's repositories. It is made when it is first asked for: RSA, for the
// package managers of CentOS 7 know nothing newer.
func (s *Store) signingKey() (*openpgp.Entity, error) {
	key, err := s.readSigningKey()
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeSigningKey(s.file(signingFile)); err != nil {
			return nil, fmt.Errorf("making the key that signs repositories: %w", err)
		}
		return s.readSigningKey()
	}
	return key, err
}

// readSigningKey returns the key that was made; fs.ErrNotExist where none was.
func (s *Store) readSigningKey() (*openpgp.Entity, error) {
	file := s.file(signingFile)
	text, err := os.ReadFile(file)
	var keys openpgp.EntityList
	if err == nil {
		keys, err = openpgp.ReadArmoredKeyRing(bytes.NewReader(text))
	}
	if err == nil && (len(keys) != 1 || keys[0].PrivateKey == nil) {
		err = errors.New("it holds no private key")
	}
	if err != nil {
		return nil, fault.Advise(fmt.Errorf("reading the key that signs repositories, %s: %w", file, err),
			"remove the file: another key is made, which machines that use the repositories must be given")
	}
	return keys[0], nil
}

// newSigningKey makes a key that only signs: openpgp.NewEntity would make a second one, to encrypt with, for
// nobody, in another half second.
func newSigningKey() (*openpgp.Entity, error) {
	secret, err := rsa.GenerateKey(rand.Reader, 3072)
	if err != nil {
		return nil, err
	}
	private := packet.NewSignerPrivateKey(time.Now(), secret)
	key := &openpgp.Entity{PrimaryKey: &private.PublicKey, PrivateKey: private, Identities: map[string]*openpgp.Identity{}}
	return key, key.AddUserId("kubexm", "packages of this store", "", nil)
}

// makeSigningKey makes the file, unless another kubexm does so first.
func makeSigningKey(file string) error {
	key, err := newSigningKey()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), "signing*.part") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = armored(f, openpgp.PrivateKeyType, func(w io.Writer) error { return key.SerializePrivate(w, nil) })
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Link(f.Name(), file); errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Package backup is the format of backups: what it takes to make a cluster again, in a tar, compressed with zstd, and encrypted with age. Those programs
// open it, too: age -d -i KEY FILE | zstd -d | tar -x, and then sha256sum -c SHA256SUMS.
package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// What is in every backup.
const (
	ManifestName = "backup.json" // first
	sumsName     = "SHA256SUMS"  // last: of all others
	SnapshotName = "etcd.db"     // of etcd, unless that is somebody else's
	ConfigName   = "cluster.yaml"
)

// Manifest says what a backup is of.
type Manifest struct {
	Format     int       `json:"format"` // of backups: 1
	Cluster    string    `json:"cluster"`
	ID         string    `json:"id"` // of the cluster
	Taken      time.Time `json:"taken"`
	Kubexm     string    `json:"kubexm,omitempty"` // the version that took it
	Kubernetes string    `json:"kubernetes,omitempty"`
	Etcd       string    `json:"etcd,omitempty"`   // version
	Prefix     string    `json:"prefix,omitempty"` // of the keys of the API servers in etcd
	Endpoint   string    `json:"endpoint"`         // URL of the API server
	Hosts      []Host    `json:"hosts"`
	// Fields of the configuration that a cluster made of it must have, too, and their values.
	Fixed map[string]string `json:"fixed,omitempty"`
}

// Host is a host that the cluster had.
type Host struct {
	Name    string   `json:"name"`
	Address string   `json:"address"` // by which the cluster knew it
	Roles   []string `json:"roles"`
}

// Is reports whether the host had a role.
func (h Host) Is(role string) bool { return slices.Contains(h.Roles, role) }

const format = 1

// Entry is a file of a backup.
type Entry struct {
	Name  string // relative path
	Size  int64
	Write func(io.Writer) error // writes Size bytes
}

// Bytes is an entry that is in memory.
func Bytes(name string, data []byte) Entry {
	return Entry{name, int64(len(data)), func(w io.Writer) error { _, err := w.Write(data); return err }}
}

// Write writes a backup that recipients can read; where there are none, everybody can. Nothing is kept in memory or in other files.
func Write(w io.Writer, recipients []Recipient, m Manifest, entries ...Entry) (err error) {
	m.Format = format
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	var ends []io.Closer // the last first
	defer func() {
		for i := len(ends) - 1; i >= 0; i-- {
			if end := ends[i].Close(); err == nil {
				err = end
			}
		}
	}()
	if len(recipients) > 0 {
		sealed, err := age.Encrypt(w, recipients...)
		if err != nil {
			return err
		}
		w, ends = sealed, append(ends, sealed)
	}
	packed, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	files := tar.NewWriter(packed)
	ends = append(ends, packed, files)
	var sums bytes.Buffer
	add := func(e Entry) error {
		if err := files.WriteHeader(&tar.Header{Name: e.Name, Size: e.Size, Mode: 0o600, ModTime: m.Taken}); err != nil {
			return err
		}
		hash := sha256.New()
		if err := e.Write(io.MultiWriter(files, hash)); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", hash.Sum(nil), e.Name)
		return files.Flush() // which finds one that is too short
	}
	for _, e := range append([]Entry{Bytes(ManifestName, append(text, '\n'))}, entries...) {
		if err := add(e); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	return add(Bytes(sumsName, bytes.Clone(sums.Bytes())))
}

// ErrRecipient is a backup that none of the keys that are there can open.
var ErrRecipient = errors.New("it is encrypted for others than those whose keys are given")

// open finds out how a backup is packed.
func open(r io.Reader, keys []Key) (*tar.Reader, func(), error) {
	start := make([]byte, len(magic))
	n, err := io.ReadFull(r, start)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	r = io.MultiReader(bytes.NewReader(start[:n]), r)
	switch {
	case string(start[:n]) == magic:
		if len(keys) == 0 {
			return nil, nil, fault.Advise(errors.New("it is encrypted, and no key is given"), "give the file of the recovery key: --identity FILE")
		}
		if r, err = age.Decrypt(r, keys...); err != nil {
			if no, is := errors.AsType[*age.NoIdentityMatchError](err); is && no != nil {
				err = ErrRecipient
			}
			return nil, nil, err
		}
	case !bytes.HasPrefix(start, packedMagic):
		return nil, nil, errors.New("it is no backup of kubexm")
	}
	unpacked, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(64<<20))
	if err != nil {
		return nil, nil, err
	}
	return tar.NewReader(unpacked), unpacked.Close, nil
}

// Starts of files (https://age-encryption.org/v1, RFC 8878 section 3.1.1).
const magic = "age-encryption.org/v1\n"

var packedMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// Read reads a backup to its end, and calls each for its files in their order. Only when it returns no error is what each was given whole, and all that there
// was: a name never leads out of a directory, and has no second file.
func Read(r io.Reader, keys []Key, each func(name string, size int64, r io.Reader) error) (*Manifest, error) {
	files, done, err := open(r, keys)
	if err != nil {
		return nil, err
	}
	defer done()
	var m Manifest
	sums := map[string]string{}
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("it was cut off: it does not end with " + sumsName)
		}
		if err != nil {
			return nil, damaged(err)
		}
		if _, twice := sums[h.Name]; twice || h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) {
			return nil, fmt.Errorf("it has what no backup of kubexm has: %q", h.Name)
		}
		hash := sha256.New()
		body := io.TeeReader(files, hash)
		switch {
		case h.Name == sumsName:
			if err := check(body, sums); err != nil {
				return nil, err
			}
			return &m, ended(files)
		case len(sums) == 0:
			if err := m.read(h.Name, io.LimitReader(body, 1<<20)); err != nil {
				return nil, err
			}
		default:
			if err := each(h.Name, h.Size, body); err != nil {
				return nil, damaged(err)
			}
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			return nil, damaged(err)
		}
		sums[h.Name] = hex.EncodeToString(hash.Sum(nil))
	}
}

// ReadManifest reads what a backup is of, and no further: that it is whole is for Read to say.
func ReadManifest(r io.Reader, keys []Key) (*Manifest, error) {
	files, done, err := open(r, keys)
	if err != nil {
		return nil, err
	}
	defer done()
	h, err := files.Next()
	if err != nil {
		return nil, damaged(err)
	}
	m := &Manifest{}
	return m, m.read(h.Name, io.LimitReader(files, 1<<20))
}

var named = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// read reads the manifest.
func (m *Manifest) read(name string, r io.Reader) error {
	if name != ManifestName {
		return errors.New("it is no backup of kubexm: it does not begin with " + ManifestName)
	}
	if err := json.NewDecoder(r).Decode(m); err != nil {
		return damaged(err)
	}
	switch {
	case m.Format != format:
		return fmt.Errorf("it has format %d, and this kubexm reads %d", m.Format, format)
	case !named.MatchString(m.Cluster): // it becomes part of paths
		return fmt.Errorf("it is of a cluster with a name that no cluster has: %q", m.Cluster)
	}
	return nil
}

// check compares the sums at the end.
func check(r io.Reader, sums map[string]string) error {
	text, err := io.ReadAll(io.LimitReader(r, 16<<20))
	if err != nil {
		return damaged(err)
	}
	for l := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "  ")
		if sums[name] != sum {
			return fmt.Errorf("it was damaged: the checksum of %s is another", name)
		}
		delete(sums, name)
	}
	for name := range sums {
		return fmt.Errorf("it was damaged: it has no checksum of %s", name)
	}
	return nil
}

// ended reads to the end: only there age and zstd know that nothing is missing.
func ended(files *tar.Reader) error {
	switch h, err := files.Next(); {
	case err == nil:
		return fmt.Errorf("it has what no backup of kubexm has: %q", h.Name)
	case !errors.Is(err, io.EOF):
		return damaged(err)
	}
	return nil
}

// damaged says what was not read as it was written. What the receiver could not write is its own affair.
func damaged(err error) error {
	text := err.Error()
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it was cut off")
	case strings.Contains(text, "authenticate payload chunk"), errors.Is(err, zstd.ErrCRCMismatch), errors.Is(err, zstd.ErrMagicMismatch), errors.Is(err, tar.ErrHeader):
		return fmt.Errorf("it was cut off, damaged or changed: %w", err)
	}
	return err
}

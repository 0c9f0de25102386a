package distro

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
)

// Names of files of repositories.
const (
	debList, debTop, debSigned = "Packages", "Release", "InRelease" // https://wiki.debian.org/DebianRepository/Format
	rpmList, rpmTop            = "repodata/primary.xml.gz", "repodata/repomd.xml"
	publicFile                 = "kubexm.asc" // the public part of the key that signs it
)

// Metadata is what makes a repository of a folder of packages for machines that believe a signature. Unlike an
// Index it does not depend on where the folder is, and leads no package manager there.
type Metadata struct {
	Files map[string][]byte // by path in the folder, but for the signatures
	Top   string            // the path of the one that is signed, and that vouches for the list of packages
}

// Metadata returns the metadata of a folder that holds packages for an architecture. That of apt has the date of today.
func (s System) Metadata(arch string, all []Entry) (Metadata, error) {
	index, err := s.Index("/", all)
	if err != nil {
		return Metadata{}, err
	}
	if s.Manager == "apt" {
		list := index[debList]
		return Metadata{map[string][]byte{debList: list, debTop: s.release(arch, list)}, debTop}, nil
	}
	return Metadata{map[string][]byte{rpmList: index[rpmList], rpmTop: index[rpmTop]}, rpmTop}, nil
}

// IsMetadata reports whether a path in the folder of a repository is one of its metadata, signatures or keys.
func IsMetadata(path string) bool {
	switch path {
	case debList, debTop, detachedFile(debTop), debSigned, rpmList, rpmTop, detachedFile(rpmTop), publicFile:
		return true
	}
	return false
}

// detachedFile is where the signature of a file is looked for.
func detachedFile(top string) string {
	if top == debTop {
		return "Release.gpg"
	}
	return top + ".asc"
}

// Sign returns the files to put beside the metadata: signatures by a key, and the public part of that.
func (m Metadata) Sign(key Key) (map[string][]byte, error) {
	text := m.Files[m.Top]
	public, err := key.public()
	detached, failed := key.detached(text)
	files := map[string][]byte{publicFile: public, detachedFile(m.Top): detached}
	if err = errors.Join(err, failed); err == nil && m.Top == debTop {
		files[debSigned], err = key.clearsigned(text)
	}
	return files, err
}

// IsIn reports whether a folder has the metadata as it should be, whatever its date is, signed with a key.
func (m Metadata) IsIn(dir string, key Key) bool {
	for name, text := range m.Files {
		is, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(undated(is), undated(text)) {
			return false
		}
	}
	return m.signedIn(dir, key)
}

// signedIn reports whether what a folder has is signed with a key, which is beside it.
func (m Metadata) signedIn(dir string, key Key) bool {
	read := func(name string) []byte {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // none is as wrong as another
		return text
	}
	if public, err := key.public(); err != nil || !bytes.Equal(read(publicFile), public) {
		return false
	}
	text, keys := read(m.Top), openpgp.EntityList{key.entity}
	if _, err := openpgp.CheckArmoredDetachedSignature(keys, bytes.NewReader(text), bytes.NewReader(read(detachedFile(m.Top))), nil); err != nil {
		return false
	}
	if m.Top != debTop {
		return true
	}
	inline, _ := clearsign.Decode(read(debSigned))
	if inline == nil || !bytes.Equal(bytes.TrimSpace(inline.Plaintext), bytes.TrimSpace(text)) {
		return false
	}
	_, err := inline.VerifySignature(keys, nil)
	return err == nil
}

// dated begins the line of a Release that says when it was made.
const dated = "Date: "

// release is the file of that name of a repository without suites, of which packages is the list.
func (s System) release(arch string, packages []byte) []byte {
	return fmt.Appendf(nil, "Origin: kubexm\nLabel: kubexm\nSuite: %[1]s\nCodename: %[1]s\nArchitectures: %[2]s\n"+dated+"%[3]s\nSHA256:\n %[4]x %[5]d Packages\n",
		s.Name, arch, time.Now().UTC().Format(time.RFC1123), sha256.Sum256(packages), len(packages))
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

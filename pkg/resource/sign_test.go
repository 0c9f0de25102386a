package resource

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/kubexm/kubexm/pkg/signature"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// signKey writes a key of its own for each seed, and returns its file and the lines of its public key.
func signKey(t *testing.T, seed byte) (file string, public []string) {
	t.Helper()
	t.Setenv("SSH_AUTH_SOCK", "")
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "id")
	err = os.WriteFile(file, pem.EncodeToMemory(block), 0o600)
	err = errors.Join(err, os.WriteFile(file+".pub", ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o600))
	if public, readErr := signature.PublicKeys(file+".pub", SignatureSpace); errors.Join(err, readErr) == nil {
		return file, public
	}
	t.Fatal(err)
	return "", nil
}

var signedBy = regexp.MustCompile(`SHA256:[A-Za-z0-9+/]{43}`)

func TestSignedBundle(t *testing.T) {
	s, items := stocked(t)
	dir := t.TempDir()
	key, public := signKey(t, 1)
	_, other := signKey(t, 2)
	b := Bundle{Path: filepath.Join(dir, "signed"), Program: "v1.2.3", SignKey: key, Items: items}
	first, again := mustPack(t, s, b), mustPack(t, s, b)
	if first[0].SHA256 != again[0].SHA256 {
		t.Error("signed again it is another")
	}
	if all := unpackBundle(t, b.Path); all[1].Name != "manifest.json.sig" || all[2].Name != lockFile {
		t.Errorf("members %s, %s", all[1].Name, all[2].Name)
	}
	b.Limit = 100_000
	b.Path = filepath.Join(dir, "volumes")
	mustPack(t, s, b)
	for _, name := range []string{"signed", "volumes"} {
		for _, keys := range [][]string{nil, public, append(other, public...)} {
			to := empty(t)
			got, err := to.Import(t.Context(), filepath.Join(dir, name), keys, nil)
			if err != nil || !signedBy.MatchString(got.Signer) || got.Trusted != (keys != nil) || got.Added != 8 {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			complete(t, to, items)
		}
	}
}

// A bundle that is not signed as it must be is refused before anything of it is believed.
func TestSignedBundleRefuses(t *testing.T) {
	s, items := stocked(t)
	dir := t.TempDir()
	key, public := signKey(t, 1)
	_, other := signKey(t, 2)
	good := filepath.Join(dir, "good")
	mustPack(t, s, Bundle{Path: good, SignKey: key, Items: items})
	elsewhere, err := sign([]byte("{}"), key)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, tt := range []struct {
		name string
		keys []string
		edit func(all []entry) []entry
	}{
		{"not signed", public, func(all []entry) []entry { return slices.Delete(all, 1, 2) }},
		{"another key", other, func(all []entry) []entry { return all }},
		{"a changed manifest", public, func(all []entry) []entry {
			all[0].body = bytes.Replace(all[0].body, []byte(`"cluster": ""`), []byte(`"cluster": "x"`), 1)
			return all
		}},
		{"a changed manifest, and no key asked for", nil, func(all []entry) []entry { all[0].body = append(all[0].body, '\n'); return all }},
		{"a manifest that is none", public, func(all []entry) []entry { all[0].body = []byte("hello"); return all }},
		{"a signature of something else", public, func(all []entry) []entry { all[1].body = elsewhere; return all }},
		{"a signature that is none, and no key asked for", nil, func(all []entry) []entry { all[1].body = []byte("hello"); return all }},
		{"a signature in the wrong place", public, func(all []entry) []entry { all[1], all[2] = all[2], all[1]; return all }},
		{"a signature in the wrong place, and no key asked for", nil, func(all []entry) []entry { all[1], all[2] = all[2], all[1]; return all }},
		{"two signatures", public, func(all []entry) []entry { return slices.Insert(all, 1, all[1]) }},
		{"a member changed after it was signed", public, func(all []entry) []entry { last(all).body = noise(9, len(program)); return all }},
		{"nothing after the manifest", public, func(all []entry) []entry { return all[:1] }},
	} {
		file, to := filepath.Join(t.TempDir(), "bundle"), empty(t)
		packBundle(t, file, tt.edit(unpackBundle(t, good)))
		_, err := to.Import(t.Context(), file, tt.keys, nil)
		text.WriteString("== " + tt.name + "\n" + varies.ReplaceAllString(told(err, file, "BUNDLE", to.dir, "STORE"), "(VARIES)"))
		unharmed(t, to, good, items)
	}
	golden.Equal(t, text.String())
	if _, err := s.Pack(t.Context(), Bundle{Path: good, SignKey: filepath.Join(dir, "nonexistent"), Items: items}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("signed with a key that is not there: %v", err)
	}
}

// Bundles of the first format have neither a signature nor a list of contents.
func TestImportOlder(t *testing.T) {
	s, items := stocked(t)
	file := filepath.Join(t.TempDir(), "bundle")
	mustPack(t, s, Bundle{Path: file, Items: items})
	all := list(t, unpackBundle(t, file), func(m *manifest, _ *lock) {
		m.Format, m.Members = 1, slices.Delete(m.Members, 1, 2)
	})
	packBundle(t, file, slices.Delete(all, 2, 3))
	to := empty(t)
	if got, err := to.Import(t.Context(), file, nil, nil); err != nil || got.Added != 8 || got.Signer != "" {
		t.Errorf("got %+v, %v", got, err)
	}
	complete(t, to, items)
}

func TestSBOM(t *testing.T) {
	s, items := stocked(t)
	dir := t.TempDir()
	b := Bundle{Path: filepath.Join(dir, "bundle"), Cluster: "demo", Program: "v1.2.3", Items: items}
	mustPack(t, s, b)
	slices.Reverse(b.Items)
	file := filepath.Join(dir, "lists", "sbom.json")
	if err := s.WriteSBOM(t.Context(), file, b); err != nil {
		t.Fatal(err)
	}
	alone, err := os.ReadFile(file)
	if all := unpackBundle(t, b.Path); err != nil || all[2].Name != sbomFile || !bytes.Equal(all[2].body, alone) {
		t.Errorf("the list in the bundle (%s) is another: %v", all[2].Name, err)
	}
	golden.Equal(t, string(alone))
	b.Items = []Item{ImageItem("registry.k8s.io/pause:9", "amd64")}
	if err := s.WriteSBOM(t.Context(), file, b); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of an image that is not there: %v", err)
	}
}

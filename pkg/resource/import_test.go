package resource

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubexm/kubexm/pkg/util/golden"
)

// entry is one of a bundle's tar.
type entry struct {
	tar.Header
	body []byte
}

func unpackBundle(t testing.TB, file string) (all []entry) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, entry{*h, body})
	}
}

func packBundle(t testing.TB, file string, all []entry, more ...byte) {
	t.Helper()
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, e := range all {
		if e.Typeflag == tar.TypeReg {
			e.Size = int64(len(e.body))
		}
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(more); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(z.Close(), os.WriteFile(file, out.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// list changes the manifest of a bundle, and the lock in it where that is not nil.
func list(t testing.TB, all []entry, edit func(m *manifest, l *lock)) []entry {
	t.Helper()
	var m manifest
	if err := json.Unmarshal(all[0].body, &m); err != nil {
		t.Fatal(err)
	}
	l, err := parseLock(lockFile, all[1].body)
	if err != nil {
		t.Fatal(err)
	}
	edit(&m, &l)
	if all[1].body, err = formatLock(l); err != nil {
		t.Fatal(err)
	}
	if len(m.Members) > 0 && m.Members[0].SHA256 == "" {
		m.Members[0].Size, m.Members[0].SHA256 = int64(len(all[1].body)), sumOf(all[1].body)
	}
	all[0].body = mustJSON(t, m)
	return all
}

// relock makes an edit of the lock one that the manifest knows of.
func relock(edit func(l *lock)) func(t testing.TB, all []entry) []entry {
	return func(t testing.TB, all []entry) []entry {
		return list(t, all, func(m *manifest, l *lock) {
			edit(l)
			m.Members[0].SHA256 = ""
		})
	}
}

func remanifest(edit func(m *manifest)) func(t testing.TB, all []entry) []entry {
	return func(t testing.TB, all []entry) []entry {
		return list(t, all, func(m *manifest, _ *lock) { edit(m) })
	}
}

const kubeletKey = "kubelet/1.99.7/amd64/kubelet"

// last is the member that the tests change: kubelet.
func last(all []entry) *entry { return &all[len(all)-1] }

var varies = regexp.MustCompile(`SHA-256 is \w{64}, want \w{64}|after [0-9.]+ (Ki)?B`)

func TestImportRefuses(t *testing.T) {
	s, items := stocked(t)
	good := filepath.Join(t.TempDir(), "good")
	mustPack(t, s, Bundle{Path: good, Program: "v9.9.9", Items: items})
	other := strings.Repeat("0123456789abcdef", 4)
	for _, tt := range []struct {
		name string
		edit func(t testing.TB, all []entry) []entry
	}{
		{"a changed member", func(_ testing.TB, all []entry) []entry { last(all).body = noise(9, len(program)); return all }},
		{"a longer member", func(_ testing.TB, all []entry) []entry { last(all).body = append(last(all).body, 'x'); return all }},
		{"a changed lock", func(_ testing.TB, all []entry) []entry {
			all[1].body = bytes.Replace(all[1].body, []byte("files"), []byte("FILES"), 1)
			return all
		}},
		{"a member missing", func(_ testing.TB, all []entry) []entry { return slices.Delete(all, 3, 4) }},
		{"the last member missing", func(_ testing.TB, all []entry) []entry { return all[:len(all)-1] }},
		{"a member twice", func(_ testing.TB, all []entry) []entry { return slices.Insert(all, 4, all[3]) }},
		{"the last member twice", func(_ testing.TB, all []entry) []entry { return append(all, *last(all)) }},
		{"a member that is not listed", func(_ testing.TB, all []entry) []entry {
			e := all[2]
			e.Name = "kubectl/1.99.7/amd64/kubectl"
			return slices.Insert(all, 2, e)
		}},
		{"a path out of the store", func(_ testing.TB, all []entry) []entry { last(all).Name = "../../../etc/passwd"; return all }},
		{"an absolute path", func(_ testing.TB, all []entry) []entry { last(all).Name = "/etc/passwd"; return all }},
		{"a symbolic link", func(_ testing.TB, all []entry) []entry {
			*last(all) = entry{Header: tar.Header{Name: kubeletKey, Typeflag: tar.TypeSymlink, Linkname: "/etc/shadow"}}
			return all
		}},
		{"a hard link", func(_ testing.TB, all []entry) []entry {
			*last(all) = entry{Header: tar.Header{Name: kubeletKey, Typeflag: tar.TypeLink, Linkname: "lock.json"}}
			return all
		}},
		{"a path out of the store, listed", remanifest(func(m *manifest) { m.Members[3].Path = "kubelet/../../../etc/passwd" })},
		{"a path of the store's own, listed", remanifest(func(m *manifest) { m.Members[3].Path = "images/index.json" })},
		{"a program that is not known, listed", remanifest(func(m *manifest) { m.Members[3].Path = "kubelit/1.2.3/amd64/kubelit" })},
		{"a blob under another name, listed", remanifest(func(m *manifest) { m.Members[3].SHA256 = other })},
		{"listed twice", remanifest(func(m *manifest) { m.Members = append(m.Members, m.Members[3]) })},
		{"no checksum", remanifest(func(m *manifest) { m.Members[3].SHA256 = "" })},
		{"too large", remanifest(func(m *manifest) { m.Members[3].Size = maxMember + 1 })},
		{"negative", remanifest(func(m *manifest) { m.Members[3].Size = -1 })},
		{"a huge lock", remanifest(func(m *manifest) { m.Members[0].Size = maxText + 1 })},
		{"a newer format", remanifest(func(m *manifest) { m.Format = 3 })},
		{"no format", remanifest(func(m *manifest) { m.Format = 0 })},
		{"no members", remanifest(func(m *manifest) { m.Members = nil })},
		{"a manifest that is none", func(_ testing.TB, all []entry) []entry { all[0].body = []byte("hello"); return all }},
		{"no manifest", func(_ testing.TB, all []entry) []entry { return all[1:] }},
		{"a sum that the lock does not have", relock(func(l *lock) { delete(l.Files, kubeletKey) })},
		{"another sum in the lock", relock(func(l *lock) { l.Files[kubeletKey] = lockedFile{SHA256: other} })},
		{"an image that is not there", relock(func(l *lock) {
			l.Images["x"] = lockedImage{Manifests: map[string]ocispec.Descriptor{"amd64": {Digest: "sha256:../../../x"}}}
		})},
		{"no part of an image", func(t testing.TB, all []entry) []entry {
			gone := ""
			return list(t, slices.DeleteFunc(all, func(e entry) bool {
				if gone == "" && e.Size == 300_000 {
					gone = e.Name
				}
				return e.Name == gone
			}), func(m *manifest, _ *lock) {
				m.Members = slices.DeleteFunc(m.Members, func(p packaged) bool { return p.Path == gone })
			})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file, to := filepath.Join(t.TempDir(), "bundle"), empty(t)
			packBundle(t, file, tt.edit(t, unpackBundle(t, good)))
			_, err := to.Import(t.Context(), file, nil, nil)
			golden.Equal(t, varies.ReplaceAllString(told(err, file, "BUNDLE", to.dir, "STORE"), "(VARIES)"))
			unharmed(t, to, good, items)
		})
	}
}

// unharmed checks that a failed import left nothing that counts, and that a good one still works.
func unharmed(t testing.TB, s *Store, good string, items []Item) {
	t.Helper()
	if _, err := os.Stat(s.lockPath()); err == nil {
		t.Error("the lock was written")
	}
	nothingLeft(t, s)
	if _, err := s.Import(t.Context(), good, nil, nil); err != nil {
		t.Errorf("a good bundle afterwards: %v", err)
	}
	complete(t, s, items)
}

func TestImportRefusesForeign(t *testing.T) {
	var text strings.Builder
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "x", Mode: 0o600}), w.Close()); err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		body []byte
	}{
		{"empty", nil},
		{"one byte", []byte("x")},
		{"text", []byte("apiVersion: kubexm.io/v1alpha1\n")},
		{"gzip", tgz(t, "x", "y")},
		{"compressed, and no tar", z.EncodeAll(noise(3, 4000), nil)},
		{"another tar", z.EncodeAll(archive.Bytes(), nil)},
		{"an empty tar", z.EncodeAll(make([]byte, 1024), nil)},
		{"nothing, compressed", z.EncodeAll(nil, nil)},
	} {
		file, to := filepath.Join(t.TempDir(), "bundle"), empty(t)
		if err := os.WriteFile(file, tt.body, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := to.Import(t.Context(), file, nil, nil)
		fmt.Fprintf(&text, "== %s\n%s", tt.name, told(err, file, "BUNDLE"))
	}
	golden.Equal(t, text.String())
}

func TestImportRefusesMore(t *testing.T) {
	s, items := stocked(t)
	good := filepath.Join(t.TempDir(), "good")
	mustPack(t, s, Bundle{Path: good, Items: items})
	file := filepath.Join(t.TempDir(), "bundle")
	packBundle(t, file, unpackBundle(t, good), noise(1, 1000)...)
	to := empty(t)
	_, err := to.Import(t.Context(), file, nil, nil)
	golden.Equal(t, told(err, file, "BUNDLE"))
	unharmed(t, to, good, items)
}

// What a store believes already wins over what a bundle says.
func TestImportConflicts(t *testing.T) {
	s, items := stocked(t)
	file := filepath.Join(t.TempDir(), "bundle")
	mustPack(t, s, Bundle{Path: file, Items: items})
	zeros := strings.Repeat("0", 64)
	var text strings.Builder
	for _, tt := range []struct {
		name string
		edit func(l *lock)
	}{
		{"another file", func(l *lock) { l.Files[kubeletKey] = lockedFile{SHA256: zeros} }},
		{"another image", func(l *lock) { l.Images[pause] = lockedImage{Digest: "sha256:" + zeros} }},
		{"another image for an architecture", func(l *lock) {
			own, err := s.readLock()
			if err != nil {
				t.Fatal(err)
			}
			image := own.Images[pause]
			image.Manifests["amd64"] = ocispec.Descriptor{Digest: "sha256:" + "1111111111111111111111111111111111111111111111111111111111111111"}
			l.Images[pause] = image
		}},
	} {
		to := empty(t)
		if err := to.editLock(t.Context(), func(l *lock) error { tt.edit(l); return nil }); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(to.lockPath())
		_, err := to.Import(t.Context(), file, nil, nil)
		fmt.Fprintf(&text, "== %s\n%s", tt.name, told(err, file, "BUNDLE", to.dir, "STORE"))
		if after, _ := os.ReadFile(to.lockPath()); !bytes.Equal(before, after) {
			t.Errorf("%s: the lock was changed", tt.name)
		}
		if files, _ := filepath.Glob(to.dir + "/*"); len(files) != 1 {
			t.Errorf("%s: something was taken: %q", tt.name, files)
		}
	}
	pinned := "crictl/1.33.0/amd64/crictl-v1.33.0-linux-amd64.tar.gz"
	packBundle(t, file, list(t, unpackBundle(t, file), func(m *manifest, l *lock) {
		l.Files[pinned] = lockedFile{SHA256: zeros}
		m.Members[0].SHA256, m.Members = "", append(m.Members, packaged{pinned, 1, zeros})
	}))
	_, err := empty(t).Import(t.Context(), file, nil, nil)
	fmt.Fprintf(&text, "== another than this program is made for\n%s", told(err, file, "BUNDLE"))
	golden.Equal(t, text.String())
}

// A bundle that is cut off anywhere, or has a bit changed anywhere, is refused, and the
// store takes a good one afterwards.
func TestImportCutOrChanged(t *testing.T) {
	s, items := stocked(t)
	good := filepath.Join(t.TempDir(), "good")
	mustPack(t, s, Bundle{Path: good, Items: items})
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	var at []int
	for n := range 5 {
		at = append(at, n, len(whole)-1-n, n*len(whole)/5)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 6 {
		at = append(at, rnd.IntN(len(whole)), rnd.IntN(min(len(whole), 40_000*(n+1))))
	}
	file := filepath.Join(t.TempDir(), "bundle")
	for k, n := range at {
		for what, body := range map[string][]byte{"cut": whole[:n], "changed": changed(whole, n, byte(1)<<(k%8))} {
			if err := os.WriteFile(file, body, 0o644); err != nil {
				t.Fatal(err)
			}
			to := empty(t)
			_, err := to.Import(t.Context(), file, nil, nil)
			if err == nil && what == "changed" {
				complete(t, to, items) // a bit that means nothing
				continue
			}
			if err == nil || !strings.Contains(fmt.Sprint(err), "importing "+file+": ") {
				t.Fatalf("%s at byte %d: %v", what, n, err)
			}
			if _, lockErr := os.Stat(to.lockPath()); lockErr == nil {
				t.Fatalf("%s at byte %d: the lock was written", what, n)
			}
			if v, verr := to.Verify(t.Context()); verr != nil || slices.ContainsFunc(v.Flaws, func(f Flaw) bool { return strings.Contains(f.What, "want") }) {
				t.Fatalf("%s at byte %d: flaws %v, %v", what, n, v.Flaws, verr)
			}
			if k%20 == 0 {
				unharmed(t, to, good, items)
			}
		}
	}
}

func changed(whole []byte, at int, bit byte) []byte {
	body := bytes.Clone(whole)
	body[at] ^= bit
	return body
}

func TestImportGoesOn(t *testing.T) {
	s, items := stocked(t)
	file, to := filepath.Join(t.TempDir(), "bundle"), empty(t)
	mustPack(t, s, Bundle{Path: file, Items: items})
	ctx, cancel := newCancel(t)
	_, err := to.Import(ctx, file, nil, func(done, total int64) {
		if done > total/2 {
			cancel(errors.New("stopped by the user"))
		}
	})
	if err == nil || !strings.HasSuffix(err.Error(), "stopped by the user") {
		t.Fatalf("got %v", err)
	}
	got, err := to.Import(t.Context(), file, nil, nil)
	if err != nil || got.Present == 0 || got.Added == 0 {
		t.Errorf("after it was stopped: %+v, %v", got, err)
	}
	complete(t, to, items)
}

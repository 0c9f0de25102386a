package resource

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// answers is a machine whose resolver answers with a text, or fails.
type answers struct {
	connector.Connector
	text   string
	err    error
	script string // that was run last
}

func (a *answers) Exec(_ context.Context, c connector.Cmd) error {
	a.script = c.Line
	if c.Stdin != nil {
		in, err := io.ReadAll(c.Stdin)
		if err != nil {
			return err
		}
		a.script += string(in)
	}
	_, _ = c.Stdout.Write([]byte(a.text)) // to memory
	return a.err
}

func (a *answers) runner() *runner.Runner { return runner.New("here", a) }

// publishedDebs serves Debian packages, and returns what apt would tell of them.
func publishedDebs(t *testing.T, names ...string) (base, uris string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := strings.Cut(filepath.Base(r.URL.Path), "_")
		_, _ = w.Write(debOf(name))
	}))
	t.Cleanup(srv.Close)
	for _, n := range names {
		deb := debOf(n)
		uris += fmt.Sprintf("'%s/debian/pool/%s_1%%3a1.0+b1_amd64.deb' %[2]s_1%%3a1.0+b1_amd64.deb %d SHA256:%x\n", srv.URL, n, len(deb), sha256.Sum256(deb))
	}
	return srv.URL, uris
}

func debOf(name string) []byte {
	if name == "socat" {
		return resourcetest.Deb(name, "Provides: netcat (= 1.0), relay", "Depends: libwrap0")
	}
	return resourcetest.Deb(name)
}

func packageStore(t *testing.T, base string) *Store {
	t.Helper()
	s, err := Open(t.TempDir(), source.Config{Mirrors: map[string]string{"http://deb.debian.org/": base + "/"}})
	if err != nil {
		t.Fatal(err)
	}
	s.retry = source.Retry{Rounds: 1, Pause: 1, Longest: 1, Stall: s.retry.Stall}
	return s
}

// signingStore is one that has a key already.
func signingStore(t *testing.T, base string) *Store {
	t.Helper()
	s := packageStore(t, base)
	resourcetest.SigningKey(t, s.dir)
	return s
}

func resolve(t *testing.T, s *Store, a *answers, refresh bool, names ...string) PackageSet {
	t.Helper()
	set, err := s.ResolvePackages(t.Context(), a.runner(), "debian12", "amd64", names, refresh)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestPackages follows packages from their publisher through one store and a bundle into another, and to
// what a host gets to see.
func TestPackages(t *testing.T) {
	base, uris := publishedDebs(t, "socat", "libwrap0")
	s, a := packageStore(t, base), &answers{text: "NOTE: a remark\n" + uris}
	set := resolve(t, s, a, false, "socat")
	for _, want := range []string{"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] " + base + "/debian-security/ bookworm-security main", "ARCH=amd64\n", "set -- socat\n"} {
		if !strings.Contains(a.script, want) {
			t.Errorf("no %q in:\n%s", want, a.script)
		}
	}
	if u := set.Files[1].URL; u != "http://deb.debian.org/debian/pool/socat_1%3a1.0+b1_amd64.deb" || set.Files[1].Name != "socat_1:1.0+b1_amd64.deb" {
		t.Errorf("%+v", set.Files[1])
	}
	if st := s.LookPackages(set); st.There || st.From != base || st.Size != int64(len(debOf("socat"))+len(debOf("libwrap0"))) {
		t.Errorf("before: %+v", st)
	}
	if entries, _ := os.ReadDir(s.dir); len(entries) > 0 {
		t.Errorf("to look has written %v", entries)
	}
	var done, total int64
	if err := s.FetchPackages(t.Context(), set, func(d, of int64) { done, total = d, of }); err != nil {
		t.Fatal(err)
	}
	if st := s.LookPackages(set); !st.There || done != total || done != st.Size {
		t.Errorf("after: %+v, %d of %d", st, done, total)
	}
	bundle := filepath.Join(t.TempDir(), "b.tar.zst")
	if _, err := s.Pack(t.Context(), Bundle{Path: bundle, Items: []Item{set.Item()}}, nil); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "sbom.json")
	if err := s.WriteSBOM(t.Context(), list, Bundle{Items: []Item{set.Item()}}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(list); err != nil || !strings.Contains(string(text), `"pkg:deb/debian/socat@1:1.0%2Bb1?arch=amd64&distro=debian-12"`) {
		t.Errorf("list: %s, %v", text, err)
	}
	other, err := Open(t.TempDir(), source.Config{Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	if is, err := other.Import(t.Context(), bundle, nil, nil); err != nil || is.Added != 2 {
		t.Fatalf("%+v, %v", is, err)
	}
	for _, s := range []*Store{s, other} {
		if v, err := s.Verify(t.Context()); err != nil || len(v.Flaws) > 0 || v.Files != 2 {
			t.Errorf("verify: %+v, %v", v, err)
		}
		if sums := readSums(s.file(set.dir())); len(sums) != 2 {
			t.Errorf("%s has %v", sumsFile, sums)
		}
	}
	again, err := other.Import(t.Context(), bundle, nil, nil)
	if err != nil || again.Present != 2 {
		t.Errorf("%+v, %v", again, err)
	}
	a.err = errors.New("asked without need")
	if again := resolve(t, other, a, true, "socat"); !slices.Equal(again.Files, set.Files) {
		t.Errorf("%+v", again)
	}
	r := &Repository{System: "debian12", Arch: "amd64", Store: other}
	if lacks, err := r.Lacks([]string{"relay", "nothing", "netcat", "libwrap0"}); err != nil || !slices.Equal(lacks, []string{"nothing"}) {
		t.Errorf("lacks %v, %v", lacks, err)
	}
	if files, err := r.Files([]string{"socat", "nothing"}); err != nil || len(files) != 1 || files[0].Path != other.file(set.dir()+"/"+set.Files[1].Name) {
		t.Errorf("%+v, %v", files, err)
	}
	index, err := r.Index("/dir")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(index["Packages"]), "Depends: libwrap0\nDescription: package for tests\nFilename: ./socat_1:1.0+b1_amd64.deb\nSize: ") {
		t.Errorf("%s", index["Packages"])
	}
}

// TestPackagesRefreshed has a newer version published, and names asked for one after the other.
func TestPackagesRefreshed(t *testing.T) {
	base, old := publishedDebs(t, "socat")
	s, a := signingStore(t, base), &answers{text: old}
	fetch := func(refresh bool, names ...string) PackageSet {
		set := resolve(t, s, a, refresh, names...)
		if err := s.FetchPackages(t.Context(), set, nil); err != nil {
			t.Fatal(err)
		}
		return set
	}
	was := fetch(false, "socat")
	a.text = strings.ReplaceAll(old, "+b1", "+b2")
	if is := fetch(false, "socat"); !slices.Equal(was.Files, is.Files) {
		t.Errorf("what the lock has was asked for: %+v", is)
	}
	if is := fetch(true, "socat"); slices.Equal(was.Files, is.Files) {
		t.Errorf("not refreshed: %+v", is)
	}
	_, more := publishedDebs(t, "ipset")
	a.text += strings.ReplaceAll(more, more[1:strings.Index(more, "/debian/")], base)
	is := fetch(false, "ipset")
	if len(is.Files) != 2 || !slices.Equal(is.Names, []string{"ipset", "socat"}) || !strings.Contains(a.script, "set -- 'ipset socat'\n") {
		t.Errorf("%+v, by %s", is, a.script)
	}
	gone, err := s.Prune(t.Context(), []Item{is.Item()}, false)
	if err != nil || len(gone) != 1 || gone[0] != (Pruned{"os/debian12/amd64", was.Files[0].Size}) {
		t.Errorf("pruned %+v, %v", gone, err)
	}
	if st := s.LookPackages(is); !st.There {
		t.Errorf("%+v", st)
	}
	if err := os.Remove(s.file(is.dir() + "/" + is.Files[0].Name)); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Verify(t.Context()); err != nil || len(v.Flaws) != 1 || v.Flaws[0] != (Flaw{"os/debian12/amd64/" + is.Files[0].Name, "it is missing; part of the packages in os/debian12/amd64"}) {
		t.Errorf("verify: %+v, %v", v, err)
	}
	r := &Repository{System: "debian12", Arch: "amd64", Store: s}
	if _, err := r.Lacks([]string{"socat"}); err == nil || !strings.Contains(err.Error(), "missing or damaged: "+is.Files[0].Name) {
		t.Errorf("with a gap: %v", err)
	}
	if gone, err = s.Prune(t.Context(), nil, false); err != nil || len(gone) != 1 {
		t.Errorf("pruned %+v, %v", gone, err)
	}
	if lacks, err := r.Lacks([]string{"socat"}); err != nil || len(lacks) != 1 {
		t.Errorf("lacks %v, %v", lacks, err)
	}
}

// TestPackagesHealed has a store that lacks no package, but something of what it notes of them: as after a power cut.
func TestPackagesHealed(t *testing.T) {
	base, uris := publishedDebs(t, "socat", "libwrap0")
	for name, spoil := range map[string]func(s *Store, set *PackageSet) error{
		"no index":     func(s *Store, set *PackageSet) error { return os.Remove(s.file(set.dir() + "/Release")) },
		"no list":      func(s *Store, set *PackageSet) error { return os.Remove(s.file(set.dir() + "/Packages")) },
		"no sums":      func(s *Store, set *PackageSet) error { return os.Remove(s.file(set.dir() + "/" + sumsFile)) },
		"no lock":      func(s *Store, _ *PackageSet) error { return os.Remove(s.lockPath()) },
		"another name": func(_ *Store, set *PackageSet) error { set.Names = union(set.Names, []string{"libwrap0"}); return nil },
		"less":         func(_ *Store, set *PackageSet) error { set.Files = set.Files[:1]; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := signingStore(t, base)
			set := resolve(t, s, &answers{text: uris}, false, "socat")
			has := func(want bool) {
				t.Helper()
				if is, err := s.HasPackages(set); err != nil || is != want {
					t.Fatalf("got %v, %v", is, err)
				}
			}
			fetch := func() {
				t.Helper()
				has(false)
				if err := s.FetchPackages(t.Context(), set, nil); err != nil {
					t.Fatal(err)
				}
				has(true)
			}
			fetch()
			if err := spoil(s, &set); err != nil {
				t.Fatal(err)
			}
			fetch()
		})
	}
}

// TestPackagesTroubles shows what is said when resolving fails.
func TestPackagesTroubles(t *testing.T) {
	zeros := strings.Repeat("0", 64)
	exit := func(code int, text string) *answers { return &answers{err: connector.NewExitError("sh", code, text)} }
	for name, c := range map[string]struct {
		system string
		a      *answers
		want   string
		advice string
	}{
		"unknown":    {"debian99", exit(0, ""), `unknown operating system "debian99"`, "debian12, debian13"},
		"no network": {"debian12", exit(100, "E: Failed to fetch http://deb.debian.org"), "apt-get: E: Failed to fetch", "proxy"},
		"a path":     {"debian12", &answers{text: "'http://x/.y.deb' y 7 SHA256:" + zeros + "\n"}, `is not a package`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := packageStore(t, "http://127.0.0.1:1").ResolvePackages(t.Context(), c.a.runner(), c.system, "amd64", []string{"y"}, false)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.Advice(err), c.advice) {
				t.Errorf("got %v, advice %s", err, fault.Advice(err))
			}
		})
	}
}

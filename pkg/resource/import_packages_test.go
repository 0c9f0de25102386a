package resource

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// holding is a new store that has the packages that apt tells of, for some names.
func holding(t *testing.T, base, uris string, names ...string) (*Store, PackageSet) {
	t.Helper()
	s := signingStore(t, base)
	set := resolve(t, s, &answers{text: uris}, false, names...)
	if err := s.FetchPackages(t.Context(), set, nil); err != nil {
		t.Fatal(err)
	}
	return s, set
}

// TestForeignPackages has bundles whose lock and packages do not fit.
func TestForeignPackages(t *testing.T) {
	zeros := strings.Repeat("0", 64)
	key := "os/debian12/amd64/socat_1.0_amd64.deb"
	file := map[string]lockedFile{key: {SHA256: zeros}}
	for want, l := range map[string]lock{
		"in no set":                               {Files: file},
		"no checksum of":                          {Systems: map[string]lockedSystem{"os/debian12/amd64": {Files: []string{"x_1_all.deb"}}}},
		"no packages in ../../etc":                {Systems: map[string]lockedSystem{"../../etc": {}}},
		"checksum of etc/x.deb":                   {Files: map[string]lockedFile{"etc/x.deb": {SHA256: zeros}}, Systems: map[string]lockedSystem{"etc": {Files: []string{"x.deb"}}}},
		`has "-o" in os/debian12/amd64`:           {Files: file, Systems: map[string]lockedSystem{"os/debian12/amd64": {[]string{"-o"}, []string{filepath.Base(key)}}}},
		"checksum of os/debian12/amd64/../../../": {Files: file, Systems: map[string]lockedSystem{"os/debian12/amd64": {Files: []string{"../../../" + key}}}},
		"checksum of os/debian12/./amd64/socat":   {Files: file, Systems: map[string]lockedSystem{"os/debian12/./amd64": {Files: []string{filepath.Base(key)}}}},
		"checksum of os/debian12/amd64/socat":     {Files: file, Systems: map[string]lockedSystem{"os/debian12": {Files: []string{"amd64/" + filepath.Base(key)}}}},
	} {
		if err := l.coveredPackages(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := (lock{Files: file, Systems: map[string]lockedSystem{"os/debian12/amd64": {Files: []string{filepath.Base(key)}}}}).coveredPackages(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"os/debian12/amd64/../x.deb", "os/debian12/amd64/.x.deb", "os/debian12/riscv64/x_1_all.deb", "os/debian99/amd64/x_1_all.deb", "os/debian12/amd64/x.rpm", "os/debian12/amd64/a/x.deb"} {
		if isPackage(bad) {
			t.Errorf("%s passes for a package", bad)
		}
	}
}

// TestPackageSizes has a bundle whose lock gives a package another size than its manifest does.
func TestPackageSizes(t *testing.T) {
	base, uris := publishedDebs(t, "socat")
	s, set := holding(t, base, uris, "socat")
	const want = "lock file and manifest disagree about os/debian12/amd64/socat_"
	for _, add := range []int64{0, 1} {
		err := s.editLock(t.Context(), func(l *lock) error {
			key := set.dir() + "/" + set.Files[0].Name
			f := l.Files[key]
			f.Size += add
			l.Files[key] = f
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		bundle := filepath.Join(t.TempDir(), "b.tar.zst")
		if _, err := s.Pack(t.Context(), Bundle{Path: bundle, Items: []Item{set.Item()}}, nil); err != nil {
			t.Fatal(err)
		}
		other, err := Open(t.TempDir(), source.Config{Offline: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Import(t.Context(), bundle, nil, nil); (err == nil) != (add == 0) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes more: got %v", add, err)
		}
	}
}

// TestImportPackages imports a newer set into a store that has an older one, whole and with a gap.
func TestImportPackages(t *testing.T) {
	base, old := publishedDebs(t, "socat", "libwrap0")
	from, fresh := holding(t, base, strings.ReplaceAll(old, "+b1", "+b2"), "socat")
	bundle := filepath.Join(t.TempDir(), "b.tar.zst")
	if _, err := from.Pack(t.Context(), Bundle{Path: bundle, Items: []Item{fresh.Item()}}, nil); err != nil {
		t.Fatal(err)
	}
	for gap, want := range map[string]int{"": 2, "libwrap0_1:1.0+b1_amd64.deb": 2} {
		s, set := holding(t, base, old, "socat")
		if gap != "" {
			if err := os.Remove(s.file(set.dir() + "/" + gap)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Import(t.Context(), bundle, nil, nil); err != nil {
			t.Fatal(err)
		}
		sets, err := s.PackageSets()
		if err != nil || len(sets) != 1 || len(sets[0].Files) != want {
			t.Errorf("gap %q: %+v, %v", gap, sets, err)
		}
		index, err := os.ReadFile(s.file(set.dir() + "/Packages"))
		if n := strings.Count(string(index), "\nFilename: "); err != nil || n != want {
			t.Errorf("gap %q: %d packages in the index, %v", gap, n, err)
		}
		if v, err := s.Verify(t.Context()); err != nil || len(v.Flaws) > 0 {
			t.Errorf("gap %q: %+v, %v", gap, v, err)
		}
	}
}

// TestImportOtherNames imports sets into stores that have another one, for the same names, less, more and others.
func TestImportOtherNames(t *testing.T) {
	base, old := publishedDebs(t, "libudev1")
	for name, c := range map[string]struct {
		has, comes []string
		want       string // version of the only package in the end
	}{
		"same":  {[]string{"a", "b"}, []string{"a", "b"}, "+b2"},
		"more":  {[]string{"a"}, []string{"a", "b"}, "+b2"},
		"less":  {[]string{"a", "b"}, []string{"b"}, "+b1"},
		"other": {[]string{"a", "b"}, []string{"b", "c"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, was := holding(t, base, old, c.has...)
			from, set := holding(t, base, strings.ReplaceAll(old, "+b1", "+b2"), c.comes...)
			bundle := filepath.Join(t.TempDir(), "b.tar.zst")
			if _, err := from.Pack(t.Context(), Bundle{Path: bundle, Items: []Item{set.Item()}}, nil); err != nil {
				t.Fatal(err)
			}
			done, err := s.Import(t.Context(), bundle, nil, nil)
			if c.want == "" {
				if err == nil || !strings.Contains(err.Error(), "the store has a set with a, and the bundle another one with c") || !strings.Contains(fault.Advice(err), "make one bundle for all") || done.Added > 0 {
					t.Errorf("got %+v, %v, advice %s", done, err, fault.Advice(err))
				}
				set, c.want = was, "+b1"
			} else if err != nil {
				t.Fatal(err)
			}
			sets, err := s.PackageSets()
			if err != nil || len(sets) != 1 || len(sets[0].Files) != 1 || !strings.Contains(sets[0].Files[0].Name, c.want) || len(sets[0].Names) != max(len(c.has), len(set.Names)) {
				t.Fatalf("%+v, %v", sets, err)
			}
			if has, err := s.HasPackages(sets[0]); err != nil || !has {
				t.Errorf("published: %v, %v", has, err)
			}
		})
	}
}

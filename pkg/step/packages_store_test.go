package step_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/resource/distro"
	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/racetest"
)

// stocked is a repository of a new store that has some files.
func stocked(t *testing.T, system string, files map[string][]byte) *resource.Repository {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(files[path.Base(r.URL.Path)]) }))
	defer srv.Close()
	dir := t.TempDir()
	resourcetest.SigningKey(t, dir)
	store, err := resource.Open(dir, source.Config{})
	if err != nil {
		t.Fatal(err)
	}
	set := resource.PackageSet{System: system, Arch: "amd64", Names: []string{"some"}}
	for name, content := range files {
		set.Files = append(set.Files, distro.File{Name: name, URL: srv.URL + "/" + name, Size: int64(len(content)), SHA256: fmt.Sprintf("%x", sha256.Sum256(content))})
	}
	if err := store.FetchPackages(t.Context(), set, nil); err != nil {
		t.Fatal(err)
	}
	return &resource.Repository{System: system, Arch: "amd64", Store: store}
}

func debs(names ...string) map[string][]byte {
	files := map[string][]byte{}
	for _, n := range names {
		files[n+"_1.0_amd64.deb"] = resourcetest.Deb(n)
	}
	return files
}

// withoutNetwork are hosts, and steps that install from the store what the hosts have no other way to.
func withoutNetwork(t *testing.T) map[string]func() (*runnertest.Host, step.Packages) {
	t.Helper()
	rpms := map[string][]byte{}
	for _, name := range []string{"kx-lib-2.0-1.noarch.rpm", "kx-top-1.0-1.noarch.rpm"} {
		content, err := os.ReadFile("../resource/distro/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		rpms[name] = content
	}
	debian := stocked(t, "debian12", debs("socat", "libwrap0", "conntrack", "chrony", "systemd-timesyncd", "ipset"))
	rocky := stocked(t, "rocky9", rpms)
	return map[string]func() (*runnertest.Host, step.Packages){
		"apt": func() (*runnertest.Host, step.Packages) {
			h := runnertest.Debian12("node1")
			h.Offline = true
			return h, step.Packages{Manager: "apt", Names: []string{"socat", "conntrack", "chrony"}, From: debian}
		},
		"dnf": func() (*runnertest.Host, step.Packages) {
			h := runnertest.Rocky9("node1")
			h.Offline = true
			h.Repo["kx-top"], h.Repo["kx-lib"] = runnertest.Package{Depends: []string{"kx-lib"}}, runnertest.Package{}
			return h, step.Packages{Manager: "dnf", Names: []string{"kx-top"}, From: rocky}
		},
	}
}

// TestPackagesFromStore installs on hosts whose power is cut anywhere, once more, and has all as it was before.
func TestPackagesFromStore(t *testing.T) {
	racetest.Slow(t)
	for name, mk := range withoutNetwork(t) {
		t.Run(name, func(t *testing.T) {
			for n := int64(0); ; n += 7 {
				h, p := mk()
				before := h.Snapshot()
				cut := &runnertest.Kill{After: n}
				h.Cut = cut
				err := apply(t, h, p)
				if n == 0 && err != nil {
					t.Fatal(err)
				}
				h.Reboot()
				if err := apply(t, h, p); err != nil {
					t.Fatalf("after a cut before command %d: %v", n, err)
				}
				if check(t, h, p) != nil {
					t.Fatal("there is something to do")
				}
				if n == 0 && strings.Contains(h.Snapshot(), runner.StateDir+"/packages") {
					t.Errorf("packages are left behind")
				}
				if err := h.Runner().Restore(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				h.Reboot()
				if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(h.Snapshot(), "\n")); diff != "" && n == 0 {
					t.Errorf("after Restore:\n%s", diff)
				}
				if n > 0 && cut.Count() <= n {
					return
				}
			}
		})
	}
}

// TestNoWayBackFromStore has another time service in the way of chrony, which the store could not bring back.
func TestNoWayBackFromStore(t *testing.T) {
	for name, c := range map[string]struct {
		store   []string
		version string // that the host has
		by      func(*runnertest.Host) error
		fails   string
	}{
		"another version": {store: []string{"chrony", "systemd-timesyncd"}, version: "0.9", fails: "systemd-timesyncd 0.9 would be removed"},
		"not there":       {store: []string{"chrony"}, fails: "systemd-timesyncd 1.0 would be removed"},
		"our own": {store: []string{"chrony"}, by: func(h *runnertest.Host) error {
			_, err := h.Runner().Change(t.Context(), "note 'package systemd-timesyncd'")
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := runnertest.Debian12("node1")
			h.Offline = true
			is := h.Repo["systemd-timesyncd"]
			is.Version = c.version
			h.Repo["systemd-timesyncd"] = is
			if c.by != nil {
				if err := c.by(h); err != nil {
					t.Fatal(err)
				}
			}
			before := h.Installed()
			err := apply(t, h, step.Packages{Manager: "apt", Names: []string{"chrony"}, From: stocked(t, "debian12", debs(c.store...))})
			if c.fails == "" {
				if err != nil || !slices.Contains(h.Installed(), "chrony") {
					t.Errorf("got %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.fails) || !strings.Contains(fault.Advice(err), "install chrony on the host by hand") {
				t.Errorf("got %v, advice %q", err, fault.Advice(err))
			}
			if diff := cmp.Diff(before, h.Installed()); diff != "" {
				t.Error(diff)
			}
			if err := h.Runner().Restore(t.Context(), nil); err != nil || strings.Contains(h.Snapshot(), runner.StateDir) {
				t.Errorf("something is left behind: %v", err)
			}
		})
	}
}

// TestFetchPackagesAgain asks for a name more, whose package is there already.
func TestFetchPackagesAgain(t *testing.T) {
	store := stocked(t, "debian12", debs("socat")).Store
	sets, err := store.PackageSets()
	if err != nil {
		t.Fatal(err)
	}
	set := sets[0]
	set.Names = append(set.Names, "some-more")
	for _, f := range []step.FetchPackages{{Set: sets[0], Store: store}, {Set: set, Store: store}, {Set: set, Store: store}} {
		c, err := f.Precheck(t.Context(), nil)
		if err != nil || (c == nil) != slices.Equal(sets[0].Names, f.Set.Names) {
			t.Fatalf("%v: got %v, %v", f.Set.Names, c, err)
		}
		if c != nil {
			if err := c.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if sets, err = store.PackageSets(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPackagesNotInStore shows what is said when the store does not have it all.
func TestPackagesNotInStore(t *testing.T) {
	for name, c := range map[string]struct {
		from          *resource.Repository
		fails, advice string
	}{
		"nothing":       {stocked(t, "debian13", debs("socat")), "the store has no packages of debian12", "kubexm download --os debian12 --export"},
		"not that":      {stocked(t, "debian12", debs("ipset")), "no installation candidate", "download --refresh --os debian12"},
		"not all of it": {stocked(t, "debian12", debs("socat")), "Package 'libwrap0' has no installation candidate", "download --refresh --os debian12"},
	} {
		t.Run(name, func(t *testing.T) {
			h := runnertest.Debian12("node1")
			before := h.Installed()
			c.from.System = "debian12"
			err := apply(t, h, step.Packages{Manager: "apt", Names: []string{"socat"}, From: c.from})
			if err == nil || !strings.Contains(err.Error(), c.fails) || !strings.Contains(fault.Advice(err), c.advice) {
				t.Errorf("got %v, advice %q", err, fault.Advice(err))
			}
			if strings.Contains(h.Snapshot(), runner.StateDir+"/packages/") {
				t.Error("files are left behind")
			}
			if diff := cmp.Diff(before, h.Installed()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestFetchPackages has a set whose packages are all there already, and that is asked for by more names.
func TestFetchPackages(t *testing.T) {
	store := stocked(t, "debian12", debs("socat", "libwrap0")).Store
	sets, err := store.PackageSets()
	if err != nil || len(sets) != 1 {
		t.Fatal(sets, err)
	}
	fetch := step.FetchPackages{Set: sets[0], Store: store}
	for _, names := range [][]string{sets[0].Names, {"libwrap0", "some"}} {
		fetch.Set.Names = names
		c, err := fetch.Precheck(t.Context(), nil)
		if err != nil || (c == nil) != (len(names) == 1) {
			t.Fatalf("%v: %v, %v", names, c, err)
		}
		if c == nil {
			continue
		}
		if err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if has, err := store.HasPackages(fetch.Set); err != nil || !has {
			t.Errorf("%v, %v", has, err)
		}
	}
}

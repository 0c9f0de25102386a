package place_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/backup/place"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

func TestName(t *testing.T) {
	taken := time.Date(2026, 11, 25, 14, 5, 1, 5e8, time.FixedZone("CET", 3600))
	if got := place.Name("prod", taken, true); got != backup {
		t.Error(got)
	}
	if got := place.Name("prod", taken, false); got+".age" != backup {
		t.Error(got)
	}
}

func TestDir(t *testing.T) {
	path := filepath.Join(t.TempDir(), "var", "backups")
	same(t, place.Dir(path), path)
	for file, mode := range map[string]os.FileMode{path: os.ModeDir | 0o700, filepath.Join(path, "prod-20261126T130501Z.tar.zst"): 0o600} {
		if info, err := os.Stat(file); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	if hidden, err := filepath.Glob(path + "/.*"); err != nil || len(hidden) != 0 {
		t.Errorf("left: %v, %v", hidden, err)
	}
}

// TestDirIgnores lists a directory in which others have files: none of theirs is a backup of prod.
func TestDirIgnores(t *testing.T) {
	path := t.TempDir()
	for _, name := range strings.Fields(`prod-2-20261125T130501Z.tar.zst prod.tar.zst prod-20261125T130501Z.tar prod-20261125T130501Z.tar.zst.age.age
		prod-20261125T130501.5Z.tar.zst prod-20261325T130501Z.tar.zst xprod-20261125T130501Z.tar.zst .prod-20261125T130501Z.tar.zst-123
		prod--20261125T130501Z.tar.zst prod-20261125t130501z.tar.zst prod-20261125T130501Z.tar.zst.tar.zst`) {
		if err := os.WriteFile(filepath.Join(path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(path, backup), 0o700); err != nil {
		t.Fatal(err)
	}
	for kind, at := range directories(t) {
		for cluster, n := range map[string]int{"prod": 0, "prod-2": 1} {
			if all, err := at(path).List(t.Context(), cluster); err != nil || len(all) != n {
				t.Errorf("%s: %v, %v", kind, all, err)
			}
		}
	}
}

// TestDirSweeps: what a killed run has left goes with a later backup, but not what is being written.
func TestDirSweeps(t *testing.T) {
	for kind, at := range directories(t) {
		path := t.TempDir()
		for name, age := range map[string]time.Duration{"." + backup + "-1": 25 * time.Hour, "." + backup + "-2": time.Hour, ".other": 100 * time.Hour, backup: 100 * time.Hour} {
			file := filepath.Join(path, name)
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(file, time.Time{}, time.Now().Add(-age)); err != nil {
				t.Fatal(err)
			}
		}
		if err := at(path).Put(t.Context(), "prod-20270101T000000Z.tar.zst", gives(nil)); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(path)
		if got, want := fmt.Sprint(entries), "[- .other - ."+backup+"-2 - "+backup+" - prod-20270101T000000Z.tar.zst]"; err != nil || strings.ReplaceAll(got, "-  ", "- ") != want {
			t.Errorf("%s: got %s, want %s; %v", kind, got, want, err)
		}
	}
}

func TestDirFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := place.Dir(filepath.Join(file, "below"))
	said(t, p.Put(t.Context(), backup, gives(nil)), "storing "+backup+" in "+file, "not a directory", "name a directory")
	_, err := p.List(t.Context(), "prod")
	said(t, err, "listing the backups in "+file, "not a directory", "name a directory")
	_, err = p.Open(t.Context(), backup)
	said(t, err, "opening "+backup+" in "+file, "name a directory")
	said(t, p.Remove(t.Context(), backup), "removing "+backup+" from "+file, "name a directory")

	full := place.Dir("/proc/kubexm")
	err = full.Put(t.Context(), backup, gives(nil))
	if err == nil || strings.Contains(fault.Advice(err), "workdir") {
		t.Errorf("%v: %s", err, fault.Advice(err))
	}
}

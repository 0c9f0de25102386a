package distro

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// entries reads packages from their files.
func entries(t *testing.T, files ...string) (all []Entry) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Read(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Entry{File{Name: filepath.Base(file), Size: int64(len(text)), SHA256: fmt.Sprintf("%x", sha256.Sum256(text))}, p})
	}
	return all
}

// socat is a Debian package.
func socat(t *testing.T) []Entry {
	t.Helper()
	file := filepath.Join(t.TempDir(), "socat_1.0_amd64.deb")
	if err := os.WriteFile(file, resourcetest.Deb("socat", "Provides: netcat (= 1.0), relay", "Depends: libwrap0"), 0o600); err != nil {
		t.Fatal(err)
	}
	return entries(t, file)
}

// rpms are RPM packages.
func rpms(t *testing.T) []Entry {
	t.Helper()
	return entries(t, "testdata/kx-lib-2.0-1.noarch.rpm", "testdata/kx-top-1.0-1.noarch.rpm")
}

func TestDebIndex(t *testing.T) {
	all := socat(t)
	if p := all[0].Package; p.Name != "socat" || p.Version != "1.0" || strings.Join(p.Provides, " ") != "netcat relay" {
		t.Errorf("%+v", p)
	}
	index, err := System{Manager: "apt"}.Index("/dir", all)
	if err != nil {
		t.Fatal(err)
	}
	list := strings.NewReplacer(all[0].SHA256, "SUM", fmt.Sprint("Size: ", all[0].Size), "Size: N").Replace(string(index["Packages"]))
	golden.Equal(t, list+string(index["sources.list"])+string(index["apt.conf"]))
}

func TestRPMIndex(t *testing.T) {
	all := rpms(t)
	index, err := System{Manager: "dnf"}.Index("/dir", all)
	if err != nil {
		t.Fatal(err)
	}
	packed := index["repodata/primary.xml.gz"]
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	primary, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	repomd := string(index["repodata/repomd.xml"])
	for _, sum := range [][32]byte{sha256.Sum256(packed), sha256.Sum256(primary)} {
		if !strings.Contains(repomd, fmt.Sprintf("%x", sum)) {
			t.Errorf("no %x in %s", sum, repomd)
		}
	}
	golden.Equal(t, string(index["repos/kubexm.repo"])+strings.ReplaceAll(string(primary), "><", ">\n<"))
}

package distro

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNameOf(t *testing.T) {
	for os, want := range map[string]string{
		"debian 12": "debian12", "ubuntu 22.04": "ubuntu2204", "rocky 9.6": "rocky9", "centos 7": "centos7", "openEuler 22.03": "openeuler2203",
		"kylin V10": "kylinv10", "rhel 8.10": "rhel8", "debian 14": "", "alpine 3.20": "", "rocky 90": "",
	} {
		id, version, _ := strings.Cut(os, " ")
		if got := NameOf(id, version); got != want {
			t.Errorf("%s is %q, want %q", os, got, want)
		}
	}
}

func TestSystems(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range systems {
		if s.Manager == "apt" && !s.Signed() || len(s.Sources("amd64")) == 0 || strings.Contains(strings.Join(s.Sources("arm64"), ""), "{") || seen[s.Name] {
			t.Errorf("%+v", s)
		}
		seen[s.Name] = true
	}
	if diff := cmp.Diff([]string{"https://vault.centos.org/altarch/7.9.2009/os/aarch64/"}, systems[6].Sources("arm64")[:1]); diff != "" {
		t.Error(diff)
	}
}

func TestIsPackage(t *testing.T) {
	for file, want := range map[string]string{
		"socat_1:1.0+b1_amd64.deb": "debian12", "kx-lib-2.0-1.noarch.rpm": "rocky9", "Packages": "", "a/b_1_all.deb": "", ".b_1_all.deb": "", "a b.rpm": "",
	} {
		for _, name := range []string{"debian12", "rocky9"} {
			if s, err := Find(name); err != nil || s.IsPackage(file) != (name == want) {
				t.Errorf("%s of %s: %v, %v", file, name, s.IsPackage(file), err)
			}
		}
	}
}

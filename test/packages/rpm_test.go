//go:build e2e

package packages

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/step"
)

// specs are packages that depend on one another: by name, by version, by a file, by what is provided, and
// on one that kubexm asks for under another name.
var specs = map[string]string{
	"kx-top": "Requires: kx-lib = 2.0-1, /usr/bin/kx-tool, kx-virtual\n", "kx-lib": "Version: 2.0\n", "kx-tool": "", "kx-real": "Provides: kx-virtual = 7\n",
	"iptables-nft": "Provides: iptables, ebtables\n", "unwanted": "",
}

// asked are the packages that nodes are asked to have, and that are just there.
const asked = "conntrack-tools ethtool iproute ipset kmod nftables socat ipvsadm chrony tzdata haproxy keepalived"

// release is packages as a release of Rocky Linux has them.
func release(t *testing.T) http.Handler {
	t.Helper()
	top, dir := t.TempDir(), t.TempDir()
	all := map[string]string{}
	for _, name := range strings.Fields(asked) {
		all[name] = ""
	}
	for name, lines := range specs {
		all[name] = lines
	}
	for name, lines := range all {
		if !strings.Contains(lines, "Version:") {
			lines += "Version: 1.0\n"
		}
		spec := "Name: " + name + "\nRelease: 1\nSummary: for tests\nLicense: none\n" + lines +
			"%description\nfor tests\n%install\nmkdir -p %{buildroot}/usr/bin\necho '#!/bin/sh' >%{buildroot}/usr/bin/" + name + "\n%files\n%attr(755,root,root) /usr/bin/" + name + "\n"
		file := filepath.Join(top, name+".spec")
		must(t, os.WriteFile(file, []byte(spec), 0o600))
		run(t, "rpmbuild", "-bb", "--quiet", "--target", "x86_64", "--define", "_topdir "+top, "--define", "_rpmdir "+top+"/out", file)
	}
	for _, repo := range []string{"BaseOS", "AppStream"} {
		must(t, os.MkdirAll(filepath.Join(dir, repo, "x86_64/os/Packages"), 0o755))
	}
	files, err := filepath.Glob(top + "/out/x86_64/*.rpm")
	must(t, err)
	for n, f := range files {
		repo := []string{"BaseOS", "AppStream"}[n%2]
		must(t, os.Rename(f, filepath.Join(dir, repo, "x86_64/os/Packages", filepath.Base(f))))
	}
	for _, repo := range []string{"BaseOS", "AppStream"} {
		run(t, "createrepo_c", "--quiet", filepath.Join(dir, repo, "x86_64/os"))
	}
	return http.FileServer(http.Dir(dir))
}

// TestRPM brings RPM packages from a release that is served here to a system with dnf and without a network.
func TestRPM(t *testing.T) {
	for _, tool := range []string{"dnf", "rpmbuild", "createrepo_c"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("this machine has no %s", tool)
		}
	}
	_, r := newSystem(t, "bookworm", "dnf", "rpm")
	store := carried(t, "https://dl.rockylinux.org/pub/rocky/9/", release(t), "rocky9")
	sets, err := store.PackageSets()
	must(t, err)
	names := make([]string, len(sets[0].Files))
	for i, f := range sets[0].Files {
		names[i] = f.Name
	}
	t.Log(names)
	if !slices.Contains(names, "kx-real-1.0-1.x86_64.rpm") || slices.Contains(names, "unwanted-1.0-1.x86_64.rpm") {
		t.Errorf("the set has %v", names)
	}
	p := step.Packages{Manager: "dnf", Names: sets[0].Names, From: &resource.Repository{System: "rocky9", Arch: "amd64", Store: store}}
	lacks, err := p.From.Lacks(append(slices.Clone(p.Names), "unwanted"))
	must(t, err)
	if !slices.Equal(lacks, []string{"unwanted"}) {
		t.Errorf("lacks %v", lacks)
	}
	install(t, r, p)
	out, err := r.Sh(t.Context(), "rpm -q kx-lib kx-tool kx-real iptables-nft; sort /var/lib/kubexm/ledger")
	must(t, err)
	t.Log(out)
}

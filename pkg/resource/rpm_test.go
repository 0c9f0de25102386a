package resource

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/resource/distro"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// dnfAnswer is what the script prints that asks dnf: where packages are, and the lists of two repositories.
func dnfAnswer(t *testing.T, base string, change func(primary string) string) string {
	t.Helper()
	text, lists := "a remark\n", ""
	for n, name := range []string{"kx-lib-2.0-1.noarch.rpm", "kx-top-1.0-1.noarch.rpm"} {
		at := base + []string{"BaseOS", "AppStream"}[n] + "/x86_64/os/"
		content, err := os.ReadFile(filepath.Join("distro", "testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		text += at + "Packages/k/" + name + "\n"
		primary := fmt.Sprintf(`<?xml version="1.0"?><metadata xmlns="http://linux.duke.edu/metadata/common" packages="1"><package type="rpm"><name>kx</name>
<checksum type="sha256" pkgid="YES">%x</checksum><size package="%d" installed="1"/><location href="Packages/k/%s"/><format/></package></metadata>`, sha256.Sum256(content), len(content), name)
		packed := zipped(change(primary))
		lists += fmt.Sprintf("\n= source%d-0123/repodata/4567-primary.xml.gz %d\n%s", n, len(packed), packed)
	}
	return text + lists
}

func zipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text) // to memory
	_ = z.Close()
	return b.String()
}

// TestRPMsWithoutTLS has mirrors that anybody on the way could stand in for.
func TestRPMsWithoutTLS(t *testing.T) {
	for mirror, refused := range map[string]bool{
		"http://mirror.example.org/": true, "http://192.0.2.1:8080/": true, "ftp://mirror.example.org/": true,
		"https://mirror.example.org/": false, "http://127.0.0.1:8080/": false, "http://[::1]/": false, "http://localhost/": false,
	} {
		s, err := Open(t.TempDir(), source.Config{Mirrors: map[string]string{"https://dl.rockylinux.org/": mirror, "http://deb.debian.org/": mirror}})
		if err != nil {
			t.Fatal(err)
		}
		s.retry = source.Retry{Rounds: 1, Pause: 1}
		a := &answers{text: "\n"}
		_, err = s.ResolvePackages(t.Context(), a.runner(), "rocky9", "amd64", []string{"kx-top"}, false)
		if is := err != nil && strings.Contains(err.Error(), "only TLS can authenticate") && a.script == ""; is != refused {
			t.Errorf("%s: got %v, run %q", mirror, err, a.script)
		}
		if refused && (!strings.Contains(fault.Advice(err), "name an https:// mirror of https://dl.rockylinux.org/pub/rocky/9/BaseOS")) {
			t.Errorf("%s: got %v, advice %q", mirror, err, fault.Advice(err))
		}
		if _, err := s.ResolvePackages(t.Context(), a.runner(), "debian12", "amd64", []string{"socat"}, false); err != nil {
			t.Errorf("a signed index: %v", err)
		}
	}
}

// TestLogInOfMirror has a password in the URL of a mirror, which is told nobody.
func TestLogInOfMirror(t *testing.T) {
	for _, system := range []string{"rocky9", "debian12"} {
		const mirror = "https://user:secret@mirror.example.org/"
		s, err := Open(t.TempDir(), source.Config{Mirrors: map[string]string{"https://dl.rockylinux.org/": mirror, "http://deb.debian.org/": mirror}})
		if err != nil {
			t.Fatal(err)
		}
		a := &answers{text: "\n"}
		_, err = s.ResolvePackages(t.Context(), a.runner(), system, "amd64", []string{"socat"}, false)
		if err == nil || !strings.Contains(err.Error(), "has a login in its URL") || strings.Contains(err.Error(), "secret") || !strings.Contains(fault.Advice(err), "give it in spec.source.access") || a.script != "" {
			t.Errorf("%s: got %v, advice %q", system, err, fault.Advice(err))
		}
	}
}

// TestRPMs follows RPM packages from dnf's answer to the metadata that a host reads.
func TestRPMs(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join("distro", "testdata", filepath.Base(r.URL.Path)))
	}))
	defer srv.Close()
	s, err := Open(t.TempDir(), source.Config{Mirrors: map[string]string{"https://dl.rockylinux.org/": srv.URL + "/rocky/"}})
	if err != nil {
		t.Fatal(err)
	}
	same := func(primary string) string { return primary }
	a := &answers{text: dnfAnswer(t, srv.URL+"/rocky/pub/rocky/9/", same)}
	set, err := s.ResolvePackages(t.Context(), a.runner(), "rocky9", "amd64", []string{"kx-top"}, false)
	if err == nil {
		err = s.FetchPackages(t.Context(), set, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if want := "https://dl.rockylinux.org/pub/rocky/9/AppStream/x86_64/os/Packages/k/kx-top-1.0-1.noarch.rpm"; len(set.Files) != 2 || set.Files[1].URL != want {
		t.Errorf("%+v", set.Files)
	}
	for _, want := range []string{"RELEASE=9\n", "ARCH=x86_64\n", "baseurl=" + srv.URL + "/rocky/pub/rocky/9/BaseOS/x86_64/os/\n", "set -- kx-top\n"} {
		if !strings.Contains(a.script, want) {
			t.Errorf("no %q in:\n%s", want, a.script)
		}
	}
	r := &Repository{System: "rocky9", Arch: "amd64", Store: s}
	if lacks, err := r.Lacks([]string{"kx-virtual", "kx-top", "nothing"}); err != nil || !slices.Equal(lacks, []string{"nothing"}) {
		t.Errorf("lacks %v, %v", lacks, err)
	}
	index, err := r.Index("/dir")
	if err != nil {
		t.Fatal(err)
	}
	all := make([]distro.Entry, len(set.Files))
	for i, f := range set.Files {
		p, err := distro.Read(filepath.Join("distro", "testdata", f.Name))
		if err != nil {
			t.Fatal(err)
		}
		all[i] = distro.Entry{File: f, Package: p}
	}
	want, err := distro.System{Manager: "dnf"}.Index("/dir", all)
	if diff := cmp.Diff(want, index); err != nil || diff != "" {
		t.Error(diff, err)
	}
	for want, change := range map[string]func(string) string{
		"has no SHA-256 of http://": func(p string) string { return strings.Replace(p, "sha256", "sha1", 1) },
		"syntax error":              func(p string) string { return p[:len(p)/2] },
	} {
		a.text = dnfAnswer(t, srv.URL+"/rocky/pub/rocky/9/", change)
		if _, err := s.ResolvePackages(t.Context(), a.runner(), "rocky9", "amd64", []string{"kx-lib"}, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	a.text = regexp.MustCompile(`source1-0123`).ReplaceAllString(dnfAnswer(t, srv.URL, same), "source7-0123")
	if _, err := s.ResolvePackages(t.Context(), a.runner(), "rocky9", "amd64", []string{"kx-lib"}, false); err == nil || !strings.Contains(err.Error(), "unexpected list source7-0123/") {
		t.Errorf("got %v", err)
	}
}

package resource

import (
	"os"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestCharts fetches charts of a Helm repository, whose index says where they are: beside it, or somewhere else. What is in the store needs no network.
func TestCharts(t *testing.T) {
	u := newUpstream(t)
	content := []byte("a chart")
	u.files["/charts.example.com/stable/index.yaml"] = []byte("apiVersion: v1\nentries:\n  web:\n" +
		"  - {name: web, version: v1.2.0, digest: " + sumOf(content) + ", urls: [files/web-v1.2.0.tgz]}\n" +
		"  - {name: web, version: 1.1.0+more, digest: " + sumOf(content) + ", urls: ['https://elsewhere.example.com/web-1.1.0+more.tgz']}\n" +
		"  - {name: web, version: 1.0.0, urls: [web-1.0.0.tgz]}\n  - {name: web, version: 0.9.0, urls: ['oci://registry.example.com/web:0.9.0']}\n")
	u.files["/charts.example.com/stable/files/web-v1.2.0.tgz"] = content
	u.files["/elsewhere.example.com/web-1.1.0+more.tgz"] = content
	dir := t.TempDir()
	s, err := testStore(dir, u.URL)
	if err != nil {
		t.Fatal(err)
	}
	chart := func(version string) Artifact {
		a, err := NewChart("https://charts.example.com/stable/", "web", version, "amd64")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, version := range []string{"v1.2.0", "1.1.0+more"} {
		if _, err := s.Fetch(t.Context(), chart(version), nil); err != nil {
			t.Fatal(err)
		}
		offline, err := Open(dir, source.Config{Offline: true})
		if err != nil {
			t.Fatal(err)
		}
		files, err := offline.Programs(t.Context(), chart(version))
		if err != nil || len(files) != 1 {
			t.Fatalf("%v, %v", files, err)
		}
		if got, err := os.ReadFile(files[0].Path); string(got) != string(content) {
			t.Errorf("%q, %v", got, err)
		}
	}
	if got := chart("v1.2.0").String(); got != "chart https://charts.example.com/stable/web v1.2.0" {
		t.Error(got)
	}
	for version, want := range map[string]string{
		"1.0.0": "no SHA-256 of chart web 1.0.0 is in it", "3.0.0": "it has no version 3.0.0 of chart web", "0.9.0": "it has chart web 0.9.0 in a registry of images alone",
	} {
		if _, err := s.Fetch(t.Context(), chart(version), nil); err == nil || !strings.Contains(err.Error(), want) || fault.Advice(err) == "" {
			t.Errorf("%s: %v, %q", version, err, fault.Advice(err))
		}
	}
	other, err := NewChart("https://charts.example.com/stable", "other", "1.0.0", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fetch(t.Context(), other, nil); err == nil || !strings.Contains(err.Error(), "it has no chart other") {
		t.Error(err)
	}
	for _, version := range []string{"", "1/2"} {
		if _, err := NewChart("https://charts.example.com", "web", version, "amd64"); err == nil {
			t.Errorf("%q is a version", version)
		}
	}
}

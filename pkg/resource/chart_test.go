package resource

import (
	"bytes"
	"os"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

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

// TestChartsOfRegistries fetches charts that are layers of images, once. What is an image and no chart is refused.
func TestChartsOfRegistries(t *testing.T) {
	u := newUpstream(t)
	const repo = "registry.k8s.io/charts/web"
	text := noise(7, 10_000)
	config := u.put(t, repo, "application/vnd.cncf.helm.config.v1+json", "", []byte("{}"))
	u.put(t, repo, ocispec.MediaTypeImageManifest, "1.2.0_more", mustJSON(t, newManifest(config, u.put(t, repo, "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "", text))))
	u.pushImage(t, repo, "amd64", "2.0.0")
	dir := t.TempDir()
	s, err := testStore(dir, u.URL)
	if err != nil {
		t.Fatal(err)
	}
	chart := func(version string) Artifact {
		a, err := NewChart("oci://registry.k8s.io/charts", "web", version, "amd64")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	file, err := s.Fetch(t.Context(), chart("1.2.0+more"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); !bytes.Equal(got, text) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	u.Close()
	if _, err := s.Fetch(t.Context(), chart("1.2.0+more"), nil); err != nil {
		t.Error(err)
	}
	if got := chart("1.2.0+more").String(); got != "chart oci://registry.k8s.io/charts/web 1.2.0+more" {
		t.Error(got)
	}
}

// TestChartsOfRegistriesRefused asks for what is no chart, and for what is not there.
func TestChartsOfRegistriesRefused(t *testing.T) {
	u := newUpstream(t)
	u.pushImage(t, "registry.k8s.io/charts/web", "amd64", "2.0.0")
	s, err := testStore(t.TempDir(), u.URL)
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{"2.0.0": "is no Helm chart", "3.0.0": "not found"} {
		a, err := NewChart("oci://registry.k8s.io/charts", "web", version, "amd64")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Fetch(t.Context(), a, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// TestManifests fetches manifests of a URL. They stay what they were first.
func TestManifests(t *testing.T) {
	u := newUpstream(t)
	const at = "/example.com/releases/v1.0.0/install.yaml"
	u.files[at] = []byte("kind: First\n")
	dir := t.TempDir()
	s, err := testStore(dir, u.URL)
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewManifests("https://example.com/releases/v1.0.0/install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if a.String() != "manifests https://example.com/releases/v1.0.0/install.yaml" {
		t.Error(a)
	}
	file, err := s.Fetch(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	u.files[at] = []byte("kind: Other\n")
	if _, err := s.Fetch(t.Context(), a, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fetch(t.Context(), a, nil); err == nil || !strings.Contains(err.Error(), "wrong checksum") {
		t.Errorf("other manifests at the same place: %v", err)
	}
	u.files[at] = []byte("kind: First\n")
	if file, err = s.Fetch(t.Context(), a, nil); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); string(text) != "kind: First\n" {
		t.Errorf("%s, %v", text, err)
	}
}

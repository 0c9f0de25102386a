package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/crypto/ssh"

	"github.com/kubexm/kubexm/pkg/signature"
)

// fake makes a release of programs that are none, and were made of the same as this test.
func fake(t *testing.T) *release {
	t.Helper()
	r, err := parse([]string{"-version", "v1.2.3", "-commit", strings.Repeat("0123456789", 4), "-date", "2026-01-02T03:04:05Z", "--", "-trimpath", "-ldflags", "-s -w"})
	if err != nil {
		t.Fatal(err)
	}
	r.dir, r.stage = t.TempDir(), t.TempDir()
	r.made, _ = debug.ReadBuildInfo()
	t.Chdir("../..") // where LICENSE is
	for _, p := range r.platforms {
		path := filepath.Join(r.dir, p.program())
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("program for "+p.os+" "+p.arch), 0o755))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, make := range []func() error{r.documents, r.archives, r.image, r.sbom, r.provenance, r.sums, r.sign} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// members returns what is in an archive, after a look at who owns it, and when it is of.
func members(t *testing.T, r *release, packed io.Reader) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	last := ""
	for in := tar.NewReader(packed); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(r.date) || h.Name < last {
			t.Errorf("%s after %s: %+v", h.Name, last, h)
		}
		if all[h.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
		if program := filepath.Base(h.Name) == "kubexm"; h.Typeflag == tar.TypeReg && (h.Mode == 0o755) != program {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		last = h.Name
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func unzip(t *testing.T, data []byte) io.Reader {
	t.Helper()
	in, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if in.Name != "" || !in.ModTime.IsZero() {
		t.Errorf("the file tells %q, %v", in.Name, in.ModTime)
	}
	return in
}

func TestSame(t *testing.T) {
	var sums []string
	for range 2 {
		t.Run("", func(t *testing.T) {
			t.Setenv("KUBEXM_WORKDIR", t.TempDir())
			sums = append(sums, string(read(t, filepath.Join(fake(t).dir, sumsFile))))
		})
	}
	if diff := cmp.Diff(sums[0], sums[1]); diff != "" || strings.Count(sums[0], "\n") != 11 {
		t.Errorf("two releases differ (-first +second), of\n%s\n%s", sums[0], diff)
	}
}

func TestArchives(t *testing.T) {
	r := fake(t)
	all := members(t, r, unzip(t, read(t, r.named("_darwin_arm64.tar.gz"))))
	if got := string(all["kubexm"]); got != "program for darwin arm64" {
		t.Errorf("the program is %q", got)
	}
	for name, want := range map[string]string{
		"LICENSE": "Apache License", "README.md": "kubexm", "README.zh-CN.md": "kubexm",
		"completions/kubexm.bash": "__start_kubexm", "completions/_kubexm": "#compdef kubexm", "completions/kubexm.fish": "complete -c kubexm",
	} {
		if !strings.Contains(string(all[name]), want) {
			t.Errorf("%s does not tell %q", name, want)
		}
	}
	for _, name := range []string{"man/kubexm.1.gz", "man/kubexm-create-cluster.1.gz"} {
		page, err := io.ReadAll(unzip(t, all[name]))
		if err != nil || !strings.Contains(string(page), `"1" "Jan 2026" "kubexm v1.2.3"`) || !strings.Contains(string(page), `[".kubexm"]`) && !strings.Contains(string(page), `".kubexm"`) {
			t.Errorf("%s: %v\n%s", name, err, page)
		}
	}
}

func TestSums(t *testing.T) {
	r := fake(t)
	listed := 0
	for line := range strings.Lines(string(read(t, filepath.Join(r.dir, sumsFile)))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		all, err := checksums(filepath.Dir(filepath.Join(r.dir, name)))
		if err != nil || !slices.Contains(all, checksum{filepath.Base(name), sum}) {
			t.Errorf("%s: %v", line, err)
		}
		listed++
	}
	if files, err := checksums(r.dir); err != nil || len(files) != listed {
		t.Errorf("%d files, %d of them listed: %v", len(files), listed, err)
	}
	if program, err := exec.LookPath("sha256sum"); err == nil {
		cmd := exec.CommandContext(t.Context(), program, "--check", "--strict", sumsFile)
		cmd.Dir = r.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

func TestSign(t *testing.T) {
	r := fake(t)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err1 := ssh.MarshalPrivateKey(private, "")
	key, err2 := ssh.NewPublicKey(public)
	r.key = filepath.Join(t.TempDir(), "key")
	if err := errors.Join(err1, err2, os.WriteFile(r.key, pem.EncodeToMemory(block), 0o600), r.sign()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(r.dir, sumsFile)
	if by, err := signature.Verify("file", read(t, path), read(t, path+".sig"), nil); err != nil || by != ssh.FingerprintSHA256(key) {
		t.Errorf("signed by %q: %v", by, err)
	}
	t.Chdir(t.TempDir())
	if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	release := func(version string) error {
		_, err := parse([]string{"-version", version, "-commit", "0", "-date", "2026-01-02T03:04:05Z", "-key", r.key, "--", "-trimpath"})
		return err
	}
	if err := release("v1.2.3"); err != nil {
		t.Error(err)
	}
	if release("v1.2.3-dirty") == nil {
		t.Error("what is not committed is signed")
	}
	if err := os.WriteFile("extra.go", nil, 0o600); err != nil { // git describe does not see it
		t.Fatal(err)
	}
	if release("v1.2.3") == nil {
		t.Error("what is not committed is signed")
	}
}

func TestImage(t *testing.T) {
	r := fake(t)
	files := members(t, r, bytes.NewReader(read(t, r.named("_image.tar"))))
	blob := func(d v1.Descriptor, v any) {
		t.Helper()
		if err := json.Unmarshal(files["blobs/sha256/"+d.Digest.Hex], v); err != nil {
			t.Fatalf("%s: %v", d.Digest, err)
		}
	}
	var top, index v1.IndexManifest
	if err := json.Unmarshal(files["index.json"], &top); err != nil || len(top.Manifests) != 1 || len(files["oci-layout"]) == 0 {
		t.Fatalf("%v: %s", err, files["index.json"])
	}
	blob(top.Manifests[0], &index)
	var found []string
	for _, d := range index.Manifests {
		var m v1.Manifest
		var conf v1.ConfigFile
		blob(d, &m)
		blob(m.Config, &conf)
		content := members(t, r, unzip(t, files["blobs/sha256/"+m.Layers[0].Digest.Hex]))
		if _, ok := content["work/"]; !ok || len(content["usr/bin/kubexm"]) == 0 || conf.Config.WorkingDir != "/work" || !slices.Equal(conf.Config.Entrypoint, []string{"/usr/bin/kubexm"}) {
			t.Errorf("%s: %+v", d.Platform, conf)
		}
		if !conf.Created.Equal(r.date) || conf.OS+"/"+conf.Architecture != d.Platform.String() {
			t.Errorf("%s is of %s for %s/%s", d.Platform, conf.Created, conf.OS, conf.Architecture)
		}
		found = append(found, d.Platform.String())
	}
	if !slices.Equal(found, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("for %s", found)
	}
}

func TestProvenance(t *testing.T) {
	r := fake(t)
	var s statement
	if err := json.Unmarshal(read(t, r.named(".provenance.json")), &s); err != nil {
		t.Fatal(err)
	}
	all, err := checksums(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(f checksum) bool { return f.name == sumsFile || strings.HasSuffix(f.name, ".provenance.json") })
	var got []checksum
	for _, a := range s.Subject {
		got = append(got, checksum{a.Name, a.Digest["sha256"]})
	}
	if !slices.Equal(got, all) {
		t.Errorf("about %v, not %v", got, all)
	}
	if d := s.Predicate.BuildDefinition; d.Dependencies[0].Digest["gitCommit"] != r.commit || !slices.Equal(d.ExternalParameters.Flags, r.flags) || !strings.HasPrefix(d.ExternalParameters.Go, "go1.") {
		t.Errorf("made of %+v", d)
	}
}

func TestSBOM(t *testing.T) {
	r := fake(t)
	text := string(read(t, r.named(".sbom.cdx.json")))
	for _, want := range []string{
		`"timestamp": "2026-01-02T03:04:05Z"`, `"purl": "pkg:golang/github.com/kubexm/kubexm@v1.2.3"`, `"purl": "pkg:golang/stdlib@1.`, `"purl": "pkg:golang/github.com/spf13/cobra@v1.`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("does not tell %s:\n%s", want, text)
		}
	}
}

func TestPackageVersion(t *testing.T) {
	for version, want := range map[string]string{ // each before the next
		"0123456":               "0~20260102030405.0123456",
		"0123456-dirty":         "0~20260102030405.0123456+dirty",
		"v1.2.3-rc.1":           "1.2.3~rc.1",
		"v1.2.3-rc.1-4-g012345": "1.2.3~rc.1+4.g012345",
		"v1.2.3":                "1.2.3",
		"v1.2.3-dirty":          "1.2.3+dirty",
		"v1.2.3-4-g0123456":     "1.2.3+4.g0123456",
	} {
		r := &release{version: version, date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
		if got := r.packageVersion(); got != want {
			t.Errorf("%s is %s, want %s", version, got, want)
		}
	}
}

// TestClear removes what a release has made, and nothing that somebody else has.
func TestClear(t *testing.T) {
	r := &release{dir: filepath.Join(t.TempDir(), "dist")}
	for range 2 { // the second time it is there, without an end
		if err := errors.Join(r.clear(), os.WriteFile(filepath.Join(r.dir, "kubexm"), nil, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	r.dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(r.dir, "letters"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.clear(); err == nil {
		t.Error("a directory with somebody's files was cleared")
	}
	if _, err := os.Stat(filepath.Join(r.dir, "letters")); err != nil {
		t.Error(err)
	}
}

package resource

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"

	"github.com/kubexm/kubexm/pkg/resource/source"
)

func TestArtifacts(t *testing.T) {
	var out strings.Builder
	for _, c := range Components() {
		version := "1.2.3"
		if c.Name == "flannel-cni" {
			version = "v1.2.3-flannel4"
		}
		for _, arch := range []string{"amd64", "arm64"} {
			if c.AMD64 && arch != "amd64" {
				continue
			}
			a, err := New(c.Name, version, arch)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%s\n  %s\n  %s\n  members:", a.key(), a.expand(c.Base+c.File), a.expand(c.SumsURL()))
			for _, m := range c.Programs {
				fmt.Fprintf(&out, " %s as %s", a.expand(m), a.member(m))
			}
			out.WriteByte('\n')
		}
	}
	golden.Equal(t, out.String())
}

func TestNewRefuses(t *testing.T) {
	var out strings.Builder
	for _, a := range [][3]string{
		{"kubelett", "1.2.3", "amd64"}, {"kubelet", "latest", "amd64"}, {"kubelet", "1/../../x", "amd64"}, {"kubelet", "", "amd64"}, {"kubelet", "1.2.3", "x86_64"}, {"harbor", "1.2.3", "arm64"},
	} {
		_, err := New(a[0], a[1], a[2])
		out.WriteString(told(err))
	}
	golden.Equal(t, out.String())
}

func TestArtifactIsData(t *testing.T) {
	type step struct {
		Store    *Store
		Artifact Artifact
	}
	s := openStore(t, t.TempDir(), newUpstream(t))
	got, err := json.Marshal(step{s, mustNew(t, "etcd", "v3.6.14")})
	want := `{"Store":{},"Artifact":{"component":"etcd","version":"3.6.14","arch":"amd64","file":"etcd-v3.6.14-linux-amd64.tar.gz"}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestImages(t *testing.T) {
	var out strings.Builder
	for name := range images {
		ref, err := Image(name, "v1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&pull{Store: empty(t)}).repository(ref); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
	for _, in := range [][2]string{{"etcd", "3.6.8"}, {"pause", "3.10"}, {"coredns", "v1.14.2"}, {"flannel-cni", "1.9.1-flannel1"}, {"etdc", "1.2.3"}, {"etcd", "latest"}} {
		ref, err := Image(in[0], in[1])
		if err != nil {
			ref = told(err)
		}
		fmt.Fprintf(&out, "%s %s: %s\n", in[0], in[1], ref)
	}
	golden.Equal(t, out.String())
}

func TestParseSum(t *testing.T) {
	sum, other := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	for name, tt := range map[string]struct{ text, want string }{
		"bare":             {sum, sum},
		"bare, upper case": {strings.ToUpper(sum) + "\n", sum},
		"text mode":        {other + "  runc.arm64\n" + sum + "  runc.amd64\n", sum},
		"binary mode":      {sum + " *runc.amd64\n", sum},
		"with a folder":    {sum + "  ./release/runc.amd64\n", sum},
		"signed":           {"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n" + sum + "  runc.amd64\n-----BEGIN PGP SIGNATURE-----\n\n" + other + "\n", sum},
		"of another":       {sum + "  runc.arm64\n", ""},
		"too short":        {sum[:62], ""},
		"SHA-512":          {sum + sum + "  runc.amd64\n", ""},
		"a page":           {"<html>not found</html>", ""},
		"nothing":          {"", ""},
		"of a release":     {`{"assets": [{"name": "runc.arm64", "digest": "sha256:` + other + `"}, {"name": "runc.amd64", "digest": "sha256:` + sum + `"}]}`, sum},
		"none yet":         {`{"assets": [{"name": "runc.amd64", "digest": null}]}`, ""},
		"other digest":     {`{"assets": [{"name": "runc.amd64", "digest": "sha512:` + sum + sum + `"}]}`, ""},
	} {
		if got := parseSum(tt.text, "runc.amd64"); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func TestResolve(t *testing.T) {
	u := newUpstream(t)
	s := openStore(t, t.TempDir(), u)
	a := mustNew(t, "etcd", "v3.99.1") // of a release newer than this program
	u.publish(t, a, program)
	for range 2 {
		got, err := s.Resolve(t.Context(), a)
		if err != nil || got.SHA256 != sumOf(program) {
			t.Fatalf("got %q, %v", got.SHA256, err)
		}
		u.publish(t, a, noise(3, 10)) // replaced later: the lock file holds
	}
	if got := u.requests(); len(got) != 1 {
		t.Errorf("asked %q", got)
	}
	text, err := os.ReadFile(s.lockPath())
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, strings.ReplaceAll(string(text), u.URL, "MIRROR"))

	own := a
	own.SHA256 = sumOf(nil)
	if got, err := s.Resolve(t.Context(), own); err != nil || got != own {
		t.Errorf("an artifact with a checksum: got %+v, %v", got, err)
	}
	pinned := mustNew(t, "kubelet", "v1.35.1")
	if err := s.editLock(t.Context(), func(l *lock) error { l.Files[pinned.key()] = lockedFile{SHA256: sumOf(nil)}; return nil }); err != nil {
		t.Fatal(err)
	}
	const known = "e7343310e03ff0d424df4397bdfa4468947d6d1f0f93dac586c1e8d6e4086d5d"
	if got, err := s.Resolve(t.Context(), pinned); err != nil || got.SHA256 != known {
		t.Errorf("a pin: got %q, %v, want %q", got.SHA256, err, known)
	}
}

func TestPins(t *testing.T) {
	pins, err := pins()
	if err != nil {
		t.Fatal(err)
	}
	for key, pin := range pins.Files {
		f := strings.Split(key, "/")
		if a, err := New(f[0], f[1], f[2]); err != nil || a.key() != key || !isSum(pin.SHA256) || pin.From == "" {
			t.Errorf("%s: %+v, %v", key, pin, err)
		}
	}
}

func TestBrokenLockFile(t *testing.T) {
	s := openStore(t, t.TempDir(), newUpstream(t))
	if err := os.WriteFile(s.lockPath(), []byte(`{"files": [`), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := s.Resolve(t.Context(), mustNew(t, "etcd", "3.6.14"))
	golden.Equal(t, told(err, s.dir, "STORE"))
}

// zoned is a store in a zone, where servers stand for all publishers and for all mirrors.
func zoned(t *testing.T, publisher, mirror *upstream, answers bool) *Store {
	t.Helper()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		switch {
		case strings.Contains(address, ".daocloud.io:"), strings.Contains(address, ".aliyun.com:"):
			address = mirror.Listener.Addr().String()
		case answers:
			address = publisher.Listener.Addr().String()
		default:
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no such host")}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	s, err := Open(t.TempDir(), source.Config{Zone: "cn", Transport: &http.Transport{DialTLSContext: dial}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.source.Transport.CloseIdleConnections)
	s.retry.Pause, s.retry.Longest = time.Millisecond, 5*time.Millisecond
	return s
}

// TestLyingMirror has a mirror of a zone that serves a program of its own with a checksum that fits. What the publisher says counts, as long as it
// answers.
func TestLyingMirror(t *testing.T) {
	a := mustNew(t, "kubelet", "1.99.7")
	publisher, mirror := newUpstream(t), newUpstream(t)
	publisher.publish(t, a, program)
	mirror.publish(t, a, []byte("another program"))
	mirror.move("/files.m.daocloud.io")
	for answers, want := range map[bool]string{true: string(program), false: "another program"} {
		path, err := zoned(t, publisher, mirror, answers).Fetch(t.Context(), a, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("the publisher answers: %v; got %q, %v", answers, got, err)
		}
	}
	if n := len(publisher.asked); n != 3 { // once for its signature
		t.Errorf("the publisher was asked for %q", publisher.asked)
	}
	refusals(t, publisher, func() error {
		_, err := zoned(t, publisher, mirror, true).Fetch(t.Context(), a, nil)
		return err
	})
}

// refusals has a publisher answer in other ways than it should: it is reached, so no mirror is believed instead.
func refusals(t *testing.T, publisher *upstream, get func() error) {
	t.Helper()
	for _, code := range []int{400, 401, 403, 404, 429, 500, 503} {
		publisher.fail("", func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(code)
			return true
		})
		if err := get(); err == nil || !strings.Contains(fault.Advice(err), "to trust a mirror instead, name it in spec.source.mirrors") {
			t.Errorf("the publisher answers with %d: %v; next: %s", code, err, fault.Advice(err))
		}
	}
}

// TestFirstSum fetches a program of which nobody publishes a checksum: what the publisher served first stays. A part of it is never completed with another file's.
func TestFirstSum(t *testing.T) {
	a := mustNew(t, "docker", "29.99.7")
	const file = "/linux/static/stable/x86_64/docker-29.99.7.tgz"
	publisher, mirror := newUpstream(t), newUpstream(t)
	mirror.files["/mirrors.aliyun.com/docker-ce"+file] = []byte("another program")
	first, second := noise(1, 1<<20), noise(2, 1<<20)
	publisher.files["/download.docker.com"+file] = first
	for answers, want := range map[bool][]byte{true: first, false: []byte("another program")} {
		s := zoned(t, publisher, mirror, answers)
		path, err := s.Fetch(t.Context(), a, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the publisher answers: %v; got %d bytes, %v", answers, len(got), err)
		}
	}
	refusals(t, publisher, func() error {
		_, err := zoned(t, publisher, mirror, true).Fetch(t.Context(), a, nil)
		return err
	})

	dir, other := t.TempDir(), newUpstream(t)
	asked := 0
	publisher.fail(file, func(w http.ResponseWriter, _ *http.Request) bool {
		if asked++; asked > 1 {
			w.Header().Set("ETag", etag(first))
			w.Header().Set("Content-Length", strconv.Itoa(len(first)))
			_, _ = (&cutter{w, 300_000}).Write(first)
		}
		return asked > 1
	})
	if _, err := openStore(t, dir, publisher).Fetch(t.Context(), a, nil); err == nil || !strings.Contains(err.Error(), "broke off") {
		t.Errorf("a download that breaks off: %v", err)
	}
	other.files["/download.docker.com"+file] = second
	s := openStore(t, dir, other)
	path, err := s.Fetch(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, second) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other.files["/download.docker.com"+file] = first
	if _, err := s.Fetch(t.Context(), a, nil); err == nil || !strings.Contains(err.Error(), "wrong checksum") {
		t.Errorf("another file than at first: %v", err)
	}
}

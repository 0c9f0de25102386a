package resource

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	memory "github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/connector/sshtest"
	"github.com/kubexm/kubexm/pkg/resource/registry"
	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

func newPrivate(t *testing.T) *resourcetest.Private {
	t.Helper()
	return resourcetest.NewPrivate(t, inMemory())
}

// inMemory is a registry without users.
func inMemory() http.Handler { return memory.New(memory.Logger(log.New(io.Discard, "", 0))) }

const nginx = "docker.io/library/nginx:1.30.4"

// TestPush fills a registry from the store, adds to it, and looks into it.
func TestPush(t *testing.T) {
	u := resourcetest.New()
	defer u.Close()
	s, err := Open(t.TempDir(), source.Config{Mirrors: u.Sources()})
	if err != nil {
		t.Fatal(err)
	}
	pull := func(ref, arch string) {
		t.Helper()
		if err := s.Pull(t.Context(), ref, arch, nil); err != nil {
			t.Fatal(err)
		}
	}
	pull(pause, "amd64")
	pull(nginx, "amd64")
	r := newPrivate(t)
	if err := r.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	lacks := func(want ...string) {
		t.Helper()
		if got, err := s.Lacks(t.Context(), r.Private, pause, nginx); err != nil || !slices.Equal(got, want) {
			t.Errorf("lacks %v, %v; want %v", got, err, want)
		}
	}
	lacks(pause, nginx)
	var done, total int64
	push := func() {
		t.Helper()
		if err := s.Push(t.Context(), r.Private, func(d, of int64) { done, total = d, of }, pause, nginx); err != nil {
			t.Fatal(err)
		}
	}
	push()
	if done != total || total == 0 {
		t.Errorf("%d of %d bytes", done, total)
	}
	lacks()
	r.Writes()
	push()
	if n := r.Writes(); n > 0 {
		t.Errorf("%d requests brought what was there", n)
	}
	manifest, err := s.Digest(pause, "amd64")
	top, err2 := s.TopDigest(t.Context(), pause)
	if err := errors.Join(err, err2); err != nil || top != manifest {
		t.Errorf("of one architecture: %s, want %s, %v", top, manifest, err)
	}

	pull(pause, "arm64")
	lacks(pause)
	push()
	if n := r.Writes(); n == 0 || n > 8 { // two blobs of three requests at most, a manifest and an index
		t.Errorf("%d requests for a second architecture", n)
	}
	lacks()
	list, err := r.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if top, err = s.TopDigest(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(list[0].Repository, list[0].Tag, list[0].Archs, list[1].Repository, list[1].Tag, list[1].Archs, list[1].Digest == top)
	if want := fmt.Sprint("docker.io/library/nginx", "1.30.4", []string(nil), "registry.k8s.io/pause", "3.10", []string{"amd64", "arm64"}, true); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if list[1].Size <= list[0].Size || list[0].Size == 0 {
		t.Errorf("sizes: %+v", list)
	}
	if all, err := s.Images(); err != nil || !slices.Equal(all, []string{nginx, pause}) {
		t.Errorf("%v, %v", all, err)
	}
}

// TestPushFails shows what is told where nothing can be pushed.
func TestPushFails(t *testing.T) {
	u := resourcetest.New()
	defer u.Close()
	s, err := Open(t.TempDir(), source.Config{Mirrors: u.Sources()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Pull(t.Context(), pause, "amd64", nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil  func(*registry.Private)
		ref    string
		error  string
		advice bool
	}{
		"another password":  {func(r *registry.Private) { r.Password = secret.New("hunter3") }, pause, "refuses user nodes", true},
		"another authority": {func(r *registry.Private) { r.CA = nil }, pause, "certificate", false},
		"nobody there":      {func(r *registry.Private) { r.Address = "127.0.0.1:1" }, pause, "connection refused", true},
		"not in the store":  {func(*registry.Private) {}, nginx, "is not in the store", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPrivate(t)
			c.spoil(&r.Private)
			err := s.Push(t.Context(), r.Private, nil, c.ref)
			if fault.IsTransient(err) != (name == "nobody there") {
				t.Errorf("transient: %t", fault.IsTransient(err))
			}
			if err == nil || !strings.Contains(err.Error(), c.error) || strings.Contains(err.Error(), "hunter") || (fault.Advice(err) != "") != c.advice {
				t.Errorf("%v, advice %q", err, fault.Advice(err))
			}
		})
	}
	d, err := s.Digest(pause, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.blobPath(digest.Digest(d)), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Push(t.Context(), newPrivate(t).Private, nil, pause); err == nil {
		t.Error("a damaged image was pushed")
	}
}

// withImages is a store that has two images.
func withImages(t *testing.T) *Store {
	t.Helper()
	u := resourcetest.New()
	defer u.Close()
	s, err := Open(t.TempDir(), source.Config{Mirrors: u.Sources()})
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{pause, nginx} {
		if err := s.Pull(t.Context(), ref, "amd64", nil); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestPushOverSSH pushes through the connection to a registry's host, which is lost once in the middle.
func TestPushOverSSH(t *testing.T) {
	s := withImages(t)
	server := sshtest.Start(t, sshtest.Config{})
	host, err := connector.SSH(t.Context(), connector.SSHConfig{
		Name: "node1", Address: server.Address, Port: server.Port, User: "root", KnownHosts: filepath.Join(t.TempDir(), "known_hosts"), Password: secret.New("any"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	r := newPrivate(t)
	r.Dial = host.Dial
	var lost atomic.Bool
	err = s.Push(t.Context(), r.Private, func(done, _ int64) {
		if done > 0 && !lost.Swap(true) {
			server.Drop()
		}
	}, pause, nginx)
	if !lost.Load() || err != nil && !fault.IsTransient(err) { // net/http itself tries again what it can
		t.Errorf("the connection was lost: %v", err)
	}
	if err := s.Push(t.Context(), r.Private, nil, pause, nginx); err != nil {
		t.Fatal(err)
	}
	if lacks, err := s.Lacks(t.Context(), r.Private, pause, nginx); err != nil || lacks != nil {
		t.Errorf("lacks %v, %v", lacks, err)
	}
}

// TestHarbor fills a registry whose projects must be made first.
func TestHarbor(t *testing.T) {
	s := withImages(t)
	r := resourcetest.NewPrivate(t, resourcetest.Harbor(inMemory()))
	if err := s.Push(t.Context(), r.Private, nil, pause); err == nil || !strings.Contains(err.Error(), "refuses user nodes") {
		t.Errorf("without projects: %v", err)
	}
	r.Kind = "harbor"
	if err := r.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if lacks, err := s.Lacks(t.Context(), r.Private, pause, nginx); err != nil || !slices.Equal(lacks, []string{pause, nginx}) {
		t.Errorf("lacks %v, %v", lacks, err)
	}
	for range 2 {
		if err := s.Push(t.Context(), r.Private, nil, pause, nginx); err != nil {
			t.Fatal(err)
		}
	}
	if lacks, err := s.Lacks(t.Context(), r.Private, pause, nginx); err != nil || lacks != nil {
		t.Errorf("lacks %v, %v", lacks, err)
	}
	if list, err := r.List(t.Context()); err != nil || len(list) != 2 || list[1].Repository != "registry.k8s.io/pause" {
		t.Errorf("%+v, %v", list, err)
	}
	other := r.Private
	other.Password = secret.New("hunter3")
	_, err := s.Lacks(t.Context(), other, pause)
	if err == nil || !strings.Contains(err.Error(), "refuses user nodes") || !strings.Contains(fault.Advice(err), "first started") {
		t.Errorf("another password: %v, %s", err, fault.Advice(err))
	}
}

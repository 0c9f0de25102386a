package resource

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestLook(t *testing.T) {
	u, s := gallery(t)
	kubelet, etcd := mustNew(t, "kubelet", "1.99.7"), mustNew(t, "etcd", "3.6.14")
	u.publish(t, kubelet, program)
	items := []Item{{Artifact: kubelet}, {Artifact: etcd}, ImageItem(pause, "amd64"), ImageItem("registry.k8s.io/pause:9", "amd64")}
	var text strings.Builder
	look := func(what string, ask bool) {
		u.requests()
		stock, err := s.Look(t.Context(), items, ask)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "== %s\n", what)
		for _, i := range stock {
			fmt.Fprintf(&text, "%s: there %v, %d bytes, from %s\n", i, i.There, i.Size, i.From)
		}
		if asked := u.requests(); !ask && len(asked) > 0 {
			t.Errorf("%s: asked for %q", what, asked)
		}
	}
	look("nothing is there, and nobody is asked", false)
	look("servers are asked", true)
	if _, err := os.Stat(s.dir); err != nil {
		t.Error("that changed the store")
	}
	mustFetch(t, s, kubelet, program)
	mustPull(t, s, pause, "amd64")
	look("some are there", false)
	u.fail("", func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusBadGateway); return true })
	look("servers are out of order", true)
	golden.Equal(t, strings.ReplaceAll(text.String(), u.URL, "MIRROR"))
}

func TestVerify(t *testing.T) {
	s, items := stocked(t)
	if _, err := s.Programs(t.Context(), mustNew(t, "etcd", "3.6.14")); err != nil {
		t.Fatal(err)
	}
	v, err := s.Verify(t.Context())
	if err != nil || len(v.Flaws) > 0 || v.Files != 12 || v.Bytes < 900_000 { // 8, the joint index, three programs
		t.Errorf("%+v, %v", v, err)
	}
	index, err := os.ReadFile(s.file("images/index.json"))
	joint := s.blobPath(digest.Digest(regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(string(index))))
	layer := digest.FromBytes(noise(1, 300_000))
	for _, harm := range []error{
		err, os.WriteFile(s.file("etcd/3.6.14/amd64/etcdctl"), []byte("X"), 0o755), os.WriteFile(s.file(kubeletKey), []byte("X"), 0o644),
		os.WriteFile(s.blobPath(layer), []byte("X"), 0o644), os.Remove(s.blobPath(digest.FromBytes(noise(uint64(len("pauseamd64")), 200_000)))),
		os.WriteFile(joint, []byte("{}"), 0o644), os.WriteFile(s.file("kubelet/stray"), nil, 0o644),
	} {
		if harm != nil {
			t.Fatal(harm)
		}
	}
	if v, err = s.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range v.Flaws {
		fmt.Fprintf(&text, "%s: %s\n", f.Path, f.What)
	}
	golden.Equal(t, text.String())
	if stock, err := s.Look(t.Context(), items, false); err != nil || stock[0].There || stock[1].There {
		t.Errorf("what is wrong is still believed: %+v, %v", stock, err)
	}
	if v, err := empty(t).Verify(t.Context()); err != nil || v.Files != 0 {
		t.Errorf("an empty store: %+v, %v", v, err)
	}
}

func TestPrune(t *testing.T) {
	s, items := stocked(t)
	if _, err := s.Programs(t.Context(), items[2].Artifact); err != nil {
		t.Fatal(err)
	}
	all, err := s.Prune(t.Context(), items, false)
	if err != nil || len(all) != 0 {
		t.Errorf("nothing is to be pruned: %+v, %v", all, err)
	}
	complete(t, s, items)
	keep := []Item{items[0], items[1], ImageItem("registry.k8s.io/pause:9", "amd64")}
	part := s.file("crictl/1.2.3/amd64/x.part")
	c, err := claimFile(t.Context(), strings.TrimSuffix(part, ".part"))
	if err == nil {
		err = errors.Join(c.write([]byte("on its way")), os.WriteFile(s.file("etcd/note"), nil, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(s.lockPath())
	would, err := s.Prune(t.Context(), keep, true)
	if err != nil {
		t.Fatal(err)
	}
	if stock, err := s.Look(t.Context(), items, false); err != nil || !stock[2].There || !stock[3].There {
		t.Errorf("a dry run removed something: %+v, %v", stock, err)
	}
	did, err := s.Prune(t.Context(), keep, false)
	if diff := cmp.Diff(would, did); err != nil || diff != "" {
		t.Errorf("%v; what was told first differs: %s", err, diff)
	}
	var text strings.Builder
	for _, p := range did {
		fmt.Fprintf(&text, "%s\n", p.Name)
		if p.Size == 0 {
			t.Errorf("%s: no bytes", p.Name)
		}
	}
	_, busy := os.Stat(part)
	c.drop()
	if err := errors.Join(busy, os.Remove(s.file("etcd/note"))); err != nil {
		t.Errorf("what is none of its business is gone: %v", err)
	}
	complete(t, s, items[:2])
	err = filepath.WalkDir(s.dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(s.dir, path)
			fmt.Fprintf(&text, "  %s\n", rel)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	golden.Equal(t, text.String())
	if after, _ := os.ReadFile(s.lockPath()); string(before) != string(after) {
		t.Error("the lock changed")
	}
}

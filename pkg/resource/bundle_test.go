package resource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// stocked returns a store with two files and an image for two architectures, and these items.
func stocked(t testing.TB) (*Store, []Item) {
	t.Helper()
	u := newUpstream(t)
	u.pushIndex(t, "registry.k8s.io/pause", "3.10")
	kubelet, etcd := mustNew(t, "kubelet", "1.99.7"), mustNew(t, "etcd", "3.6.14")
	u.publish(t, kubelet, program)
	archive := tgz(t, "x/etcd", "E", "x/etcdctl", "C", "x/etcdutl", "U")
	u.publish(t, etcd, archive)
	s := openStore(t, t.TempDir(), u)
	mustFetch(t, s, kubelet, program)
	mustFetch(t, s, etcd, archive)
	mustPull(t, s, pause, "amd64", "arm64")
	u.Close()
	return s, []Item{{Artifact: kubelet}, ImageItem(pause, "amd64"), {Artifact: etcd}, ImageItem(pause, "arm64")}
}

// empty returns a store that reaches nobody.
func empty(t testing.TB) *Store {
	t.Helper()
	s, err := Open(t.TempDir(), source.Config{Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustPack(t testing.TB, s *Store, b Bundle) []Volume {
	t.Helper()
	volumes, err := s.Pack(t.Context(), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range volumes {
		if sum, err := hashFile(v.Path); err != nil || sum != v.SHA256 {
			t.Errorf("%s has SHA-256 %s, %v, told was %s", v.Path, sum, err, v.SHA256)
		}
	}
	return volumes
}

// complete checks that a store has all of the items, unharmed.
func complete(t testing.TB, s *Store, items []Item) {
	t.Helper()
	stock, err := s.Look(t.Context(), items, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range stock {
		if !i.There {
			t.Errorf("%s is not in the store", i)
		}
	}
	if v, err := s.Verify(t.Context()); err != nil || len(v.Flaws) > 0 {
		t.Errorf("the store has flaws: %v, %v", v.Flaws, err)
	}
	nothingLeft(t, s)
}

func TestBundle(t *testing.T) {
	s, items := stocked(t)
	dir := t.TempDir()
	b := Bundle{Path: filepath.Join(dir, "dist", "a.tar.zst"), Cluster: "demo", Program: "v1.2.3", Items: items}
	volumes := mustPack(t, s, b)
	b.Path = filepath.Join(dir, "b.tar.zst")
	slices.Reverse(b.Items)
	if again := mustPack(t, s, b); len(volumes) != 1 || volumes[0].SHA256 != again[0].SHA256 {
		t.Error("the same store gives other bytes")
	}
	var text strings.Builder
	all := unpackBundle(t, b.Path)
	all[0].body = bytes.Replace(all[0].body, []byte(sumOf(all[1].body)), []byte("LOCK"), 1)
	for _, m := range all {
		fmt.Fprintf(&text, "%v %s %d %s\n", m.FileInfo().Mode(), m.Name, m.Size, m.ModTime.UTC().Format("2006"))
		if m.Name == manifestFile || m.Name == lockFile {
			text.Write(m.body)
			text.WriteString("\n")
		}
	}
	golden.Equal(t, regexp.MustCompile(`http://[0-9.:]+`).ReplaceAllString(text.String(), "MIRROR"), "members.txt")

	to := empty(t)
	got, err := to.Import(t.Context(), b.Path, nil, nil)
	want := Imported{Cluster: "demo", Kubexm: "v1.2.3", Added: 8, Bytes: got.Bytes, Images: 2, Files: 2, Volumes: 1}
	if diff := cmp.Diff(want, got); err != nil || diff != "" || got.Bytes < 900_000 {
		t.Fatalf("%v, %d bytes (-want +got):\n%s", err, got.Bytes, diff)
	}
	complete(t, to, items)
	if members, err := to.Programs(t.Context(), mustNew(t, "etcd", "3.6.14")); err != nil || len(members) != 3 {
		t.Errorf("members of etcd: %v, %v", members, err)
	}
	before, err := os.ReadFile(to.lockPath())
	if err != nil {
		t.Fatal(err)
	}
	if got, err = to.Import(t.Context(), b.Path, nil, nil); err != nil || got.Added != 0 || got.Present != 8 {
		t.Errorf("again: %+v, %v", got, err)
	}
	if after, err := os.ReadFile(to.lockPath()); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the lock changed: %v", err)
	}
	for _, name := range []string{"images/index.json", "kubelet/1.99.7/amd64/SHA256SUMS"} {
		one, err1 := os.ReadFile(s.file(name))
		two, err2 := os.ReadFile(to.file(name))
		if err := errors.Join(err1, err2); err != nil || !bytes.Equal(one, two) {
			t.Errorf("%s differs: %v", name, err)
		}
	}
}

// Two bundles add up: the lock and the layout name what both brought.
func TestImportsAddUp(t *testing.T) {
	s, items := stocked(t)
	to := empty(t)
	for n, i := range items {
		file := filepath.Join(t.TempDir(), "x")
		mustPack(t, s, Bundle{Path: file, Items: []Item{i}})
		if _, err := to.Import(t.Context(), file, nil, nil); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
	}
	complete(t, to, items)
	one, err1 := os.ReadFile(s.lockPath())
	two, err2 := os.ReadFile(to.lockPath())
	if diff := cmp.Diff(string(one), string(two)); errors.Join(err1, err2) != nil || diff != "" {
		t.Errorf("the locks differ: %s", diff)
	}
}

func TestVolumes(t *testing.T) {
	s, items := stocked(t)
	base := filepath.Join(t.TempDir(), "x.tar.zst")
	b := Bundle{Path: base, Limit: 100_000, Items: items}
	many := mustPack(t, s, b)
	b.Limit = 300_000
	few := mustPack(t, s, b)
	if len(few) >= len(many) || few[0].Path != base+".001" || few[0].Size != b.Limit {
		t.Errorf("%d volumes, then %d: %+v", len(many), len(few), few[0])
	}
	left, err := filepath.Glob(base + "*")
	if err != nil || len(left) != len(few) {
		t.Errorf("there are now %q", left)
	}
	for _, name := range []string{base, base + ".001", base + ".002"} {
		to := empty(t)
		last := int64(0)
		got, err := to.Import(t.Context(), name, nil, func(done, total int64) {
			if done <= last || done > total {
				t.Errorf("progress %d of %d after %d", done, total, last)
			}
			last = done
		})
		if err != nil || got.Volumes != len(few) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		complete(t, to, items)
	}
	var text strings.Builder
	tell := func(what, name string) {
		to := empty(t)
		_, err := to.Import(t.Context(), name, nil, nil)
		fmt.Fprintf(&text, "== %s\n%s", what, told(err, filepath.Dir(base), "DIR"))
		if _, err := os.Stat(to.lockPath()); err == nil {
			t.Errorf("%s: the lock was written", what)
		}
	}
	move := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(base+".002", base+".gone")
	tell("one in the middle is missing", base)
	tell("and is named", base+".002")
	move(base+".gone", base+".002")
	move(base+".001", base+".gone")
	tell("the first is missing", base+".002")
	move(base+".gone", base+".001")
	last := few[len(few)-1].Path
	move(last, base+".gone")
	tell("the last is missing", base+".001")
	move(base+".003", base+".x")
	move(base+".002", base+".003")
	move(base+".x", base+".002")
	if _, err := empty(t).Import(t.Context(), base, nil, nil); err == nil {
		t.Error("two volumes are swapped, and nobody minds")
	}
	tell("nothing is there", base+"-other")
	tell("a directory", filepath.Dir(base))
	golden.Equal(t, text.String())
}

func TestPackFails(t *testing.T) {
	s, items := stocked(t)
	var text strings.Builder
	file := filepath.Join(t.TempDir(), "bundle")
	tell := func(what string, b Bundle) {
		_, err := s.Pack(t.Context(), b, nil)
		fmt.Fprintf(&text, "== %s\n%s", what, told(err, file, "BUNDLE", s.dir, "STORE"))
		if left, _ := filepath.Glob(file + "*"); left != nil {
			t.Errorf("%s: left behind %q", what, left)
		}
	}
	tell("an image that is not there", Bundle{Path: file, Items: []Item{ImageItem("registry.k8s.io/pause:9", "amd64")}})
	tell("a file that is not there", Bundle{Path: file, Items: []Item{{Artifact: mustNew(t, "kubelet", "1.99.8")}}})
	path := s.file(kubeletKey)
	before, err := os.Stat(path)
	if err := errors.Join(err, os.WriteFile(path, noise(9, len(program)), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
		t.Fatal(err)
	}
	tell("a file that rotted", Bundle{Path: file, Limit: 100_000, Items: items})
	ctx, cancel := newCancel(t)
	cancel(context.Canceled)
	if _, err := s.Pack(ctx, Bundle{Path: file, Items: items[1:]}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	golden.Equal(t, text.String())
}

func TestBundleDiskFull(t *testing.T) {
	s, items := stocked(t)
	number := regexp.MustCompile(`\d+(\.\d+ KiB| B) free`)
	small := tmpfs(t)
	file := filepath.Join(t.TempDir(), "bundle")
	_, packErr := s.Pack(t.Context(), Bundle{Path: filepath.Join(small, "bundle"), Items: items}, nil)
	mustPack(t, s, Bundle{Path: file, Items: items})
	to, err := Open(filepath.Join(small, "packages"), source.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, importErr := to.Import(t.Context(), file, nil, nil)
	if !errors.Is(packErr, syscall.ENOSPC) || !errors.Is(importErr, syscall.ENOSPC) {
		t.Errorf("got %v and %v", packErr, importErr)
	}
	if left, _ := filepath.Glob(small + "/*"); left != nil {
		t.Errorf("left behind: %q", left)
	}
	golden.Equal(t, number.ReplaceAllString(told(packErr, small, "SMALL")+told(importErr, file, "BUNDLE", small, "SMALL"), "N free"))
}

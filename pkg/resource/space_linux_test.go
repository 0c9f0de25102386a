package resource

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/kubexm/kubexm/pkg/util/golden"
)

// tmpfs returns a folder on a file system of 256 KiB.
func tmpfs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("a small file system is needed, and only root may mount one: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestDiskFull(t *testing.T) {
	number := regexp.MustCompile(`\d+(\.\d+ KiB| B) free|byte \d+`)
	for _, tt := range []struct {
		name string
		f    func(sc *scene) error
	}{
		{"known before", func(sc *scene) error {
			_, err := sc.store.Fetch(sc.t.Context(), sc.a, nil)
			return err
		}},
		{"found while writing", func(sc *scene) error {
			sc.fail("/kubelet", func(w http.ResponseWriter, _ *http.Request) bool {
				w.(http.Flusher).Flush() // no Content-Length
				_, _ = w.Write(program)
				return true
			})
			_, err := sc.store.Fetch(sc.t.Context(), sc.a, nil)
			return err
		}},
		{"found while unpacking", func(sc *scene) error {
			a := mustNew(sc.t, "crictl", "1.2.3")
			content := tgz(sc.t, "crictl", string(make([]byte, 300_000)))
			sc.publish(sc.t, a, content)
			mustFetch(sc.t, sc.store, a, content)
			_, err := sc.store.Programs(sc.t.Context(), a)
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sc := newScene(t)
			dir := tmpfs(t)
			sc.store = openStore(t, filepath.Join(dir, "packages"), sc.upstream)
			sc.file = sc.store.path(sc.a)
			err := tt.f(sc)
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("got %v", err)
			}
			golden.Equal(t, number.ReplaceAllStringFunc(told(err, sc.URL, "MIRROR", sc.store.dir, "STORE"), func(string) string { return "N" }))
		})
	}
}

func TestReadOnlyStore(t *testing.T) {
	a := mustNew(t, "etcd", "3.6.14")
	s := fetched(t, a, tgz(t, "x/etcd", "E", "x/etcdctl", "C", "x/etcdutl", "U"))
	if _, err := s.Programs(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(s.path(a)), indexFile)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Mount(s.dir, s.dir, "", syscall.MS_BIND, ""), syscall.Mount("", s.dir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")); err != nil {
		t.Skipf("only root may mount: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(s.dir, 0); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(filepath.Join(s.dir, "x"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Fatal(fmt.Errorf("not read-only: %w", err))
	}
	if _, err := s.Fetch(t.Context(), a, nil); err != nil {
		t.Error(err)
	}
	if members, err := s.Programs(t.Context(), a); err != nil || len(members) != 3 {
		t.Errorf("got %+v, %v", members, err)
	}
}

package app_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestNoSpaceHere makes keys on a file system that has no space for them, and on one that nobody may write to.
func TestNoSpaceHere(t *testing.T) {
	for name, c := range map[string]struct {
		flags uintptr
		size  string
	}{"full": {0, "size=16k"}, "read-only": {syscall.MS_RDONLY, ""}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row(t, "row2"), "")
			certs := filepath.Join(w.dir, "row2", "certs")
			w.must(os.MkdirAll(certs, 0o700))
			if err := syscall.Mount("tmpfs", certs, "tmpfs", c.flags, c.size); err != nil {
				t.Skipf("a small file system is needed, and only root may mount one: %v", err)
			}
			defer func() { w.must(syscall.Unmount(certs, 0)) }()
			a := w.attempt(t.Context())
			_, err := app.Build(a.ctx, a.Options)
			if err == nil {
				t.Fatal("went well")
			}
			golden.Equal(t, a.told(err))
		})
	}
}

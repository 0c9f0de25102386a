package app_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// onDisk gives a directory a file system of its own, of a size, for as long as the test lasts.
func (w *world) onDisk(dir string, flags uintptr, size string) {
	w.Helper()
	w.must(os.MkdirAll(dir, 0o700))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, size); err != nil {
		w.Skipf("a small file system is needed, and only root may mount one: %v", err)
	}
	w.Cleanup(func() { w.must(syscall.Unmount(dir, 0)) })
}

// onSmallDisk puts what is made of a cluster on a file system of four MiB, and returns what fills it and frees it again.
func (w *world) onSmallDisk(name string) (fill, free func()) {
	w.Helper()
	dir := filepath.Join(w.dir, name)
	w.onDisk(dir, 0, "size=4m")
	ballast := filepath.Join(dir, "ballast")
	fill = func() {
		if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			w.Errorf("the disk is not full: %v", err)
		}
	}
	return fill, func() { w.must(os.Remove(ballast)) }
}

// TestUnusable shows what is told where the cluster's directory cannot be written to.
func TestUnusable(t *testing.T) {
	for name, spoil := range map[string]func(w *world){
		"full": func(w *world) { fill, _ := w.onSmallDisk("row1"); fill() },
		"read only": func(w *world) {
			w.onSmallDisk("row1")
			w.must(syscall.Mount("", filepath.Join(w.dir, "row1"), "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
		},
		"a file": func(w *world) { w.must(os.WriteFile(filepath.Join(w.dir, "row1"), nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, "row1"), "")
				spoil(w)
				a := w.attempt(t.Context())
				_, err := a.App.Build(a.ctx, a.Request, a.Observer)
				told := "build\n" + a.told(err)
				a = w.attempt(t.Context())
				if _, err = a.App.Preflight(a.ctx, a.Request, a.Observer); err != nil {
					told += "preflight\n" + a.told(err)
				}
				golden.Equal(t, told)
			})
		})
	}
}

// TestDiskFull fills the disk of the record in the middle of a run, for good or for a while.
func TestDiskFull(t *testing.T) {
	for name, forGood := range map[string]bool{"for good": true, "for a while": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, "row1"), "")
				fill, free := w.onSmallDisk("row1")
				a := w.attempt(t.Context())
				recorded, nodes := 0, 0
				a.Begin = func(_ string, g *plan.ExecutionGraph) { nodes = len(g.Nodes) }
				a.Event = func(ev engine.Event) {
					if ev.Status == engine.Progress {
						return
					}
					recorded++ // of a node two: that it started, and how it ended
					switch {
					case recorded == nodes/2:
						fill()
					case recorded == nodes && !forGood:
						free()
					}
				}
				res, err := a.create()
				if forGood {
					golden.Equal(t, a.told(err))
					free()
					_, err = w.attempt(t.Context()).create()
					w.must(err)
					return
				}
				w.must(err)
				kept := 0
				err = a.App.Events(t.Context(), a.Request, res.Run, false, func(engine.Event) error { kept++; return nil })
				if err != nil || kept != recorded {
					t.Errorf("%d of %d events are in the record, %v", kept, recorded, err)
				}
			})
		})
	}
}

// TestNoSpaceHere makes keys on a file system that has no space for them, and on one that nobody may write to.
func TestNoSpaceHere(t *testing.T) {
	for name, c := range map[string]struct {
		flags uintptr
		size  string
	}{"full": {0, "size=16k"}, "read-only": {syscall.MS_RDONLY, ""}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, row(t, "row2"), "")
			w.onDisk(filepath.Join(w.dir, "row2", "certs"), c.flags, c.size)
			a := w.attempt(t.Context())
			_, err := a.App.Build(a.ctx, a.Request, a.Observer)
			if err == nil {
				t.Fatal("went well")
			}
			golden.Equal(t, a.told(err))
		})
	}
}

package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Cache is the directory of everything that is expensive to make and never
// changes once made. Nothing in it belongs to one testbed.
type Cache struct{ Dir string }

// DefaultCache is $KUBEXM_TESTBED_CACHE, or kubexm-testbed in the user's cache directory.
func DefaultCache() (Cache, error) {
	if dir := os.Getenv("KUBEXM_TESTBED_CACHE"); dir != "" {
		abs, err := filepath.Abs(dir)
		return Cache{abs}, err
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return Cache{}, fmt.Errorf("finding the cache directory: %w", err)
	}
	return Cache{filepath.Join(dir, "kubexm-testbed")}, nil
}

// Path names something in the cache.
func (c Cache) Path(parts ...string) string {
	return filepath.Join(append([]string{c.Dir}, parts...)...)
}

// Lock waits until no other process works on what, and returns how to let go.
// A process that dies lets go as well.
func (c Cache) Lock(ctx context.Context, what string) (unlock func(), err error) {
	if err := os.MkdirAll(c.Path("locks"), 0o755); err != nil {
		return nil, fmt.Errorf("locking %s: %w", what, err)
	}
	return LockFile(ctx, c.Path("locks", what))
}

// LockFile is Lock for any file; it is made when it is not there, and who
// holds it may remove it.
func LockFile(ctx context.Context, path string) (unlock func(), err error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, fmt.Errorf("locking: %w", err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && sameFile(f, path) {
			return func() { f.Close() }, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the other process that holds %s: %w", path, ctx.Err())
		case <-tick.C:
		}
	}
}

// sameFile reports whether f still lies at path.
func sameFile(f *os.File, path string) bool {
	mine, err1 := f.Stat()
	there, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(mine, there)
}

package resource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// claim is the right to replace the file at path, held by one goroutine of one
// process at a time: a lock on path.part, which is what path is replaced by. A
// process that dies lets go of it and leaves what it wrote to the next.
type claim struct {
	*os.File
	path string
}

// claimFile waits for the claim on path.
func claimFile(ctx context.Context, path string) (*claim, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 25*time.Millisecond) {
		f, err := os.OpenFile(path+".part", os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && current(f) {
			return &claim{f, path}, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, fmt.Errorf("waiting for another kubexm that writes %s: %w", path, err)
		}
	}
}

// current reports whether f is still what its name stands for: its holder may have renamed it.
func current(f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(f.Name())
	return err == nil && os.SameFile(mine, named)
}

// write makes content all there is in path.part.
func (c *claim) write(content []byte) error {
	if err := c.Truncate(0); err != nil {
		return err
	}
	_, err := c.WriteAt(content, 0)
	return err
}

// commit makes what was written the content of path, also in the face of a power cut.
func (c *claim) commit() error {
	if err := c.Sync(); err != nil {
		return err
	}
	return os.Rename(c.Name(), c.path)
}

// release ends the claim. What was written and not committed stays in path.part.
func (c *claim) release() {
	if info, err := c.Stat(); err == nil && info.Size() == 0 && current(c.File) {
		os.Remove(c.Name())
	}
	c.Close()
}

// drop ends the claim and removes what was not committed.
func (c *claim) drop() {
	if current(c.File) {
		os.Remove(c.Name())
	}
	c.Close()
}

// replace writes content to path atomically.
func replace(ctx context.Context, path string, content []byte) error {
	return edit(ctx, path, func([]byte) ([]byte, error) { return content, nil })
}

// edit atomically replaces the content of path (nil where there is none) by what change makes of it.
func edit(ctx context.Context, path string, change func(old []byte) ([]byte, error)) error {
	c, err := claimFile(ctx, path)
	if err != nil {
		return err
	}
	defer c.drop()
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	content, err := change(old)
	if err != nil {
		return err
	}
	if err := c.write(content); err != nil {
		return err
	}
	return c.commit()
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Package durable writes files that a crash or a power cut must not take.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Advise adds the next move to an error that says that the work directory is full or may not be written.
// It returns nil for a nil err.
func Advise(err error) error {
	const elsewhere = "; a new cluster can be made elsewhere: --workdir DIR"
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.Advise(err, "free space there, and run it again"+elsewhere)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fault.Advise(err, "make it writable, or run kubexm as the user who owns it"+elsewhere)
	}
	return err
}

// Write replaces a file whole, with mode 0600: a reader, another writer, or a run after a
// crash or a power cut, sees the old content or the new. Its directory is made, with mode 0700,
// where there is none.
func Write(path string, data []byte) error {
	return Fill(path, func(f *os.File) error { _, err := f.Write(data); return err })
}

// Fill is Write of what a function puts into a file, which it may read again. When that fails, the old file stays.
func Fill(path string, fill func(*os.File) error) error {
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = write(path, fill)
		if of, ok := errors.AsType[*fs.PathError](err); ok {
			of.Path = path // not that of a temporary file
		}
	}
	return Advise(err)
}

func write(path string, fill func(*os.File) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	err = fill(f)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path)) // a power cut does not undo the rename
}

// Move renames a file or a directory to one that is not there, within a file system, for good.
func Move(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return errors.Join(syncDir(filepath.Dir(to)), syncDir(filepath.Dir(from)))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

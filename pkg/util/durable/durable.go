// Package durable writes files that a crash or a power cut must not take.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces a file whole, with mode 0600: a reader, another writer, or a run after a
// crash or a power cut, sees the old content or the new. Its directory must be there.
func Write(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close()) // a power cut does not undo the rename
}

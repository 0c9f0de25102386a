package store

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"

	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Result codes of SQLite, without what extends them (https://www.sqlite.org/rescode.html).
const (
	codeBusy     = 5
	codeReadOnly = 8
	codeIOErr    = 10
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeNotADB   = 26
)

// fail says what failed, why in the system's words where SQLite has its own, and what to do. It returns nil for a nil err.
func (d *database) fail(doing string, err error) error {
	if err == nil {
		return nil
	}
	advice := ""
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff {
		case codeFull:
			err = &fs.PathError{Op: "write", Path: d.path, Err: syscall.ENOSPC}
		case codeReadOnly, codeIOErr, codeCantOpen:
			if cause := d.cause(); cause != nil {
				err = &fs.PathError{Op: "write", Path: d.path, Err: cause}
			} else {
				err = fmt.Errorf("%s: %w", d.path, err)
			}
		case codeBusy:
			err = fmt.Errorf("%s is in use by another process: %w", d.path, err)
			advice = "try again when it has ended"
		case codeCorrupt, codeNotADB:
			err = fmt.Errorf("%s is damaged: %w", d.path, err)
			advice = fmt.Sprintf("the cluster is not affected. Restore a copy of the file; or move it away with its %s-wal, and run the command again: "+
				"the history then starts over, and what was applied is unknown until the next create", File)
		}
	}
	return fault.Advise(durable.Advise(fmt.Errorf("%s: %w", doing, err)), advice)
}

// busy reports whether another process has the file to itself.
func busy(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == codeBusy
}

// cause finds out why the file cannot be written: SQLite does not pass on what the kernel said.
func (d *database) cause() error {
	for _, path := range []string{d.dir, d.path} {
		if err := unix.Access(path, unix.W_OK); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	var is unix.Statfs_t
	if err := unix.Statfs(d.dir, &is); err == nil && is.Bavail*uint64(max(is.Bsize, 0)) < 64<<10 {
		return syscall.ENOSPC
	}
	return nil
}

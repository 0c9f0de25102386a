package place

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"syscall"

	"github.com/pkg/sftp"

	"github.com/kubexm/kubexm/pkg/connector"
)

// SFTP is a directory, by its absolute path, of a server that speaks SFTP. It is as Dir is, and reached when there is something to do.
func SFTP(server connector.SSHConfig, path string) Place {
	return &directory{
		name: fmt.Sprintf("sftp://%s@%s%s", server.User, server.Endpoint(), path), path: path, user: server.User + " of " + server.Address,
		reach: func(ctx context.Context) (files, error) {
			f, err := connector.SFTP(ctx, server)
			return remote{f}, err
		},
	}
}

// ahead is how much is written and read at once, in requests of 32 KB: one after the other, each would wait for its answer.
const ahead = 4 << 20

// remote are the files of a server.
type remote struct{ *connector.Files }

func (r remote) fill(file string, fill func(io.Writer) error) (err error) {
	dir, name := path.Split(file)
	if err := r.makeDir(path.Clean(dir)); err != nil {
		return err
	}
	temporary := fmt.Sprintf("%s.%s-%d", dir, name, rand.Uint32())
	f, err := r.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = r.Remove(temporary)
		}
	}()
	w := bufio.NewWriterSize(f, ahead)
	if err = whereAllowed(f.Chmod(0o600)); err == nil {
		err = fill(w)
	}
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = whereSupported(f.Sync())
	}
	if err = cmp.Or(err, f.Close()); err != nil {
		return err
	}
	return r.replace(file, temporary)
}

// replace gives a file the name of another one, at once where the server can.
func (r remote) replace(file, by string) error {
	if _, can := r.HasExtension("posix-rename@openssh.com"); can {
		return r.PosixRename(by, file)
	}
	err := r.Rename(by, file)
	if err != nil { // others do not replace a file
		if e := r.Remove(file); e == nil {
			err = r.Rename(by, file)
		}
	}
	return err
}

// makeDir makes a directory, and those above it, with mode 0700.
func (r remote) makeDir(dir string) error {
	info, err := r.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if above := path.Dir(dir); above != dir {
		if err := r.makeDir(above); err != nil {
			return err
		}
	}
	if err := r.Mkdir(dir); err != nil {
		if is, _ := r.Stat(dir); is != nil && is.IsDir() { // another run was faster
			return nil
		}
		return err
	}
	return whereAllowed(r.Chmod(dir, 0o700))
}

// whereSupported drops the answer of a server that does not know what it was asked for: stores behind SFTP have no modes.
func whereSupported(err error) error {
	if answer, ok := errors.AsType[*sftp.StatusError](err); ok && answer.FxCode() == sftp.ErrSSHFxOpUnsupported {
		return nil
	}
	return err
}

// whereAllowed is whereSupported for modes, which some servers keep to themselves.
func whereAllowed(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return whereSupported(err)
}

func (r remote) open(file string) (io.ReadCloser, error) {
	f, err := r.Open(file)
	if err != nil {
		return nil, err
	}
	return reading{bufio.NewReaderSize(reader(func(p []byte) (int, error) {
		n, err := f.Read(p)
		if n > 0 {
			return n, nil // the end may be that of a request that the server answered in part
		}
		return 0, err
	}), ahead), f}, nil
}

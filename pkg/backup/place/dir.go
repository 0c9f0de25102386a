package place

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Dir is a directory of this machine. It is made, with mode 0700, with the first backup. Backups have mode 0600.
func Dir(path string) Place { return dir(path) }

type dir string

// String implements fmt.Stringer.
func (d dir) String() string { return string(d) }

// Put implements Place.
func (d dir) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := plain(name); err != nil {
		return err
	}
	d.sweep()
	var broken, wrote error // of the file; of who fills it
	err := durable.Fill(d.file(name), func(f *os.File) error {
		wrote = write(writer(func(p []byte) (n int, err error) {
			if broken == nil {
				broken = context.Cause(ctx)
			}
			if broken == nil {
				n, broken = f.Write(p)
			}
			return n, broken
		}))
		if wrote == nil && broken == nil {
			broken = context.Cause(ctx)
		}
		return errors.Join(wrote, broken) // a failed write that write hides is still one
	})
	switch {
	case err == nil:
		return nil
	case broken != nil:
		err = d.advise(broken)
	case wrote != nil:
		err = wrote
	default: // without the advice that durable gives for the work directory
		if of, ok := errors.AsType[*fs.PathError](err); ok {
			err = d.advise(of)
		}
	}
	return fmt.Errorf("storing %s in %s: %w", name, d, err)
}

// Open implements Place.
func (d dir) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := plain(name); err != nil {
		return nil, err
	}
	f, err := os.Open(d.file(name))
	if err != nil {
		return nil, fmt.Errorf("opening %s in %s: %w", name, d, d.advise(err))
	}
	return reading{reader(func(p []byte) (int, error) {
		if err := context.Cause(ctx); err != nil {
			return 0, fmt.Errorf("reading %s in %s: %w", name, d, err)
		}
		return f.Read(p)
	}), f}, nil
}

// List implements Place. A directory that is not there has no backups yet.
func (d dir) List(ctx context.Context, cluster string) ([]Object, error) {
	entries, err := os.ReadDir(string(d))
	if err = errors.Join(context.Cause(ctx), err); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the backups in %s: %w", d, d.advise(err))
	}
	var all []Object
	for _, e := range entries {
		taken, ours := parse(cluster, e.Name())
		if !ours || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed by another run
		case err != nil:
			return nil, fmt.Errorf("listing the backups in %s: %w", d, d.advise(err))
		default:
			all = append(all, Object{Name: e.Name(), Taken: taken, Size: info.Size()})
		}
	}
	return sorted(all), nil
}

// Remove implements Place.
func (d dir) Remove(ctx context.Context, name string) error {
	if err := plain(name); err != nil {
		return err
	}
	err := context.Cause(ctx)
	if err == nil {
		err = os.Remove(d.file(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s from %s: %w", name, d, d.advise(err))
	}
	return nil
}

func (d dir) file(name string) string { return filepath.Join(string(d), name) }

// unfinished is the name of a file that durable.Fill has not renamed yet.
var unfinished = regexp.MustCompile(`^\..+-\d{8}T\d{6}Z\.tar\.zst(\.age)?-\d+$`)

// sweep removes what runs that were killed left of their backups, which can be large. One that is written to now is younger.
func (d dir) sweep() {
	entries, _ := os.ReadDir(string(d)) // what cannot be read now is swept another time
	for _, e := range entries {
		if !e.Type().IsRegular() || !unfinished.MatchString(e.Name()) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			_ = os.Remove(d.file(e.Name()))
		}
	}
}

func (d dir) advise(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.Advise(err, "free space there, keep fewer backups, or keep them elsewhere")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fault.Advise(err, "let the user who runs kubexm write to "+string(d)+", or keep backups elsewhere")
	case errors.Is(err, syscall.ENOTDIR):
		return fault.Advise(err, "name a directory")
	case errors.Is(err, fs.ErrNotExist):
		return fault.Advise(err, noSuch)
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ESTALE):
		return fault.Advise(err, "check the disk or the file server that "+string(d)+" is on")
	}
	return err
}

const noSuch = "list the backups there, and name one of them"

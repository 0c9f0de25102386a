package place

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"syscall"
	"time"

	"github.com/pkg/sftp"

	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Dir is a directory of this machine. It is made, with mode 0700, with the first backup. Backups have mode 0600.
func Dir(path string) Place {
	return &directory{name: path, path: path, user: "the user who runs kubexm", reach: func(context.Context) (files, error) { return local{}, nil }}
}

// directory is one of this machine, or of one that speaks SFTP.
type directory struct {
	name  string // as a user knows it
	path  string
	user  string // who reads and writes there, for advice
	reach func(context.Context) (files, error)
}

// files are those of a machine, reached for one thing to do.
type files interface {
	// fill replaces a file whole, or leaves it as it is. Its directory is made where there is none.
	fill(file string, fill func(io.Writer) error) error
	open(file string) (io.ReadCloser, error)
	ReadDir(dir string) ([]fs.FileInfo, error)
	Remove(file string) error

	// OrLost returns the loss of the connection to the machine, where that is behind an error.
	OrLost(error) error
	Close() error
}

// String implements fmt.Stringer.
func (d *directory) String() string { return d.name }

// Put implements Place.
func (d *directory) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := plain(name); err != nil {
		return err
	}
	what := "storing " + name + " in"
	var wrote error // of who fills it, which nobody here can explain
	err := d.with(ctx, what, func(f files) error {
		d.sweep(f)
		var broken error // of the file
		err := f.fill(d.file(name), func(to io.Writer) error {
			wrote = write(writer(func(p []byte) (n int, err error) {
				if broken == nil {
					broken = context.Cause(ctx)
				}
				if broken == nil {
					n, broken = to.Write(p)
				}
				return n, broken
			}))
			if wrote == nil && broken == nil {
				broken = context.Cause(ctx)
			}
			return errors.Join(wrote, broken) // a failed write that write hides is still one
		})
		switch {
		case broken != nil:
			err, wrote = broken, nil
		case wrote != nil:
			err = nil // no failure of the place
		}
		return err
	})
	if err == nil && wrote != nil {
		return fmt.Errorf("%s %s: %w", what, d, wrote)
	}
	return err
}

// with does something with the files, and says what went wrong.
func (d *directory) with(ctx context.Context, what string, do func(files) error) error {
	err := context.Cause(ctx)
	var f files
	if err == nil {
		f, err = d.reach(ctx)
	}
	if err == nil {
		err = d.explain(ctx, f, do(f))
		_ = f.Close() // all was done, or failed
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, d, err)
	}
	return nil
}

// Open implements Place.
func (d *directory) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := plain(name); err != nil {
		return nil, err
	}
	f, err := d.reach(ctx)
	var r io.ReadCloser
	if err == nil {
		if r, err = f.open(d.file(name)); err != nil {
			err = d.explain(ctx, f, err)
			_ = f.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s in %s: %w", name, d, err)
	}
	return reading{reader(func(p []byte) (n int, err error) {
		if err = context.Cause(ctx); err == nil {
			n, err = r.Read(p)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			err = fmt.Errorf("reading %s in %s: %w", name, d, d.explain(ctx, f, err))
		}
		return n, err
	}), closer(func() error { return errors.Join(r.Close(), f.Close()) })}, nil
}

// List implements Place. A directory that is not there has no backups yet.
func (d *directory) List(ctx context.Context, cluster string) (all []Object, err error) {
	err = d.with(ctx, "listing the backups in", func(f files) error {
		entries, err := f.ReadDir(d.path)
		for _, e := range entries {
			if taken, ours := parse(cluster, e.Name()); ours && e.Mode().IsRegular() {
				all = append(all, Object{Name: e.Name(), Taken: taken, Size: e.Size()})
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return sorted(all), nil
}

// Remove implements Place.
func (d *directory) Remove(ctx context.Context, name string) error {
	if err := plain(name); err != nil {
		return err
	}
	return d.with(ctx, "removing "+name+" from", func(f files) error {
		if err := f.Remove(d.file(name)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func (d *directory) file(name string) string { return path.Join(d.path, name) }

// unfinished is the name of a file that has not been renamed yet.
var unfinished = regexp.MustCompile(`^\..+-\d{8}T\d{6}Z\.tar\.zst(\.age)?-\d+$`)

// sweep removes what runs that were killed left of their backups, which can be large. One that is written to now is younger.
func (d *directory) sweep(f files) {
	entries, _ := f.ReadDir(d.path) // what cannot be read now is swept another time
	for _, e := range entries {
		if e.Mode().IsRegular() && unfinished.MatchString(e.Name()) && e.ModTime().Unix() > 0 && time.Since(e.ModTime()) > 24*time.Hour { // 0: it is not told
			_ = f.Remove(d.file(e.Name()))
		}
	}
}

// explain says why something failed, and what to do.
func (d *directory) explain(ctx context.Context, f files, err error) error {
	var failure *sftp.StatusError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.Advise(err, "free space there, keep fewer backups, or keep them elsewhere")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fault.Advise(err, "let "+d.user+" write to "+d.path+", or keep backups elsewhere")
	case errors.Is(err, syscall.ENOTDIR):
		return fault.Advise(err, "name a directory")
	case errors.Is(err, fs.ErrNotExist):
		return fault.Advise(err, noSuch)
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ESTALE):
		return fault.Advise(err, "check the disk or the file server that "+d.path+" is on")
	case errors.As(err, &failure): // the protocol has no words for most reasons
		return fault.Advise(err, "see whether the disk there is full, or a quota is used up, and what the log of the server says")
	}
	return f.OrLost(err)
}

const noSuch = "list the backups there, and name one of them"

// local are the files of this machine.
type local struct{}

func (local) fill(file string, fill func(io.Writer) error) error {
	err := durable.Fill(file, func(f *os.File) error { return fill(f) })
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		return of // without the advice that durable gives for the work directory
	}
	return err
}

func (local) open(file string) (io.ReadCloser, error) { return os.Open(file) }

// ReadDir leaves out what another run removes meanwhile.
func (local) ReadDir(dir string) (all []fs.FileInfo, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err == nil:
			all = append(all, info)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return all, err
}

func (local) Remove(file string) error { return os.Remove(file) }

func (local) OrLost(err error) error { return err }

func (local) Close() error { return nil }

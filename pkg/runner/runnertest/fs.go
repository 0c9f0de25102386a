package runnertest

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// inode is a file, a directory or a symbolic link.
type inode struct {
	mode         fs.FileMode // type and permissions
	owner, group string
	data         []byte
	link         string
	kids         map[string]*inode
	ino          int64
	mtime, ctime time.Time
	gen          func() string // content of generated files, as in /proc
}

// fsys is a file system in memory. Errors are *fs.PathError, as of the os package.
type fsys struct {
	mu   sync.Mutex
	root *inode
	tick int64
	full bool
}

const typeBits = fs.ModeType

func newFS() *fsys {
	f := &fsys{}
	f.root = f.node(fs.ModeDir | 0o755)
	return f
}

// node makes an inode; the caller holds the lock or is alone.
func (f *fsys) node(mode fs.FileMode) *inode {
	f.tick++
	t := f.now()
	n := &inode{mode: mode, owner: "root", group: "root", ino: f.tick, mtime: t, ctime: t}
	if mode.IsDir() {
		n.kids = map[string]*inode{}
	}
	return n
}

// now moves with every change, so that no two changes have one time.
func (f *fsys) now() time.Time {
	f.tick++
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(f.tick) * time.Microsecond)
}

func fail(op, p string, err error) error { return &fs.PathError{Op: op, Path: p, Err: err} }

// walk finds the inode at p and the directory that holds it. The inode is nil,
// with ENOENT, when only the last part of p is missing; so is dir when more is.
func (f *fsys) walk(p string, follow bool, depth int) (dir *inode, name string, n *inode, err error) {
	if depth > 40 {
		return nil, "", nil, syscall.ELOOP
	}
	if p == "" {
		return nil, "", nil, syscall.ENOENT
	}
	p = path.Clean("/" + p)
	dir, n = f.root, f.root
	for at := 1; at < len(p); { // p[at:] is what is left
		if !n.mode.IsDir() {
			return nil, "", nil, syscall.ENOTDIR
		}
		part, rest, more := strings.Cut(p[at:], "/")
		before := p[:at]
		at += len(part) + 1
		dir, n = n, n.kids[part]
		switch {
		case n == nil && more:
			return nil, "", nil, syscall.ENOENT
		case n == nil:
			return dir, part, nil, syscall.ENOENT
		case n.mode&fs.ModeSymlink != 0 && (more || follow):
			to := n.link
			if !path.IsAbs(to) {
				to = path.Join(before, to)
			}
			return f.walk(path.Join(to, rest), follow, depth+1)
		}
		name = part
	}
	return dir, name, n, nil
}

// info is an inode as fs.FileInfo and fs.DirEntry see it: a copy.
type info struct {
	inode
	name string
	size int64
}

func (i info) Name() string               { return i.name }
func (i info) Size() int64                { return i.size }
func (i info) Mode() fs.FileMode          { return i.mode }
func (i info) Type() fs.FileMode          { return i.mode.Type() }
func (i info) ModTime() time.Time         { return i.mtime }
func (i info) IsDir() bool                { return i.mode.IsDir() }
func (i info) Sys() any                   { return nil }
func (i info) Info() (fs.FileInfo, error) { return i, nil }

func (f *fsys) stat(p string, follow bool) (info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, name, n, err := f.walk(p, follow, 0)
	if err != nil {
		return info{}, fail("stat", p, err)
	}
	size := int64(len(n.data))
	if n.mode.IsDir() {
		size = 4096
	} else if n.link != "" {
		size = int64(len(n.link))
	}
	return info{*n, name, size}, nil
}

func (f *fsys) exists(p string) bool {
	_, err := f.stat(p, true)
	return err == nil
}

func (f *fsys) read(p string) ([]byte, error) {
	f.mu.Lock()
	_, _, n, err := f.walk(p, true, 0)
	f.mu.Unlock()
	switch {
	case err != nil:
		return nil, fail("open", p, err)
	case n.mode.IsDir():
		return nil, fail("read", p, syscall.EISDIR)
	case n.gen != nil:
		return []byte(n.gen()), nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(n.data), nil
}

// open makes or empties a regular file, and returns it for writes.
func (f *fsys) open(p string, perm fs.FileMode, truncate bool) (*inode, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, name, n, err := f.walk(p, true, 0)
	switch {
	case err != nil && dir == nil:
		return nil, fail("open", p, err)
	case n == nil && kernelOwned(p):
		return nil, fail("open", p, syscall.ENOENT)
	case n == nil:
		n = f.node(perm.Perm())
		dir.kids[name] = n
	case n.mode.IsDir():
		return nil, fail("open", p, syscall.EISDIR)
	case n.gen != nil:
		return nil, fail("open", p, syscall.EACCES)
	case truncate && n.mode.IsRegular() && !kernelOwned(p):
		n.data, n.mtime = nil, f.now()
		n.ctime = n.mtime
	}
	return n, nil
}

// kernelOwned reports whether a file's content is the kernel's: each write is a whole new value, and opening it changes nothing.
func kernelOwned(p string) bool {
	return strings.HasPrefix(p, "/proc/") || strings.HasPrefix(p, "/sys/")
}

func (f *fsys) append(p string, n *inode, b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.mode&fs.ModeDevice != 0 {
		return nil
	}
	switch kernel := kernelOwned(p); {
	case kernel && len(b) > 0:
		n.data = slices.Clone(b)
	case f.full && !kernel:
		return fail("write", p, syscall.ENOSPC)
	default:
		n.data = append(n.data, b...)
	}
	n.mtime = f.now()
	n.ctime = n.mtime
	return nil
}

func (f *fsys) mkdir(p string, perm fs.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, name, n, err := f.walk(p, false, 0)
	switch {
	case n != nil:
		return fail("mkdir", p, syscall.EEXIST)
	case dir == nil:
		return fail("mkdir", p, err)
	case f.full && !kernelOwned(p):
		return fail("mkdir", p, syscall.ENOSPC)
	}
	dir.kids[name] = f.node(fs.ModeDir | perm)
	return nil
}

func (f *fsys) mkdirAll(p string, perm fs.FileMode) error {
	if i, err := f.stat(p, true); err == nil {
		if !i.IsDir() {
			return fail("mkdir", p, syscall.EEXIST)
		}
		return nil
	}
	if err := f.mkdirAll(path.Dir(p), perm); err != nil {
		return err
	}
	err := f.mkdir(p, perm)
	if i, _ := f.stat(p, true); errors.Is(err, syscall.EEXIST) && i.IsDir() { // another was quicker
		return nil
	}
	return err
}

// link makes p a name of n, which may be a new symbolic link or a copy.
func (f *fsys) link(p string, n *inode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, name, old, err := f.walk(p, false, 0)
	switch {
	case dir == nil:
		return fail("link", p, err)
	case old != nil && old.mode.IsDir():
		return fail("link", p, syscall.EEXIST)
	case f.full && !kernelOwned(p):
		return fail("link", p, syscall.ENOSPC)
	}
	dir.kids[name] = n
	return nil
}

// hardLink makes p a further name of the file at from.
func (f *fsys) hardLink(from, p string) error {
	f.mu.Lock()
	_, _, n, err := f.walk(from, false, 0)
	f.mu.Unlock()
	if err == nil && n.mode.IsDir() {
		err = syscall.EPERM
	}
	if err != nil {
		return fail("link", from, err)
	}
	return f.link(p, n)
}

func (f *fsys) symlink(to, p string) error {
	f.mu.Lock()
	n := f.node(fs.ModeSymlink | 0o777)
	f.mu.Unlock()
	n.link = to
	return f.link(p, n)
}

// remove removes p; all says with all below it.
func (f *fsys) remove(p string, all bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, name, n, err := f.walk(p, false, 0)
	if err != nil {
		return fail("remove", p, err)
	}
	if len(n.kids) > 0 && !all {
		return fail("remove", p, syscall.ENOTEMPTY)
	}
	if kernelOwned(p) && !strings.HasPrefix(p, "/sys/fs/cgroup/") && !strings.HasPrefix(p, "/sys/fs/bpf/") {
		return fail("remove", p, syscall.EPERM)
	}
	delete(dir.kids, name)
	return nil
}

// rename moves a to b, over a file or an empty directory that b names.
func (f *fsys) rename(a, b string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, name, n, err := f.walk(a, false, 0)
	if err != nil {
		return fail("rename", a, err)
	}
	to, base, old, err := f.walk(b, false, 0)
	switch {
	case to == nil:
		return fail("rename", b, err)
	case old != nil && old.mode.IsDir() && !n.mode.IsDir():
		return fail("rename", b, syscall.EISDIR)
	case old != nil && !old.mode.IsDir() && n.mode.IsDir():
		return fail("rename", b, syscall.ENOTDIR)
	case old != nil && len(old.kids) > 0:
		return fail("rename", b, syscall.ENOTEMPTY)
	}
	delete(from.kids, name)
	to.kids[base] = n
	n.ctime = f.now()
	return nil
}

// change applies fn to the inode at p.
func (f *fsys) change(p string, follow bool, fn func(*inode)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _, n, err := f.walk(p, follow, 0)
	if err != nil {
		return fail("change", p, err)
	}
	fn(n)
	n.ctime = f.now()
	return nil
}

func (f *fsys) readDir(p string) ([]fs.DirEntry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _, n, err := f.walk(p, true, 0)
	if err == nil && !n.mode.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, fail("open", p, err)
	}
	var list []fs.DirEntry
	for _, name := range slices.Sorted(maps.Keys(n.kids)) {
		list = append(list, info{inode: *n.kids[name], name: name, size: int64(len(n.kids[name].data))})
	}
	return list, nil
}

// clone copies the tree at p, with owners, permissions and times.
func (f *fsys) clone(p string, follow bool) (*inode, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _, n, err := f.walk(p, follow, 0)
	if err != nil {
		return nil, fail("copy", p, err)
	}
	return f.cloneNode(n), nil
}

func (f *fsys) cloneNode(n *inode) *inode {
	c := *n
	f.tick++
	c.ino, c.ctime, c.data = f.tick, f.now(), slices.Clone(n.data)
	if n.kids != nil {
		c.kids = make(map[string]*inode, len(n.kids))
		for name, k := range n.kids {
			c.kids[name] = f.cloneNode(k)
		}
	}
	return &c
}

// each calls fn for every path below p, parents first, in order.
func (f *fsys) each(p string, fn func(p string, i info)) {
	list, err := f.readDir(p)
	if err != nil {
		return
	}
	for _, e := range list {
		i, ok := e.(info)
		if !ok {
			continue
		}
		at := path.Join(p, i.name)
		fn(at, i)
		if i.IsDir() {
			f.each(at, fn)
		}
	}
}

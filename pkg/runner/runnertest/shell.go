package runnertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// parsed caches scripts by their text: they are the same for all hosts.
type parsed struct {
	file *syntax.File
	err  error
}

var cache = struct {
	sync.Mutex
	scripts map[string]parsed
}{scripts: map[string]parsed{}}

func parse(script string) (*syntax.File, error) {
	cache.Lock()
	p, ok := cache.scripts[script]
	cache.Unlock()
	if !ok {
		p.file, p.err = syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(script), "sh")
		cache.Lock()
		cache.scripts[script] = p
		cache.Unlock()
	}
	return p.file, p.err
}

// errLoud is a command that the fake does not know.
var errLoud = errors.New("the fake host does not know")

// session is one script that runs.
type session struct {
	h    *Host
	cut  *Kill // the power that it began with: what it runs in the background does not outlive that
	line string
	over atomic.Pointer[error] // what ended it
}

// end ends the script with err, which nothing around it can hide.
func (s *session) end(err error) error {
	s.over.CompareAndSwap(nil, &err)
	return err
}

// umaskVar is the shell variable that stands for the umask.
const umaskVar = "UMASK"

func umask(hc interp.HandlerContext) fs.FileMode {
	n, err := strconv.ParseUint(hc.Env.Get(umaskVar).String(), 8, 32)
	if err != nil {
		return 0o022
	}
	return fs.FileMode(n)
}

func (h *Host) shell(ctx context.Context, c connector.Cmd) error {
	file, err := parse(c.Line)
	if err != nil {
		return connector.NewExitError(c.Line, 2, err.Error())
	}
	s := &session{h: h, cut: h.Cut, line: c.Line}
	var errs bytes.Buffer
	stderr := io.Writer(&errs)
	if c.Stderr != nil {
		stderr = io.MultiWriter(&errs, c.Stderr)
	}
	if c.Stdout == nil {
		c.Stdout = io.Discard
	}
	in, done, err := feed(c.Stdin)
	if err != nil {
		return err
	}
	out, errOut := &locked{w: c.Stdout}, &locked{w: stderr}
	sh, err := interp.New(
		interp.StdIO(in, out, errOut),
		interp.Env(expand.ListEnviron("PATH="+strings.Join(searched, ":"), "HOME=/root", "USER=root")),
		interp.Dir("/"), interp.CallHandler(s.call), interp.OpenHandler(s.open), interp.StatHandler(s.stat),
		interp.ReadDirHandler2(s.readDir), interp.AccessHandler(s.access),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return s.exec }),
	)
	if err != nil {
		return fmt.Errorf("making a shell: %w", err)
	}
	err = sh.Run(ctx, file)
	done()
	out.shut() // what runs in the background may outlive a script that was cut
	errOut.shut()
	if over := s.over.Load(); over != nil {
		err = *over
	}
	var status interp.ExitStatus
	switch {
	case err == nil:
		return nil
	case errors.As(err, &status):
		return connector.NewExitError(c.Line, int(status), errs.String())
	case errors.Is(err, errLoud):
		return connector.NewExitError(c.Line, 127, err.Error())
	}
	if errors.Is(err, ErrLost) {
		return fault.Transient(err)
	}
	return err
}

// feed gives the shell its standard input, in a pipe as sshd does, so that
// commands share it. done must be called when the shell has ended.
func feed(r io.Reader) (in *os.File, done func(), err error) {
	if r == nil {
		r = strings.NewReader("")
	}
	in, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("making a pipe: %w", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(w, r) // fails when the shell did not read all, as with sshd
		_ = w.Close()
	})
	return in, func() {
		_ = in.Close()
		wg.Wait()
	}, nil
}

// half cuts the input short, as a lost connection does.
func half(r io.Reader) io.Reader {
	if r == nil {
		return nil
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return strings.NewReader("")
	}
	return bytes.NewReader(b[:len(b)/2])
}

// locked is a writer for the concurrent ends of a pipeline.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

// shut drops what is still written.
func (l *locked) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w = io.Discard
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// call turns built-in commands that look at the real machine into commands of the fake.
func (s *session) call(_ context.Context, args []string) ([]string, error) {
	if now, past := s.cut.hit(); now || past {
		return nil, s.end(fmt.Errorf("%s: no power: %w", s.h.Name, ErrLost))
	}
	switch {
	case args[0] == "umask" && len(args) == 2:
		return []string{"eval", umaskVar + "=" + args[1]}, nil // a subshell has its own
	case args[0] == "trap" && args[len(args)-1] != "EXIT": // no signal comes here
		return []string{"true"}, nil
	case args[0] == "kill":
		return append([]string{" kill"}, args[1:]...), nil
	case len(args) == 3 && args[0] == "command" && args[1] == "-v" && !interp.IsBuiltin(args[2]):
		return []string{" which", args[2]}, nil
	}
	return args, nil
}

func (s *session) exec(ctx context.Context, args []string) error {
	hc := interp.HandlerCtx(ctx)
	c := &Call{Host: s.h, Context: ctx, Args: args, Dir: hc.Dir, Stdin: hc.Stdin, Stdout: hc.Stdout, Stderr: hc.Stderr, Umask: umask(hc)}
	c.Getenv = func(k string) string { return hc.Env.Get(k).String() }
	if hc.Stdin == nil {
		c.Stdin = strings.NewReader("")
	}
	run, known := s.h.command(args[0])
	if known && run == nil {
		return interp.ExitStatus(c.Failf(127, "not found"))
	}
	c.exec = func(args []string) error { return s.exec(ctx, args) }
	status := 127
	if run != nil {
		status = run(c)
	} else if data, err := s.h.fs.read(c.path(args[0])); strings.Contains(args[0], "/") && err == nil {
		status = s.script(ctx, c, data)
	}
	switch status {
	case 0:
		return nil
	case 127:
		if s.h.Loud != nil {
			s.h.Loud(s.line, args)
		}
		return s.end(fmt.Errorf("%s: %w: %q, in the script:\n%s", s.h.Name, errLoud, args, s.line))
	}
	return interp.ExitStatus(status)
}

// searched are the directories of PATH.
var searched = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// command finds what a name or a path runs; nil, when known: it is not there.
func (h *Host) command(name string) (run Command, known bool) {
	base := path.Base(name)
	if exe, _, is := h.exe(name); is { // what a process runs
		base = path.Base(exe)
	}
	h.mu.Lock()
	run, known = h.Commands[base]
	program, isProgram := h.Programs[base]
	h.mu.Unlock()
	if !isProgram {
		return run, known
	}
	places := []string{name}
	if !strings.Contains(name, "/") {
		places = nil
		for _, d := range searched {
			places = append(places, path.Join(d, name))
		}
	}
	for _, p := range places {
		if i, err := h.fs.stat(p, true); err == nil && i.mode.IsRegular() && i.mode.Perm()&0o111 != 0 {
			return program, true
		}
	}
	return nil, true
}

// script runs a shell script that is a file of the host.
func (s *session) script(ctx context.Context, c *Call, data []byte) int {
	if !bytes.HasPrefix(data, []byte("#!/bin/sh")) && !bytes.HasPrefix(data, []byte("#!/usr/bin/env sh")) {
		return 127
	}
	line := "set -- " + quote(c.Args[1:]) + "\n" + string(data)
	err := s.h.shell(ctx, connector.Cmd{Line: line, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr})
	var exit *connector.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Code
	}
	return c.Failf(126, "%v", err)
}

func quote(words []string) string {
	var b strings.Builder
	for _, w := range words {
		b.WriteString(" '" + strings.ReplaceAll(w, "'", `'\''`) + "'")
	}
	return b.String()
}

func (s *session) stat(_ context.Context, p string, follow bool) (fs.FileInfo, error) {
	i, err := s.h.fs.stat(p, follow)
	if err != nil {
		return nil, err
	}
	return i, nil
}

func (s *session) readDir(_ context.Context, p string) ([]fs.DirEntry, error) {
	return s.h.fs.readDir(p)
}

// access is what root may do: all, but run what nobody may run.
func (s *session) access(_ context.Context, p string, mode interp.AccessMode) error {
	i, err := s.h.fs.stat(p, true)
	if err == nil && mode&interp.AccessWrite != 0 && kernelOwned(p) && i.mode.Perm()&0o222 == 0 {
		err = fail("access", p, syscall.EACCES)
	}
	if err == nil && mode&interp.AccessExec != 0 && i.mode.Perm()&0o111 == 0 {
		err = fail("access", p, syscall.EACCES)
	}
	return err
}

// open opens a file for a redirection.
func (s *session) open(ctx context.Context, p string, flag int, _ fs.FileMode) (io.ReadWriteCloser, error) {
	hc := interp.HandlerCtx(ctx)
	if !path.IsAbs(p) {
		p = path.Join(hc.Dir, p)
	}
	if flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		return s.h.create(p, 0o666&^umask(hc), flag&os.O_TRUNC != 0)
	}
	b, err := s.h.fs.read(p)
	if err != nil {
		return nil, err
	}
	in, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	give := func() {
		_, _ = w.Write(b) // fails when the reader has enough
		_ = w.Close()
	}
	if len(b) <= 4096 { // a pipe holds as much
		give()
	} else {
		go give()
	}
	return in, nil
}

// file is a file of the host that is open for writes.
type file struct {
	h    *Host
	path string
	n    *inode
	line []byte // written so far, of a value for the kernel
}

func (h *Host) create(p string, perm fs.FileMode, truncate bool) (*file, error) {
	n, err := h.fs.open(p, perm, truncate)
	if err != nil {
		return nil, err
	}
	if err := h.fs.append(p, n, nil); err != nil { // the shell's own commands do not look at errors of writes
		return nil, err
	}
	if n.mode&fs.ModeDevice == 0 {
		h.changed("write %s", p)
	}
	return &file{h: h, path: p, n: n}, nil
}

func (f *file) Read([]byte) (int, error) { return 0, io.EOF }
func (f *file) Close() error             { return nil }
func (f *file) Write(b []byte) (int, error) {
	f.line = append(f.line, b...)
	if kernelOwned(f.path) && !bytes.HasSuffix(f.line, []byte("\n")) {
		return len(b), nil // the shell's echo writes word by word
	}
	err := f.h.fs.append(f.path, f.n, f.line)
	f.line = nil
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

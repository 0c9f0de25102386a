package runnertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Command is a program on a host. It returns its exit status; 127 says that the
// program was called in a way that the fake does not know, and ends the script.
type Command func(c *Call) int

// Call is one run of a Command.
type Call struct {
	*Host
	Context        context.Context
	Args           []string // Args[0] is the name
	Dir            string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Umask          fs.FileMode
	Getenv         func(string) string

	exec func(args []string) error
}

// Failf writes a message to standard error and returns the exit status.
func (c *Call) Failf(status int, format string, args ...any) int {
	fmt.Fprintf(c.Stderr, c.Args[0]+": "+format+"\n", args...)
	return status
}

// fail reports a file system error as coreutils do.
func (c *Call) fail(err error) int {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return c.Failf(1, "%s: %v", pe.Path, sentence(pe.Err))
	}
	return c.Failf(1, "%v", err)
}

// sentence spells an error number as the C library does.
func sentence(err error) string {
	s := err.Error()
	return strings.ToUpper(s[:1]) + s[1:]
}

// path makes p absolute.
func (c *Call) path(p string) string {
	if p == "" || path.IsAbs(p) {
		return p
	}
	return path.Join(c.Dir, p)
}

// Printf writes to standard output.
func (c *Call) Printf(format string, args ...any) { fmt.Fprintf(c.Stdout, format, args...) }

// opts reads short options, letters in values take a value; and long options,
// as given with their "=" where they take one. Others end the test loudly.
func (c *Call) opts(flags, values string, long ...string) (set map[string]string, rest []string, ok bool) {
	set, args := map[string]string{}, c.Args[1:]
	for len(args) > 0 {
		a := args[0]
		if a == "--" {
			return set, append(rest, args[1:]...), true
		}
		args = args[1:]
		if len(a) < 2 || a[0] != '-' {
			rest = append(rest, a)
			continue
		}
		if strings.HasPrefix(a, "--") {
			name, value, _ := strings.Cut(a, "=")
			if !slices.Contains(long, name) {
				return nil, nil, false
			}
			set[name] = value
			continue
		}
		for i := 1; i < len(a); i++ {
			l := a[i : i+1]
			switch {
			case strings.Contains(flags, l):
				set[l] = "y"
			case strings.Contains(values, l) && i+1 < len(a):
				set[l], i = a[i+1:], len(a)
			case strings.Contains(values, l) && len(args) > 0:
				set[l], args = args[0], args[1:]
			default:
				return nil, nil, false
			}
		}
	}
	return set, rest, true
}

// Unknown ends the script: the fake does not know what was asked.
func (c *Call) Unknown() int { return 127 }

// writeNew writes a file unless it is there, as kubeadm's phases do.
func (c *Call) writeNew(p, text string, mode uint32) {
	if !c.fs.exists(p) {
		c.write(p, text, mode)
	}
}

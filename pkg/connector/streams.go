package connector

import (
	"bytes"
	"io"
	"reflect"
	"sync"
)

// tail keeps the last bytes that are written to it.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	if t.text = append(t.text, p...); len(t.text) > 2*most {
		t.text = bytes.Clone(t.text[len(t.text)-most:])
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.text) }

// outputs returns the writers for a command's output, and the tail of its
// standard error.
func outputs(c Cmd) (stdout, stderr io.Writer, last *tail) {
	stdout, stderr, last = c.Stdout, c.Stderr, &tail{}
	if stdout == nil {
		stdout = io.Discard
	}
	if stderr == nil {
		return stdout, last, last
	}
	if reflect.TypeOf(stderr).Comparable() && stdout == stderr {
		both := &locked{w: stdout}
		stdout, stderr = both, both
	}
	return stdout, io.MultiWriter(last, stderr), last
}

// locked is a writer for both outputs of a command.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// Package connector runs commands on one machine, over SSH or locally. It is
// the only place that starts processes or opens SSH connections.
//
// SSH keeps one connection per machine. A command without input, or with little,
// runs in a shell that stays for the next one: that costs one round trip, where a
// session of its own costs two and the starting of processes, and sudo some more
// (BenchmarkCommand has numbers). The shell tells by marks in its output where a
// command's output ends (package script); it is used for one command at a time and
// given up when a command left a child behind that could write into the next one's
// output. Everything else runs in a session of its own.
package connector

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/kubexm/kubexm/pkg/connector/internal/script"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Quote quotes a word for a POSIX shell, where it needs to be.
func Quote(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@%+"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return script.Quote(word)
}

// Cmd is one POSIX shell command line and its streams. It runs without a terminal,
// in /, with umask 022, LC_ALL=C and a PATH that has all of /usr/local/sbin to /bin.
// Children that it leaves behind are not waited for.
type Cmd struct {
	Line string
	Sudo bool // run as root; by sudo where the login user is not root
	// Stdin is read as far as the command wants; nil: none. Where it fails, or the
	// context is canceled, the command is ended before its input is. When the
	// connection is lost the command sees its input end, so a command that
	// replaces a file must compare the length or a digest first.
	Stdin  io.Reader
	Stdout io.Writer // nil: dropped
	Stderr io.Writer // nil: dropped; may be the same as Stdout. ExitError has the tail
}

// Connector reaches one machine. It is safe for concurrent use.
type Connector interface {
	// Exec runs a command to its end. A command that exits with another status
	// than 0 gives an *ExitError; a lost connection gives a transient error, and
	// the next Exec reconnects. ErrSudo is sudo's refusal. A context that is
	// canceled ends the command's process group, by TERM and a second later by
	// KILL; Exec comes back when it is gone, with the context's cause.
	Exec(context.Context, Cmd) error
	// Dial opens a connection from the machine: "tcp" or "unix". Over SSH it has
	// no deadlines: close it instead.
	Dial(ctx context.Context, network, address string) (net.Conn, error)
	// Listen takes connections to a free TCP port of the machine's loopback, which
	// is in the listener's address. Over SSH it ends with the connection.
	Listen(context.Context) (net.Listener, error)
	// Close ends what runs, as canceling does, and the connection.
	Close() error
}

const freePort = "127.0.0.1:0" // of the loopback

// ExitError is a command that ran and failed.
type ExitError struct {
	Line   string // the command line, cut to a readable length
	Code   int    // exit status; 128+N after signal N
	Stderr string // the last lines of standard error, trimmed
}

// NewExitError returns an ExitError with texts cut to a readable length, and without what would steer a terminal.
func NewExitError(line string, code int, stderr string) *ExitError {
	const most = 2000
	stderr = strings.TrimSpace(human.Clean(stderr))
	if len(stderr) > most {
		stderr = "..." + stderr[len(stderr)-most:]
	}
	return &ExitError{cut(line), code, stderr}
}

func (e *ExitError) Error() string {
	if e.Stderr == "" {
		return fmt.Sprintf("command %q exited with status %d", e.Line, e.Code)
	}
	return fmt.Sprintf("command %q exited with status %d: %s", e.Line, e.Code, e.Stderr)
}

// cut shortens a command line for a message.
func cut(line string) string {
	if len(line) > 300 {
		return line[:300] + "..."
	}
	return line
}

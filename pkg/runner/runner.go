// Package runner offers typed operations on one host, written once over a
// connector: commands, files, units, facts. One call is one round trip unless
// its comment says otherwise.
package runner

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// StateDir holds what kubexm remembers on a host: the ledger of what it
// changed, what was there before, and the checksums of large files.
const StateDir = "/var/lib/kubexm"

// Runner works on one host as root. It is safe for concurrent use.
type Runner struct {
	Host string // name, for messages

	conn  connector.Connector
	trips atomic.Int64
	memo  sync.Map
}

// New returns a Runner for the named host.
func New(host string, conn connector.Connector) *Runner { return &Runner{Host: host, conn: conn} }

// RoundTrips counts the commands and connections made so far.
func (r *Runner) RoundTrips() int64 { return r.trips.Load() }

// Close ends the connection to the host.
func (r *Runner) Close() error { return r.conn.Close() }

// Exec runs a shell command line as root with the given streams.
func (r *Runner) Exec(ctx context.Context, line string, in io.Reader, out io.Writer) error {
	return r.Stream(ctx, connector.Cmd{Line: line, Sudo: true, Stdin: in, Stdout: out})
}

// Stream runs a command as it is given, with all its streams.
func (r *Runner) Stream(ctx context.Context, c connector.Cmd) error {
	r.trips.Add(1)
	return r.conn.Exec(ctx, c)
}

// Login runs a login shell on a terminal, see connector.Login.
func (r *Runner) Login(ctx context.Context, t connector.Terminal) error {
	return connector.Login(ctx, r.conn, t)
}

// Sh runs a shell script as root and returns its standard output without the
// last newline.
func (r *Runner) Sh(ctx context.Context, script string) (string, error) {
	var out answer
	err := r.Exec(ctx, script, nil, &out)
	return strings.TrimRight(out.String(), "\n"), err
}

// mostOutput is how many bytes a command may answer where all of its answer is kept: more than any file or list
// that kubexm asks for has.
const mostOutput = 64 << 20

// answer keeps what a command prints, up to mostOutput.
type answer struct{ bytes.Buffer }

func (a *answer) Write(p []byte) (int, error) {
	if a.Len()+len(p) > mostOutput {
		return 0, fault.Advise(fmt.Errorf("the answer is longer than %d MiB", mostOutput>>20), "see what the host's shell or that command prints: it is not what kubexm asked for")
	}
	return a.Buffer.Write(p)
}

// User runs a shell script as the login user, with some input or nil, and returns its
// standard output as it is.
func (r *Runner) User(ctx context.Context, script string, in io.Reader) (string, error) {
	var out answer
	err := r.Stream(ctx, connector.Cmd{Line: script, Stdin: in, Stdout: &out})
	return out.String(), err
}

// Run runs one command as root and returns its standard output without the
// last newline.
func (r *Runner) Run(ctx context.Context, name string, args ...string) (string, error) {
	return r.Sh(ctx, Quote(append([]string{name}, args...)...))
}

// Listen takes connections to a free port of the host's loopback.
func (r *Runner) Listen(ctx context.Context) (net.Listener, error) {
	r.trips.Add(1)
	return r.conn.Listen(ctx)
}

// Dial connects from the host: "tcp" or "unix".
func (r *Runner) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	r.trips.Add(1)
	return r.conn.Dial(ctx, network, address)
}

// Memo returns what is stored under key, or what mk makes for all who ask at that
// time; errors are not kept. It holds what is made once for each host and run.
func Memo[T any](r *Runner, key string, mk func() (T, error)) (T, error) {
	mine := sync.OnceValues(mk)
	once, _ := r.memo.LoadOrStore(key, &mine)
	f, ok := once.(*func() (T, error))
	if !ok {
		var zero T
		return zero, fmt.Errorf("memo %q on %s holds another type", key, r.Host)
	}
	v, err := (*f)()
	if err != nil {
		r.memo.CompareAndDelete(key, once)
	}
	return v, err
}

// Quote quotes words for a POSIX shell.
func Quote(words ...string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = connector.Quote(w)
	}
	return strings.Join(q, " ")
}

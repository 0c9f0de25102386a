package connector

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/kubexm/kubexm/pkg/connector/internal/script"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// Waits for what should come at once.
const (
	settle   = 300 * time.Millisecond // what follows the end of a command
	killWait = 4 * time.Second        // a kill
)

// process is a program that was started on a machine.
type process struct {
	stdin          io.WriteCloser
	stdout, stderr io.Reader
	close          func()        // gives the streams up
	drop           func()        // makes sure that it is over
	ended          chan struct{} // closed at the end, when status and err are set
	status         int           // exit status; 128+N after signal N
	err            error         // why there is no status
}

// over reports whether p has ended.
func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// machine is what SSH and Local have in common: running commands in shells.
type machine struct {
	name     string // for messages
	user     string // who logs in
	root     bool   // the user is root
	password secret.Secret
	// launch starts a command line. extra: in addition to the number that may run at once.
	launch func(ctx context.Context, line string, extra bool) (*process, error)
}

// task is a shell on the machine that is past sudo.
type task struct {
	*process
	nonce      string
	sudo       bool
	out, errs  *marked
	pid, group int
}

// start starts a shell, as root if sudo is set, and comes back when it is ready
// for input. It runs line; without one it is a shell for many commands.
func (m *machine) start(ctx context.Context, line string, sudo, extra bool) (*task, error) {
	sudo = sudo && !m.root
	var random [12]byte
	rand.Read(random[:])
	nonce := script.Nonce(random[:])
	login := script.Many(nonce, sudo)
	if line != "" {
		login = script.One(nonce, line, sudo)
	}
	p, err := m.launch(ctx, login, extra)
	if err != nil {
		return nil, err
	}
	t := &task{process: p, nonce: nonce, sudo: sudo}
	t.out = &marked{from: p.stdout, mark: script.Mark(nonce)}
	t.errs = &marked{from: p.stderr, mark: script.Mark(nonce)}
	ask := &prompter{prompt: script.Prompt(nonce), password: m.password, answer: p.stdin}
	ready := make(chan error, 1)
	go func() {
		text, err := t.errs.next(script.Ready, ask)
		if err == nil {
			_, err = fmt.Sscan(text, &t.pid, &t.group)
		}
		ready <- err
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		p.close()
		return nil, fmt.Errorf("%s: starting a shell: %w", m.name, context.Cause(ctx))
	}
	if err == nil {
		return t, nil
	}
	p.close()
	if !errors.Is(err, errEnded) {
		return nil, m.startError(sudo, err, "")
	}
	if <-p.ended; p.err != nil {
		return nil, p.err
	}
	return nil, m.startError(sudo, fmt.Errorf("ended with status %d", p.status), ask.said())
}

// startError explains why the shell did not come up.
func (m *machine) startError(sudo bool, err error, said string) error {
	if sudo {
		return m.sudoError(err, said)
	}
	return fault.Advise(fmt.Errorf("%s: login shell of user %s: %w: %q", m.name, m.user, err, said),
		fmt.Sprintf("log in as %s by hand and see what fails; the login shell must be a POSIX shell", m.user))
}

// once runs one command in a shell of its own.
func (m *machine) once(ctx context.Context, c Cmd) error {
	t, err := m.start(ctx, cmp.Or(c.Line, ":"), c.Sudo, false)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if c.Stdin == nil {
			t.stdin.Close()
		} else if err := t.feed(c.Stdin); err != nil {
			cancel(err)
		}
	}()
	err = m.collect(ctx, cancel, t, c)
	t.close()
	select { // the caller may want to read his input again
	case <-fed:
	case <-time.After(settle): // it blocks
	}
	return err
}

// feed copies r to the standard input of the task and ends it, unless r fails:
// a text that was cut must not pass for a whole one.
func (t *task) feed(r io.Reader) error {
	in := &input{r: r}
	_, _ = io.CopyBuffer(struct{ io.Writer }{t.stdin}, in, make([]byte, 256<<10)) // a command need not read all
	if in.err != nil {
		return fmt.Errorf("reading the input: %w", in.err)
	}
	t.stdin.Close()
	return nil
}

// input keeps why reading failed apart from why writing failed.
type input struct {
	r   io.Reader
	err error
}

func (in *input) Read(p []byte) (int, error) {
	n, err := in.r.Read(p)
	if err != nil && err != io.EOF {
		in.err = err
	}
	return n, err
}

// errNotBegun is a shell that ended before it began the command.
var errNotBegun = errors.New("shell ended before the command began")

// collect passes on the output of the command that runs in t and returns what
// became of it. Canceling ctx ends the command.
func (m *machine) collect(ctx context.Context, cancel context.CancelCauseFunc, t *task, c Cmd) error {
	killed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(killed)
		m.kill(t, script.KillGroup(t.group))
	})
	stdout, stderr, last := outputs(c)
	check := func(err error) {
		if errors.Is(err, errEnded) {
			t.close()
		} else if err != nil {
			cancel(err)
		}
	}
	errs := make(chan error)
	go func() {
		_, err := t.errs.next(script.End, stderr)
		check(err)
		errs <- err
	}()
	_, err := t.out.next(script.Begin, io.Discard)
	begun, status := err == nil, ""
	if begun {
		status, err = t.out.next(script.End, stdout)
	}
	check(err)
	if err = errors.Join(err, <-errs); err != nil {
		select {
		case <-t.ended:
		case <-ctx.Done():
		}
	}
	code := 0
	switch {
	case !stop():
		<-killed
		err = context.Cause(ctx)
	case err == nil:
		_, err = fmt.Sscan(status, &code)
	default:
		if code, err = t.status, t.err; err == nil && !begun {
			err = errNotBegun
		}
	}
	if err != nil {
		return fmt.Errorf("%s: running %q: %w", m.name, cut(c.Line), err)
	}
	if code != 0 {
		return NewExitError(c.Line, code, last.String())
	}
	return nil
}

// kill runs a kill command by the side of t, waits for its end and makes sure that
// t is over.
func (m *machine) kill(t *task, command string) {
	ctx, cancel := context.WithTimeout(context.Background(), killWait)
	defer cancel()
	defer func() {
		t.close()
		select {
		case <-t.ended:
		case <-ctx.Done():
			t.drop()
		}
	}()
	if k, err := m.start(ctx, command, t.sudo, true); err == nil {
		defer k.close()
		select {
		case <-k.ended:
		case <-ctx.Done():
		}
	}
}

// life lets Close end what runs.
type life struct {
	mu   sync.Mutex
	wg   sync.WaitGroup
	done context.Context //nolint:containedctx // it is what Close ends, not a call's
	end  context.CancelFunc
}

func newLife() *life {
	l := &life{}
	l.done, l.end = context.WithCancel(context.Background())
	return l
}

// enter returns the context for one operation and what to call after it.
func (l *life) enter(ctx context.Context) (context.Context, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done.Err() != nil {
		return nil, nil, net.ErrClosed
	}
	l.wg.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.done, func() { cancel(net.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		l.wg.Done()
	}, nil
}

// close ends all operations and waits for them.
func (l *life) close() {
	l.mu.Lock()
	l.end()
	l.mu.Unlock()
	l.wg.Wait()
}

package connector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/kubexm/kubexm/pkg/connector/internal/script"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// mostInput is the input in bytes that a command in a long-lived shell may have.
const mostInput = 16 << 10

// exec runs a command in a shell that waits for one, which saves opening a
// session and passing sudo; one with input of unknown length gets its own session.
func (c *conn) exec(ctx context.Context, cmd Cmd) error {
	var input []byte
	if cmd.Stdin != nil {
		sized, ok := cmd.Stdin.(interface{ Len() int })
		if !ok || sized.Len() > mostInput {
			if _, err := c.pool.take(ctx, never); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			return c.once(ctx, cmd)
		}
		input = make([]byte, sized.Len())
		if _, err := io.ReadFull(cmd.Stdin, input); err != nil {
			return fmt.Errorf("%s: reading the input: %w", c.name, err)
		}
	}
	for {
		t, waited, err := c.shell(ctx, cmd.Sudo)
		if err != nil {
			return err
		}
		err = c.inShell(ctx, t, cmd, input)
		if !waited || !errors.Is(err, errNotBegun) {
			return err
		}
	}
}

// shell returns a shell for many commands, and whether it is not a new one.
func (c *conn) shell(ctx context.Context, sudo bool) (t *task, waited bool, err error) {
	sudo = sudo && !c.root
	t, err = c.pool.take(ctx, func(t *task) bool { return t.sudo == sudo })
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", c.name, err)
	}
	if t != nil {
		return t, true, nil
	}
	if t, err = c.start(ctx, "", sudo, false); err != nil {
		return nil, false, err
	}
	_, _ = t.stdin.Write([]byte(script.Functions(t.nonce))) // its failure is seen by the first command
	return t, false, nil
}

func never(*task) bool { return false }

// inShell runs a command in a shell for many.
func (c *conn) inShell(ctx context.Context, t *task, cmd Cmd, input []byte) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { _, _ = t.stdin.Write([]byte(script.Call(cmd.Line, input))) }()
	err := c.collect(ctx, cancel, t, cmd)
	var exit *ExitError
	if err != nil && !errors.As(err, &exit) {
		t.close()
		return err
	}
	clean := make(chan error, 1)
	go func() {
		_, err := t.out.next(script.Clean, io.Discard)
		clean <- err
	}()
	select {
	case broken := <-clean:
		if broken == nil {
			c.pool.keep(t)
			return err
		}
	case <-time.After(settle):
		c.kill(t, fmt.Sprintf("kill -KILL %d", t.pid)) // the shell alone
	}
	t.close()
	return err
}

// session starts a command line in an SSH session of its own. Unless extra, the
// caller has taken the right to it from the pool; it is put back at the end.
func (c *conn) session(ctx context.Context, line string, extra bool) (*process, error) {
	put := c.pool.put
	if extra {
		put = func() {}
	}
	for pause := 10 * time.Millisecond; ; {
		p, err := c.request(ctx, line, put)
		var refused *ssh.OpenChannelError
		switch {
		case !errors.As(err, &refused):
			return p, err
		case !extra && c.pool.lower():
			if _, err := c.pool.take(ctx, never); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			continue
		case pause > time.Second:
			put()
			return nil, fault.Transient(fault.Advise(fmt.Errorf("%s: sshd allows no session: %w", c.name, err),
				"raise MaxSessions in the machine's sshd_config"))
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			put()
			return nil, fmt.Errorf("%s: %w", c.name, context.Cause(ctx))
		}
	}
}

// request asks sshd for one session and starts the command line in it. It calls put
// when the session is over, or came to nothing for another reason than a refusal.
func (c *conn) request(ctx context.Context, line string, put func()) (*process, error) {
	type answer struct {
		p   *process
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		p, err := c.begin(line)
		answers <- answer{p, err}
	}()
	select {
	case a := <-answers:
		var refused *ssh.OpenChannelError
		switch {
		case a.err == nil:
			go func() {
				<-a.p.ended
				put()
			}()
		case !errors.As(a.err, &refused):
			put()
		}
		return a.p, a.err
	case <-ctx.Done():
		go func() {
			if a := <-answers; a.err == nil {
				a.p.close()
				<-a.p.ended
			}
			put()
		}()
		return nil, fmt.Errorf("%s: %w", c.name, context.Cause(ctx))
	}
}

func (c *conn) begin(line string) (*process, error) {
	sess, err := c.client.NewSession()
	if err != nil {
		return nil, c.lostOr(err)
	}
	p := &process{ended: make(chan struct{})}
	p.stdin, _ = sess.StdinPipe() // these fail only after Start
	p.stdout, _ = sess.StdoutPipe()
	p.stderr, _ = sess.StderrPipe()
	p.close = func() { sess.Close() }
	p.drop = func() { c.client.Close() } // the machine does not even confirm a Close
	if err := sess.Start(line); err != nil {
		sess.Close()
		return nil, c.lostOr(err)
	}
	go func() {
		defer close(p.ended)
		p.status, p.err = c.wait(sess)
	}()
	return p, nil
}

// lostOr returns the loss of the connection where that is behind err.
func (c *conn) lostOr(err error) error {
	var refused *ssh.OpenChannelError
	if errors.As(err, &refused) {
		return err
	}
	select {
	case <-c.lost:
		return c.cause
	case <-time.After(settle):
		return fault.Transient(fmt.Errorf("%s: starting a session: %w", c.name, err))
	}
}

// wait returns the exit status of a session that is over.
func (c *conn) wait(sess *ssh.Session) (int, error) {
	err := sess.Wait()
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		return exit.ExitStatus(), nil
	}
	return 0, c.lostOr(err)
}

package connector

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/crypto/ssh"
)

// Terminal is where a user sits.
type Terminal struct {
	In      io.Reader // each key as it is pressed
	Out     io.Writer
	Type    string // TERM
	Size    Size
	Resized <-chan Size
}

// Size is that of a terminal in characters.
type Size struct{ Width, Height int }

// Login runs the login shell of the login user on a terminal, until it ends, with whatever status. A lost
// connection is not made again. When Login comes back, In may be read once more.
func Login(ctx context.Context, to Connector, t Terminal) error {
	if s, ok := to.(*sshConnector); ok {
		return s.login(ctx, t)
	}
	if in, ok := to.(interface{ Unwrap() Connector }); ok {
		return Login(ctx, in.Unwrap(), t)
	}
	return errors.New("only machines that are reached by SSH have a login shell")
}

func (s *sshConnector) login(ctx context.Context, t Terminal) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", s.cfg.Name, err)
	}
	defer leave()
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	sess, err := c.client.NewSession()
	if err != nil {
		return fmt.Errorf("%s: starting a session: %w", s.cfg.Name, err)
	}
	defer sess.Close()
	defer context.AfterFunc(ctx, func() { sess.Close() })()
	in, err := sess.StdinPipe() // Session.Wait would wait for a key
	if err == nil {
		sess.Stdout, sess.Stderr = t.Out, t.Out
		err = sess.RequestPty(t.Type, t.Size.Height, t.Size.Width, ssh.TerminalModes{})
	}
	if err == nil {
		err = sess.Shell()
	}
	if err != nil {
		return fmt.Errorf("%s: starting the login shell of %s: %w", s.cfg.Name, s.cfg.User, err)
	}
	go func() {
		_, _ = io.Copy(in, t.In)
		in.Close()
	}()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case size := <-t.Resized:
				_ = sess.WindowChange(size.Height, size.Width)
			case <-ended:
				return
			}
		}
	}()
	_, err = c.wait(sess)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

package connector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"syscall"
)

type local struct {
	machine
	*life
}

// Local returns a Connector to this machine. Cmd.Sudo is by the rules of SSH for a
// user who may use sudo without a password.
func Local() Connector {
	l := &local{machine{name: "localhost", user: "this user", root: os.Geteuid() == 0, launch: launch}, newLife()}
	if u, err := user.Current(); err == nil {
		l.user = u.Username
	}
	return l
}

func (l *local) Exec(ctx context.Context, c Cmd) error {
	ctx, leave, err := l.enter(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	defer leave()
	return l.once(ctx, c)
}

func (l *local) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, address)
}

func (l *local) Listen(ctx context.Context) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", freePort)
}

func (l *local) Close() error {
	l.life.close()
	return nil
}

// launch starts a command line in a session of its own: Ctrl-C on the terminal is
// for kubexm, which then ends what it started.
func launch(_ context.Context, line string, _ bool) (*process, error) {
	cmd := exec.Command("sh", "-c", line)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p := &process{ended: make(chan struct{})}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	stderr, err3 := cmd.StderrPipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("starting a shell: %w", err)
	}
	p.stdin, p.stdout, p.stderr = stdin, stdout, stderr
	p.close = func() {
		stdin.Close()
		stdout.Close()
		stderr.Close()
	}
	p.drop = func() { _ = cmd.Process.Kill() }
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a shell: %w", err)
	}
	go func() {
		defer close(p.ended)
		state, err := cmd.Process.Wait()
		if err != nil {
			p.err = err
			return
		}
		p.status = state.ExitCode()
		if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			p.status = 128 + int(s.Signal())
		}
	}()
	return p, nil
}

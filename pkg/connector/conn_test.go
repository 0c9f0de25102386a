package connector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// When Exec comes back from a cancel, nothing of the command runs any more.
func TestCancelEndsCommand(t *testing.T) {
	t.Parallel()
	asks := newAccount(t, "USER ALL=(ALL) ALL", "Defaults:USER timestamp_timeout=0")
	s := startSSHD(t)
	cfg := s.config()
	cfg.User, cfg.Password = asks.name, secret.New(asks.password)
	user := s.connect(t, cfg)
	here := Local()
	t.Cleanup(func() { here.Close() })
	for _, test := range []struct {
		name  string
		c     Connector
		sudo  bool
		stdin io.Reader
	}{
		{"shell", user, false, nil},
		{"session", user, false, endless{}},
		{"sudo shell", user, true, nil},
		{"sudo session", user, true, endless{}},
		{"local", here, false, endless{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cancelOne(t, test.c, Cmd{Sudo: test.sudo, Stdin: test.stdin})
			if got := output(t, test.c, Cmd{Line: "echo next", Sudo: test.sudo}); got != "next\n" {
				t.Errorf("then: %q", got)
			}
		})
	}
}

// cancelOne runs and cancels a command that has one process which heeds TERM and
// one which does not.
func cancelOne(t *testing.T, c Connector, cmd Cmd) {
	t.Helper()
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	r, w := io.Pipe()
	cmd.Line = "sh -c 'echo $$; trap \"\" TERM; sleep 1000' & sh -c 'echo $$; exec sleep 1000' & wait"
	cmd.Stdout = w
	result := make(chan error)
	go func() { result <- c.Exec(ctx, cmd) }()
	var pids [2]int
	if _, err := fmt.Fscan(r, &pids[0], &pids[1]); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, r)
	cancel(enough)
	if err := <-result; !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	w.Close()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
}

// endless is input that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// Close ends what runs, for good.
func TestCloseEndsCommands(t *testing.T) {
	t.Parallel()
	s := startSSHD(t)
	for _, c := range []Connector{s.connect(t, s.config()), Local()} {
		r, w := io.Pipe()
		result := make(chan error)
		go func() { result <- c.Exec(context.Background(), Cmd{Line: "echo $$; sleep 1000", Stdout: w}) }()
		var pid int
		if _, err := fmt.Fscanln(r, &pid); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-result; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the running command: %v", err)
		}
		if alive(pid) {
			t.Error("it still runs")
		}
		if err := c.Exec(context.Background(), Cmd{Line: "true"}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a command after Close: %v", err)
		}
	}
}

// More commands at once than sshd allows sessions all run, whatever its limit is.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, sessions := range []int{10, 2, 1} {
		t.Run(fmt.Sprint(sessions), func(t *testing.T) {
			s := startSSHD(t, fmt.Sprintf("MaxSessions %d", sessions))
			c := s.connect(t, s.config())
			var g errgroup.Group
			for i := range 50 {
				g.Go(func() error {
					cmd := Cmd{Line: fmt.Sprintf("read x || :; echo %d=$x", i)}
					want := fmt.Sprintf("%d=\n", i)
					if i%5 == 0 {
						cmd.Stdin, want = stream("in\n"), fmt.Sprintf("%d=in\n", i)
					}
					var out writer
					cmd.Stdout = &out
					err := c.Exec(context.Background(), cmd)
					if err == nil && out.text != want {
						err = fmt.Errorf("got %q, want %q", out.text, want)
					}
					return err
				})
			}
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
			if sessions > 1 { // there is one left for the kill
				cancelOne(t, c, Cmd{})
			}
			if n := s.accepted.Load(); n != 1 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

type writer struct{ text string }

func (w *writer) Write(p []byte) (int, error) {
	w.text += string(p)
	return len(p), nil
}

func TestNoSessions(t *testing.T) {
	t.Parallel()
	s := startSSHD(t, "MaxSessions 0")
	c := s.connect(t, s.config())
	goldenError(t, c.Exec(context.Background(), Cmd{Line: "true"}))
}

// A connection that is lost in the middle of a file gives a transient error, and
// the next try makes a new one.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	s := startSSHD(t)
	c := s.connect(t, s.config())
	for _, test := range []struct {
		name string
		cmd  func() Cmd
	}{
		{"upload", func() Cmd {
			return Cmd{Line: "cat >/dev/null", Stdin: io.MultiReader(io.LimitReader(endless{}, 20<<20), onRead(s.cut), endless{})}
		}},
		{"download", func() Cmd {
			var once sync.Once
			return Cmd{Line: "cat /dev/zero", Stdout: writerFunc(func(p []byte) (int, error) {
				once.Do(s.cut)
				return len(p), nil
			})}
		}},
		{"command", func() Cmd {
			return Cmd{Line: "sh -c 'echo $$; exec sleep 1000'", Stdout: writerFunc(func(p []byte) (int, error) {
				pid := strings.TrimSpace(string(p))
				t.Cleanup(func() { run(t, "", "kill", pid) })
				s.cut()
				return len(p), nil
			})}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := c.Exec(context.Background(), test.cmd())
			if !fault.IsTransient(err) {
				t.Errorf("not transient: %v", err)
			}
			if got := output(t, c, Cmd{Line: "echo again"}); got != "again\n" {
				t.Errorf("next: %q", got)
			}
		})
	}
	if n := s.accepted.Load(); n != 4 {
		t.Errorf("%d connections", n)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// onRead calls f when it is read, and is empty.
func onRead(f func()) io.Reader {
	return readerFunc(func([]byte) (int, error) {
		f()
		return 0, io.EOF
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Big files pass in little memory, both ways.
func TestBigFile(t *testing.T) {
	const size, back = 300 << 20, 100 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // whatever the environment has
	s := startSSHD(t)
	c := s.connect(t, s.config())
	var most atomic.Uint64
	watch := func() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most.Store(max(most.Load(), m.HeapInuse))
	}
	watch()
	before := most.Load()
	var sent, got int64
	up := readerFunc(func(p []byte) (int, error) {
		if sent += int64(len(p)); sent%(16<<20) == 0 {
			watch()
		}
		return len(p), nil
	})
	if got := output(t, c, Cmd{Line: "wc -c", Stdin: io.LimitReader(up, size)}); got != fmt.Sprintln(size) {
		t.Errorf("%q bytes went up", got)
	}
	down := writerFunc(func(p []byte) (int, error) {
		if got += int64(len(p)); got%64 == 0 {
			watch()
		}
		return len(p), nil
	})
	if err := c.Exec(context.Background(), Cmd{Line: fmt.Sprintf("head -c %d /dev/zero", back), Stdout: down}); err != nil || got != back {
		t.Errorf("%d bytes came down, %v", got, err)
	}
	if grown := int64(most.Load()) - int64(before); grown > 40<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
}

// A machine that falls silent is given up, and reached again.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	s := startSSHD(t)
	cfg := s.config()
	cfg.KeepAlive = 100 * time.Millisecond
	far := &silent{Connector: Local()}
	cfg.Bastion = far
	c := s.connect(t, cfg)
	try := func() (err error) { // a busy machine may seem silent
		for err = c.Exec(context.Background(), Cmd{Line: "true"}); fault.IsTransient(err); {
			err = c.Exec(context.Background(), Cmd{Line: "true"})
		}
		return err
	}
	if err := try(); err != nil {
		t.Fatal(err)
	}
	far.last.Store(true)
	goldenError(t, c.Exec(context.Background(), Cmd{Line: "true"}), fmt.Sprint(s.port), "PORT")
	far.last.Store(false)
	if err := try(); err != nil {
		t.Error(err)
	}
}

// silent is a bastion from which nothing comes any more while last is set.
type silent struct {
	Connector
	last atomic.Bool
}

func (b *silent) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := b.Connector.Dial(ctx, network, address)
	return &silentConn{c, b, make(chan struct{}), sync.Once{}}, err
}

type silentConn struct {
	net.Conn
	b      *silent
	closed chan struct{}
	once   sync.Once
}

func (c *silentConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.b.last.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *silentConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

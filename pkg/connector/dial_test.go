package connector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/connector/sshtest"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// echo serves connections that give back what they get.
func echo(t *testing.T, network, address string) net.Listener {
	t.Helper()
	return sshtest.Listen(t, network, address, func(c net.Conn) { io.Copy(c, c) })
}

func TestDial(t *testing.T) {
	s := startSSHD(t)
	here := Local()
	defer here.Close()
	tcp := echo(t, "tcp", "127.0.0.1:0").Addr().String()
	unix := echo(t, "unix", filepath.Join(sharedDir(t), "socket")).Addr().String()
	for name, c := range map[string]Connector{"ssh": s.connect(t, s.config()), "local": here} {
		for network, address := range map[string]string{"tcp": tcp, "unix": unix} {
			t.Run(name+"/"+network, func(t *testing.T) {
				conn, err := c.Dial(context.Background(), network, address)
				if err != nil {
					t.Fatal(err)
				}
				go conn.Write([]byte(allBytes))
				got := make([]byte, len(allBytes))
				if _, err := io.ReadFull(conn, got); err != nil || string(got) != allBytes {
					t.Errorf("%q, %v", got, err)
				}
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
				if n, err := conn.Read(got); err == nil {
					t.Errorf("read %d bytes after Close", n)
				}
			})
		}
	}
}

// TestListen reaches this process from the machine, at a port of its loopback.
func TestListen(t *testing.T) {
	s := startSSHD(t)
	here := Local()
	defer here.Close()
	for name, c := range map[string]Connector{"ssh": s.connect(t, s.config()), "local": here} {
		t.Run(name, func(t *testing.T) {
			l, err := c.Listen(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						_, _ = io.Copy(conn, conn)
						conn.Close()
					}()
				}
			}()
			for range 2 {
				conn, err := here.Dial(t.Context(), "tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				go conn.Write([]byte(allBytes))
				got := make([]byte, len(allBytes))
				if _, err := io.ReadFull(conn, got); err != nil || string(got) != allBytes {
					t.Errorf("%q, %v", got, err)
				}
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if conn, err := here.Dial(t.Context(), "tcp", l.Addr().String()); err == nil {
				conn.Close()
				t.Error("the port is open after Close")
			}
		})
	}
	t.Run("forbidden", func(t *testing.T) {
		strict := startSSHD(t, "AllowTcpForwarding no")
		_, err := strict.connect(t, strict.config()).Listen(t.Context())
		goldenError(t, err)
	})
}

func TestDialFails(t *testing.T) {
	s := startSSHD(t)
	strict := startSSHD(t, "AllowTcpForwarding no", "AllowStreamLocalForwarding no")
	for _, test := range []struct {
		name             string
		server           *sshd
		network, address string
	}{
		{"refused", s, "tcp", "127.0.0.1:1"},
		{"no socket", s, "unix", "/run/missing.sock"},
		{"no port", s, "tcp", "127.0.0.1"},
		{"forbidden", strict, "tcp", "127.0.0.1:1"},
		{"unix forbidden", strict, "unix", "/run/missing.sock"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := test.server.connect(t, test.server.config())
			_, err := c.Dial(context.Background(), test.network, test.address)
			goldenError(t, err)
		})
	}
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := s.connect(t, s.config()).Dial(ctx, "tcp", "127.0.0.1:1"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// Two machines behind one bastion: one connection to it, and another after it is lost.
func TestBastion(t *testing.T) {
	a := newAccount(t)
	bastion, first, second := startSSHD(t), startSSHD(t), startSSHD(t)
	cfg := bastion.config()
	cfg.Name, cfg.User, cfg.PrivateKeyPath, cfg.Password = "bastion", a.name, "", secret.New(a.password)
	between := bastion.connect(t, cfg)
	for _, s := range []*sshd{first, second} {
		cfg := s.config()
		cfg.Bastion = between
		c := s.connect(t, cfg)
		if got := output(t, c, Cmd{Line: "id -un; echo $SSH_CLIENT"}); got == "" || got[:5] != "root\n" {
			t.Errorf("got %q", got)
		}
		defer func() {
			bastion.cut()
			var err error
			for err = c.Exec(context.Background(), Cmd{Line: "true"}); fault.IsTransient(err); {
				err = c.Exec(context.Background(), Cmd{Line: "true"})
			}
			if err != nil {
				t.Error(err)
			}
		}()
	}
	if n := bastion.accepted.Load(); n != 1 {
		t.Errorf("%d connections to the bastion", n)
	}
}

func TestBastionFails(t *testing.T) {
	s := startSSHD(t)
	strict := startSSHD(t, "AllowTcpForwarding no")
	for _, test := range []struct {
		name    string
		bastion *sshd
	}{{"refused", s}, {"forbidden", strict}} {
		t.Run(test.name, func(t *testing.T) {
			cfg := test.bastion.config()
			cfg.Name = "bastion"
			_, err := SSH(context.Background(), SSHConfig{
				Name: "node1", Address: "127.0.0.1", Port: 1, PrivateKeyPath: s.key(),
				KnownHosts: filepath.Join(t.TempDir(), "known_hosts"), Bastion: test.bastion.connect(t, cfg),
			})
			if !errors.Is(err, ErrUnreachable) {
				t.Errorf("got %v", err)
			}
			goldenError(t, err)
		})
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	for _, test := range []struct {
		name string
		port int
		err  error // of dialing
	}{
		{"refused", 1, nil},
		{"not SSH", echo(t, "tcp", "127.0.0.1:0").Addr().(*net.TCPAddr).Port, nil},
		{"no answer", port, nil},
		{"no route", 22, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}},
		{"no network", 22, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ENETUNREACH}},
		{"no such name", 22, &net.DNSError{Err: "no such host", Name: "node1.example", IsNotFound: true}},
		{"name server fails", 22, &net.DNSError{Err: "server misbehaving", Name: "node1.example", IsTemporary: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := SSHConfig{
				Name: "node1", Address: "127.0.0.1", Port: test.port, Password: secret.New("x"),
				KnownHosts: filepath.Join(t.TempDir(), "known_hosts"), ConnectTimeout: time.Second,
			}
			var err error
			if test.err == nil {
				_, err = SSH(context.Background(), cfg)
			} else {
				err = cfg.unreachable(context.Background(), test.err)
			}
			if !errors.Is(err, ErrUnreachable) {
				t.Errorf("got %v", err)
			}
			goldenError(t, err, fmt.Sprintf(":%d", test.port), ":PORT", fmt.Sprintf("port %d", test.port), "port PORT")
		})
	}
}

func TestConnectCanceled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	enough := errors.New("enough")
	go func() {
		c, err := l.Accept()
		cancel(enough)
		if err == nil {
			io.Copy(io.Discard, c) // until the other side hangs up
			c.Close()
		}
	}()
	_, err = SSH(ctx, SSHConfig{Address: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, KnownHosts: filepath.Join(t.TempDir(), "known_hosts")})
	if !errors.Is(err, enough) || fault.IsTransient(err) {
		t.Errorf("got %v", err)
	}
}

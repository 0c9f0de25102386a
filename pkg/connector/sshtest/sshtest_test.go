package sshtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/connector/sshtest"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// upper writes its input in capitals, then the line to standard error.
func upper(line string, stdin io.Reader, stdout, stderr io.Writer) int {
	text, err := io.ReadAll(stdin)
	if err != nil {
		return 1
	}
	fmt.Fprint(stdout, strings.ToUpper(string(text)))
	fmt.Fprint(stderr, line)
	if line == "fail" {
		return 3
	}
	return 0
}

func connect(t *testing.T, s *sshtest.Server) connector.Connector {
	t.Helper()
	c, err := connector.SSH(context.Background(), connector.SSHConfig{
		Address: s.Address, Port: s.Port, Password: secret.New("pass"),
		KnownHosts: filepath.Join(t.TempDir(), "known_hosts"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestServer(t *testing.T) {
	for _, cfg := range []sshtest.Config{
		{Handler: upper},
		{Handler: upper, Password: "pass", Latency: time.Millisecond},
		{Handler: upper, Sessions: 1},
	} {
		s := sshtest.Start(t, cfg)
		c := connect(t, s)
		for _, stdin := range []io.Reader{nil, strings.NewReader("it's\x00"), struct{ io.Reader }{strings.NewReader("it's\x00")}} {
			for _, sudo := range []bool{false, true} {
				var out, errs bytes.Buffer
				cmd := connector.Cmd{Line: "echo 'x'", Stdin: stdin, Sudo: sudo, Stdout: &out, Stderr: &errs}
				if err := c.Exec(context.Background(), cmd); err != nil {
					t.Error(err)
				}
				if stdin != nil && !sudo && out.String() != "IT'S\x00" || errs.String() != "echo 'x'" {
					t.Errorf("%q, %q", out.String(), errs.String())
				}
			}
		}
		var exit *connector.ExitError
		if err := c.Exec(context.Background(), connector.Cmd{Line: "fail"}); !errors.As(err, &exit) || exit.Code != 3 || exit.Stderr != "fail" {
			t.Errorf("got %v", err)
		}
	}
}

func TestServerRefuses(t *testing.T) {
	s := sshtest.Start(t, sshtest.Config{Password: "other"})
	_, err := connector.SSH(context.Background(), connector.SSHConfig{
		Address: s.Address, Port: s.Port, Password: secret.New("pass"), KnownHosts: filepath.Join(t.TempDir(), "known_hosts"),
	})
	if !errors.Is(err, connector.ErrLogin) {
		t.Errorf("got %v", err)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := sshtest.Start(t, sshtest.Config{Handler: func(_ string, stdin io.Reader, _, _ io.Writer) int {
		cancel()
		io.Copy(io.Discard, stdin)
		return 0
	}})
	c := connect(t, s)
	r, w := io.Pipe()
	defer w.Close()
	if err := c.Exec(ctx, connector.Cmd{Line: "hang", Stdin: r}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDrop(t *testing.T) {
	s := sshtest.Start(t, sshtest.Config{Handler: upper})
	c := connect(t, s)
	s.Drop()
	err := errors.New("none")
	for try := 0; err != nil && try < 5; try++ {
		if err = c.Exec(context.Background(), connector.Cmd{Line: "x"}); err != nil && !fault.IsTransient(err) {
			t.Error(err)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

func TestDial(t *testing.T) {
	s := sshtest.Start(t, sshtest.Config{Handler: upper})
	behind := sshtest.Start(t, sshtest.Config{Handler: upper})
	c, err := connector.SSH(context.Background(), connector.SSHConfig{
		Address: behind.Address, Port: behind.Port, Bastion: connect(t, s), KnownHosts: filepath.Join(t.TempDir(), "known_hosts"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Exec(context.Background(), connector.Cmd{Line: "x"}); err != nil {
		t.Error(err)
	}
}

// BenchmarkHosts is what a command on each of a thousand hosts costs, connecting
// included, both sides in one process.
func BenchmarkHosts(b *testing.B) {
	const hosts = 1000
	for range b.N {
		servers := make([]*sshtest.Server, hosts)
		for i := range servers {
			servers[i] = sshtest.Start(b, sshtest.Config{Handler: upper})
		}
		known := filepath.Join(b.TempDir(), "known_hosts")
		var g errgroup.Group
		for _, s := range servers {
			g.Go(func() error {
				c, err := connector.SSH(context.Background(), connector.SSHConfig{
					Address: s.Address, Port: s.Port, KnownHosts: known, ConnectTimeout: time.Minute,
				})
				if err != nil {
					return err
				}
				defer c.Close()
				return c.Exec(context.Background(), connector.Cmd{Line: "x"})
			})
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

package connector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/kubexm/kubexm/pkg/util/secret"
)

// allBytes is text that must pass any stream unchanged.
var allBytes = func() string {
	var b []byte
	for range 20 {
		for c := range 256 {
			b = append(b, byte(c))
		}
	}
	return string(b)
}()

// Every way to run a command must behave like sh -c.
func TestExec(t *testing.T) {
	asks := newAccount(t, "USER ALL=(ALL) ALL")
	s := startSSHD(t)
	cfg := s.config()
	cfg.User, cfg.Password = asks.name, secret.New(asks.password)
	user := s.connect(t, cfg)
	here := Local()
	defer here.Close()
	type way struct {
		name string
		c    Connector
		sudo bool
		own  bool // in a session of its own
	}
	ways := []way{
		{"root", s.connect(t, s.config()), true, false},
		{"user", user, false, false},
		{"user own session", user, false, true},
		{"sudo", user, true, false},
		{"sudo own session", user, true, true},
		{"local", here, false, false},
	}
	tests := []struct {
		name, line, stdin string
		stdout, stderr    string // stderr: must be part of it
		code              int
	}{
		{"both outputs", "echo out; echo err >&2", "", "out\n", "err", 0},
		{"nothing", "", "", "", "", 0},
		{"no trailing newline", "printf abc", "", "abc", "", 0},
		{"status", "echo why >&2; exit 7", "", "", "why", 7},
		{"exec", "exec sh -c 'exit 4'", "", "", "", 4},
		{"fails at once", "set -e; false; echo no", "", "", "", 1},
		{"unknown command", "no-such-command", "", "", "not found", 127},
		{"syntax error", `echo "open`, "", "", "", 2},
		{"killed", "sh -c 'kill -KILL $$'", "", "", "", 137},
		{"no input", "cat; echo end", "", "end\n", "", 0},
		{"input", "cat; echo end", "text", "textend\n", "", 0},
		{"input not read", "echo end", "text", "end\n", "", 0},
		{"any byte", "cat", allBytes, allBytes, "", 0},
		{"input that looks like an option", "cat", "-n%s\n", "-n%s\n", "", 0},
		{"input for one of two", "head -c 2; echo; cat", "abcd", "ab\ncd", "", 0},
		{"quotes", `echo 'a b' "c'd" \$e`, "", "a b c'd $e\n", "", 0},
		{"here document", "cat <<'X'\nit's $1\nX\necho more", "", "it's $1\nmore\n", "", 0},
		{"lines", "for i in 1 2\ndo\n  echo $i # note\ndone", "", "1\n2\n", "", 0},
		{"no arguments", `echo $# "$1"`, "", "0 \n", "", 0},
		{"exit trap", "trap 'echo bye' EXIT; exit 3", "", "bye\n", "", 3},
		{"surroundings", "pwd; umask; echo $LC_ALL; command -v sh >/dev/null; case :$PATH: in *:/usr/local/sbin:*:/sbin:*) echo path;; esac", "", "/\n0022\nC\npath\n", "", 0},
		{"changed surroundings", "cd /tmp; umask 077; PATH=; LC_ALL=x; exec 2>&- 8>&-; set -f; x=1", "", "", "", 0},
		{"own surroundings", `echo "$x" $(pwd) $(umask) $LC_ALL`, "", " / 0022 C\n", "", 0},
		{"streams closed", "exec <&- >&- 2>&-; exit 5", "", "", "", 5},
	}
	for _, shell := range []string{"bash", "dash", "busybox"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not installed: not tried", shell)
			continue
		}
		dir := sharedDir(t)
		if err := os.Symlink(path, filepath.Join(dir, "sh")); err != nil {
			t.Fatal(err)
		}
		s := startSSHD(t, "SetEnv PATH="+dir+":/usr/bin:/bin SHLVL=2")
		c := s.connect(t, s.config())
		ways = append(ways, way{shell, c, false, false}, way{shell + " own session", c, false, true})
	}
	for _, way := range ways {
		for _, test := range tests {
			t.Run(way.name+"/"+test.name, func(t *testing.T) {
				var stdout, stderr bytes.Buffer
				cmd := Cmd{Line: test.line, Sudo: way.sudo, Stdout: &stdout, Stderr: &stderr}
				if test.stdin != "" {
					cmd.Stdin = strings.NewReader(test.stdin)
				}
				if way.own {
					cmd.Stdin = stream(test.stdin)
				}
				err := way.c.Exec(context.Background(), cmd)
				code := 0
				if exit := (*ExitError)(nil); errors.As(err, &exit) {
					code = exit.Code
					if !strings.Contains(exit.Stderr, test.stderr) {
						t.Errorf("error has %q", exit.Stderr)
					}
				} else if err != nil {
					t.Fatal(err)
				}
				if code != test.code || stdout.String() != test.stdout || !strings.Contains(stderr.String(), test.stderr) {
					t.Errorf("status %d, output %q, errors %q", code, stdout.String(), stderr.String())
				}
			})
		}
	}
}

func TestExecAs(t *testing.T) {
	a := newAccount(t, "USER ALL=(ALL) NOPASSWD: ALL")
	s := startSSHD(t)
	cfg := s.config()
	cfg.User = a.name
	c := s.connect(t, cfg)
	if got := output(t, c, Cmd{Line: "id -un"}); got != a.name+"\n" {
		t.Errorf("without sudo: %q", got)
	}
	if got := output(t, c, Cmd{Line: "id -un", Sudo: true}); got != "root\n" {
		t.Errorf("with sudo: %q", got)
	}
}

// A child that a command leaves behind writes into nobody else's output, and
// nobody waits for it.
func TestExecChildLeftBehind(t *testing.T) {
	t.Parallel()
	s := startSSHD(t)
	c := s.connect(t, s.config())
	here := Local()
	defer here.Close()
	for _, test := range []struct {
		name  string
		c     Connector
		stdin io.Reader
	}{{"shell", c, nil}, {"own session", c, stream("")}, {"local", here, nil}} {
		t.Run(test.name, func(t *testing.T) {
			fifo := filepath.Join(t.TempDir(), "fifo")
			got := output(t, test.c, Cmd{Line: "mkfifo " + fifo + "; (read x <" + fifo + "; echo late; echo late >&2) & echo now", Stdin: test.stdin})
			if got != "now\n" {
				t.Errorf("first: %q", got)
			}
			if got := output(t, test.c, Cmd{Line: "echo go >" + fifo + "; echo then"}); got != "then\n" {
				t.Errorf("second: %q", got)
			}
		})
	}
}

// Nothing that a command can see of the shell around it passes for a mark.
func TestExecSeesNoMarks(t *testing.T) {
	s := startSSHD(t)
	c := s.connect(t, s.config())
	line := "set; env; ps -ef; cat /proc/[0-9]*/cmdline; set -x; true; $(set -x; echo :)"
	for _, stdin := range []io.Reader{nil, stream("")} {
		var out bytes.Buffer
		if err := c.Exec(context.Background(), Cmd{Line: line, Stdin: stdin, Stdout: &out, Stderr: &out}); err != nil {
			t.Error(err)
		}
		if !strings.Contains(out.String(), "sshd") || strings.Contains(out.String(), "\x00\x01kx") {
			t.Errorf("output is incomplete: %q", out.String())
		}
	}
}

// One shell serves all commands that come one after another.
func TestExecReusesShell(t *testing.T) {
	s := startSSHD(t)
	c := s.connect(t, s.config())
	first := output(t, c, Cmd{Line: "echo $$"})
	for range 20 {
		if got := output(t, c, Cmd{Line: "echo $$"}); got != first {
			t.Fatalf("shell %q after %q", got, first)
		}
	}
	output(t, c, Cmd{Line: "kill -KILL $$"})
	if got := output(t, c, Cmd{Line: "echo $$"}); got == first {
		t.Error("a dead shell ran a command")
	}
}

// A shell that sshd ends while it waits is replaced without a word.
func TestExecWaitingShellEnds(t *testing.T) {
	t.Parallel()
	s := startSSHD(t)
	c := s.connect(t, s.config())
	for range 10 {
		pid := output(t, c, Cmd{Line: "echo $$"})
		run(t, "", "kill", "-KILL", strings.TrimSpace(pid))
		if got := output(t, c, Cmd{Line: "echo still"}); got != "still\n" {
			t.Errorf("got %q", got)
		}
	}
}

// Output comes while the command runs, and a command whose output nobody takes any
// more is ended.
func TestExecOutputRefused(t *testing.T) {
	t.Parallel()
	s := startSSHD(t)
	here := Local()
	defer here.Close()
	for _, c := range []Connector{s.connect(t, s.config()), here} {
		for _, stdin := range []io.Reader{nil, stream("")} {
			full := errors.New("disk is full")
			r, w := io.Pipe()
			result := make(chan error)
			go func() {
				result <- c.Exec(context.Background(), Cmd{Line: "echo $$; exec yes", Stdin: stdin, Stdout: w})
			}()
			var pid int
			if _, err := fmt.Fscanln(r, &pid); err != nil {
				t.Fatal(err)
			}
			r.CloseWithError(full)
			if err := <-result; !errors.Is(err, full) {
				t.Errorf("got %v", err)
			}
			if alive(pid) {
				t.Error("the command still runs")
			}
		}
	}
}

// An input that cannot be read to its end must not look complete to the command.
func TestExecInputFails(t *testing.T) {
	t.Parallel()
	s := startSSHD(t)
	here := Local()
	defer here.Close()
	for _, c := range []Connector{s.connect(t, s.config()), here} {
		file := filepath.Join(t.TempDir(), "file")
		broken := errors.New("download broke")
		stdin := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken))
		err := c.Exec(context.Background(), Cmd{Line: "cat >" + file + ".part && mv " + file + ".part " + file, Stdin: stdin})
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("half a file passed for a whole one: %v", err)
		}
	}
}

// The same writer may take both outputs.
func TestExecOneWriter(t *testing.T) {
	here := Local()
	defer here.Close()
	var out bytes.Buffer
	line := "i=0; while [ $i -lt 500 ]; do echo a; echo b >&2; i=$((i+1)); done"
	if err := here.Exec(context.Background(), Cmd{Line: line, Stdout: &out, Stderr: &out}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "a\n") + strings.Count(out.String(), "b\n"); got != 1000 {
		t.Errorf("%d lines", got)
	}
}

// A login that gives no shell is an error that says so.
func TestExecNoShell(t *testing.T) {
	a := newAccount(t)
	s := startSSHD(t, "ForceCommand echo This account is not available. >&2; exit 1")
	cfg := s.config()
	cfg.User = a.name
	for _, stdin := range []io.Reader{nil, stream("")} {
		goldenError(t, s.connect(t, cfg).Exec(context.Background(), Cmd{Line: "true", Stdin: stdin}), a.name, "USER")
	}
}

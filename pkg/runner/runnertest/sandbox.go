package runnertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
)

// Sandbox is a connector that runs scripts for real: with a shell and the
// commands of this machine, but on a root directory of its own. It shows that
// scripts do on real shells what they do on a Host.
type Sandbox struct {
	root  string
	shell string
}

// Shells are the command lines of the shells that scripts must run on.
func Shells() []string { return []string{"dash", "bash", "busybox sh"} }

// NewSandbox returns an empty sandbox for one of Shells. It skips
// the test, with the reason, where the machine cannot give one.
func NewSandbox(tb testing.TB, shell string) *Sandbox {
	tb.Helper()
	if _, err := exec.LookPath(strings.Fields(shell)[0]); err != nil {
		tb.Skipf("no %s on this machine", shell)
	}
	s := &Sandbox{tb.TempDir(), shell}
	for _, d := range []string{"dev", "etc", "proc", "sys", "root", "tmp", "usr", "run/lock", "var/lib", "kernel"} {
		if err := os.MkdirAll(filepath.Join(s.root, d), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		if to, err := os.Readlink("/" + d); err == nil {
			if err := os.Symlink(to, filepath.Join(s.root, d)); err != nil {
				tb.Fatal(err)
			}
		}
	}
	s.Put("/dev/null", "", 0o666)
	s.Put("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n", 0o644)
	s.Put("/etc/group", "root:x:0:\nnogroup:x:65534:\n", 0o644)
	if err := s.Exec(tb.Context(), connector.Cmd{Line: "true"}); err != nil {
		tb.Skipf("this machine gives no mount namespace: %v", err)
	}
	return s
}

// Put writes a file. What is written to /proc/sys stands there instead of the
// kernel's; what is written to /programs is found before the machine's commands.
func (s *Sandbox) Put(p, text string, mode fs.FileMode) {
	if rel, err := filepath.Rel("/proc/sys", p); err == nil && filepath.IsLocal(rel) {
		p = filepath.Join("/kernel", rel)
	}
	p = filepath.Join(s.root, p)
	err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), mode), os.Chmod(p, mode))
	if err != nil {
		panic(fmt.Sprintf("runnertest: %v", err))
	}
}

// Path is where a path of the sandbox is on this machine.
func (s *Sandbox) Path(p string) string { return filepath.Join(s.root, p) }

// Runner returns a new Runner on the sandbox.
func (s *Sandbox) Runner() *runner.Runner { return runner.New(s.shell, s) }

// enter makes the sandbox the root of a process and runs the script as a
// connector does.
const enter = `set -e; r=$1
mount --bind /usr "$r/usr"; mount -o remount,ro,bind "$r/usr"; mount --rbind /proc "$r/proc"; mount --bind "$r/kernel" "$r/proc/sys"
mount --bind /dev/null "$r/dev/null"
if [ -d /var/lib/dpkg ]; then mkdir -p "$r/var/lib/dpkg"; mount --bind /var/lib/dpkg "$r/var/lib/dpkg"; mount -o remount,ro,bind "$r/var/lib/dpkg"; fi
exec chroot "$r" $2 -c 'cd /; umask 022; export LC_ALL=C; (eval "set --; $1")' kubexm "$3"`

// Exec runs a script.
func (s *Sandbox) Exec(ctx context.Context, c connector.Cmd) error {
	args := []string{"--mount", "--propagation", "private", "sh", "-c", enter, "sandbox", s.root, s.shell, c.Line}
	if os.Geteuid() != 0 {
		args = append([]string{"--map-root-user"}, args...)
	}
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "unshare", args...)
	cmd.Env = []string{"PATH=/programs:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return connector.NewExitError(c.Line, exit.ExitCode(), errs.String())
	}
	return err
}

// Dial always fails: a sandbox has no network of its own.
func (s *Sandbox) Dial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("a sandbox has no network")
}

// Listen always fails, too.
func (s *Sandbox) Listen(context.Context) (net.Listener, error) {
	return nil, errors.New("a sandbox has no network")
}

// Close does nothing.
func (s *Sandbox) Close() error { return nil }

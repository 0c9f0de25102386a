//go:build e2e

package packages

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/test/testbed/host"
)

// system is a connector to a Debian system of its own, in a directory: without a network but for loopback,
// and with processes of its own, which end with each command.
type system string

// newSystem makes one with mmdebstrap, or skips the test where this machine cannot.
func newSystem(t *testing.T, codename string, packages ...string) (system, *runner.Runner) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this needs root: mmdebstrap and chroot")
	}
	for _, tool := range []string{"mmdebstrap", "unshare", "chroot"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("this machine has no %s", tool)
		}
	}
	root := filepath.Join(t.TempDir(), codename)
	args := []string{"--variant=minbase", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*"}
	if packages != nil {
		args = append(args, "--include="+strings.Join(packages, ","))
	}
	if err := host.Bootstrap(t.Context(), codename, root, args...); err != nil {
		t.Skipf("no system to try it on: %v", err)
	}
	err := os.WriteFile(filepath.Join(root, "usr/sbin/policy-rc.d"), []byte("#!/bin/sh\nexit 101\n"), 0o755) // no services: there is no systemd
	if err != nil {
		t.Fatal(err)
	}
	return system(root), runner.New(codename, system(root))
}

// enter makes the directory the root of a process.
const enter = `ip link set lo up && mount --bind /dev "$1/dev" && mount -t proc proc "$1/proc" && exec chroot "$1" /bin/sh -c 'cd /; umask 022; export LC_ALL=C; eval "$1"' sh "$2"`

// Exec runs a script as root.
func (s system) Exec(ctx context.Context, c connector.Cmd) error {
	cmd := exec.CommandContext(ctx, "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, "enter", string(s), c.Line)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return connector.NewExitError(c.Line, exit.ExitCode(), errs.String())
	}
	return err
}

// Dial always fails: nothing listens there.
func (s system) Dial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("it has no network")
}

// Listen always fails, too.
func (s system) Listen(context.Context) (net.Listener, error) {
	return nil, errors.New("it has no network")
}

// Close does nothing.
func (s system) Close() error { return nil }

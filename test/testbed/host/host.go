// Package host runs programs on the machine the testbed lives on and says,
// before anything starts, what that machine lacks.
package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// A Tool is a program or a file and the Debian package that brings it.
type Tool struct {
	Program string // looked up in PATH, or an absolute path to a file
	Package string
}

// The programs that the parts of the testbed call.
var (
	ForNodes = []Tool{
		{"mmdebstrap", "mmdebstrap"},
		{"systemd-nspawn", "systemd-container"},
		{"iptables", "iptables"},
		{"nft", "nftables"},
		{"ip", "iproute2"},
		{"ethtool", "ethtool"},
		{"sysctl", "procps"},
		{"ssh", "openssh-client"},
		{"ssh-keygen", "openssh-client"},
		{"/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"},
	}
	ForBuilds = []Tool{{"gcc", "gcc"}, {"/usr/include/seccomp.h", "libseccomp-dev"}, {"/usr/include/stdlib.h", "libc6-dev"}, {"pkg-config", "pkg-config"}}
	ForImages = []Tool{{"mmdebstrap", "mmdebstrap"}}
)

// Missing returns the packages whose programs are not there, each once.
func Missing(tools []Tool) []string {
	var pkgs []string
	seen := map[string]bool{}
	for _, t := range tools {
		if seen[t.Package] || present(t.Program) {
			continue
		}
		seen[t.Package] = true
		pkgs = append(pkgs, t.Package)
	}
	return pkgs
}

func present(program string) bool {
	if strings.HasPrefix(program, "/") {
		_, err := os.Stat(program)
		return err == nil
	}
	_, err := exec.LookPath(program)
	return err == nil
}

// Require makes sure that all of tools are there, installing their packages
// with apt when this is a Debian machine, and says on out what it installs.
func Require(ctx context.Context, out io.Writer, tools ...Tool) error {
	pkgs := Missing(tools)
	if len(pkgs) == 0 {
		return nil
	}
	if !present("apt-get") {
		return fmt.Errorf("this machine lacks what the Debian packages %s bring, and has no apt", strings.Join(pkgs, " "))
	}
	if err := Root(); err != nil {
		return err
	}
	fmt.Fprintf(out, "installing Debian packages on this machine: %s\n", strings.Join(pkgs, " "))
	install := append([]string{"DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "--no-install-recommends"}, pkgs...)
	if _, err := Run(ctx, "env", install...); err == nil {
		return nil
	}
	if _, err := Run(ctx, "apt-get", "update"); err != nil {
		return err
	}
	_, err := Run(ctx, "env", install...)
	return err
}

// Root returns an error unless the process runs as root.
func Root() error {
	if os.Geteuid() != 0 {
		return fault.Advise(fmt.Errorf("the testbed makes network namespaces, mounts and cgroups: it needs root"), "run it again with sudo -E")
	}
	return nil
}

// Free returns an error when less than need bytes are free at dir.
func Free(dir string, need uint64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("looking for free space at %s: %w", dir, err)
	}
	if free := st.Bavail * uint64(st.Bsize); free < need {
		return fault.Advise(fmt.Errorf("%s has %d MB free, %d MB are needed", dir, free>>20, need>>20),
			"free some, or point KUBEXM_TESTBED_CACHE and KUBEXM_TESTBED_STATE to a larger disk")
	}
	return nil
}

// Run runs a program to its end and returns its standard output; the error
// holds the end of its standard error.
func Run(ctx context.Context, name string, args ...string) (string, error) {
	return Output(exec.CommandContext(ctx, name, args...))
}

// Output is Run for a prepared command. The program ends with this one.
func Output(cmd *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout = &out
	if cmd.Stderr == nil {
		cmd.Stderr = &errs
	}
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("running %s: %w: %s", strings.Join(cmd.Args, " "), err, tail(errs.String(), 2000))
	}
	return out.String(), nil
}

func tail(s string, n int) string {
	if s = strings.TrimSpace(s); len(s) > n {
		s = "..." + s[len(s)-n:]
	}
	return s
}

package connector

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/connector/internal/script"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// What goes through sudo arrives unchanged and without the password, whether sudo
// asks for it or not.
func TestSudoKeepsInput(t *testing.T) {
	for _, test := range []struct {
		name    string
		sudoers []string
	}{
		{"no password", []string{"USER ALL=(ALL) NOPASSWD: ALL"}},
		{"password", []string{"USER ALL=(ALL) ALL"}},
		{"password each time", []string{"USER ALL=(ALL) ALL", "Defaults:USER timestamp_timeout=0"}},
		{"password on a terminal of sudo's", []string{"USER ALL=(ALL) ALL", "Defaults:USER use_pty"}},
		{"no password on a terminal of sudo's", []string{"USER ALL=(ALL) NOPASSWD: ALL", "Defaults:USER use_pty"}},
		{"lecture", []string{"USER ALL=(ALL) ALL", "Defaults:USER lecture=always"}},
		{"log of input", []string{"USER ALL=(ALL) ALL", "Defaults:USER log_input,log_output,iolog_dir=/tmp/USER-log"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := newAccount(t, test.sudoers...)
			t.Cleanup(func() { os.RemoveAll("/tmp/" + a.name + "-log") })
			s := startSSHD(t)
			cfg := s.config()
			cfg.User, cfg.PrivateKeyPath, cfg.Password = a.name, "", secret.New(a.password)
			c := s.connect(t, cfg)
			for range 3 {
				for _, stdin := range []io.Reader{strings.NewReader(allBytes), stream(allBytes)} {
					file := filepath.Join(t.TempDir(), "file")
					if got := output(t, c, Cmd{Line: "cat >" + file + "; id -u", Sudo: true, Stdin: stdin}); got != "0\n" {
						t.Errorf("output %q", got)
					}
					if got, err := os.ReadFile(file); err != nil || string(got) != allBytes {
						t.Errorf("file has %q, %v", got, err)
					}
				}
			}
			everything := output(t, c, Cmd{Line: "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ || :", Sudo: true, Stdin: stream("")})
			if !strings.Contains(everything, "sudo") || strings.Contains(everything, a.password) {
				t.Error("the password is in an argument or in the environment of a process")
			}
		})
	}
}

func TestSudoRefuses(t *testing.T) {
	for _, test := range []struct {
		name     string
		sudoers  []string
		password string // of sudo; "-": the right one
		path     []string
		is       error
	}{
		{"wrong password", []string{"USER ALL=(ALL) ALL"}, "wrong", nil, ErrSudoPassword},
		{"no password", []string{"USER ALL=(ALL) ALL"}, "", nil, ErrSudoPassword},
		{"not in sudoers", nil, "-", nil, ErrSudoDenied},
		{"other commands only", []string{"USER ALL=(ALL) NOPASSWD: /bin/true"}, "-", nil, ErrSudoDenied},
		{"requiretty", []string{"USER ALL=(ALL) NOPASSWD: ALL", "Defaults:USER requiretty"}, "-", nil, ErrSudoTTY},
		{"missing", nil, "-", []string{}, ErrSudoMissing},
		{"sudo-rs wrong password", nil, "wrong", []string{"sudo-rs"}, ErrSudoPassword},
		{"sudo-rs denied", nil, "-", []string{"sudo-rs-denied"}, ErrSudoDenied},
		{"something else", nil, "-", []string{"sudo-broken"}, ErrSudo},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := newAccount(t, test.sudoers...)
			var config []string
			if test.path != nil {
				config = append(config, "SetEnv PATH="+binaries(t, a, test.path...)+" SHLVL=2")
			}
			s := startSSHD(t, config...)
			cfg := s.config()
			cfg.User = a.name
			cfg.SudoPassword = secret.New(strings.Replace(test.password, "-", a.password, 1))
			c := s.connect(t, cfg)
			file := filepath.Join(t.TempDir(), "file")
			for _, stdin := range []io.Reader{nil, stream("payload\nwrong\n")} {
				err := c.Exec(context.Background(), Cmd{Line: "cat >" + file, Sudo: true, Stdin: stdin})
				if !errors.Is(err, test.is) || !errors.Is(err, ErrSudo) {
					t.Errorf("got %v", err)
				}
				goldenError(t, err, a.name, "USER")
				if _, err := os.Stat(file); err == nil {
					t.Error("the command ran")
				}
			}
			if got := output(t, c, Cmd{Line: "echo fine"}); got != "fine\n" {
				t.Errorf("without sudo: %q", got)
			}
		})
	}
}

// sudo-rs puts the prompt into a text of its own.
func TestSudoRS(t *testing.T) {
	a := newAccount(t)
	s := startSSHD(t, "SetEnv PATH="+binaries(t, a, "sudo-rs")+" SHLVL=2")
	cfg := s.config()
	cfg.User, cfg.SudoPassword = a.name, secret.New(a.password)
	c := s.connect(t, cfg)
	for _, stdin := range []io.Reader{strings.NewReader(allBytes), stream(allBytes)} {
		if got := output(t, c, Cmd{Line: "cat", Sudo: true, Stdin: stdin}); got != allBytes {
			t.Errorf("got %q", got)
		}
	}
}

// binaries returns a directory that has what a login needs, and one of the sudos of
// testdata/bin as sudo.
func binaries(t *testing.T, a account, sudo ...string) string {
	t.Helper()
	dir := sharedDir(t)
	for _, name := range []string{"sh", "env", "cat", "id"} {
		if err := os.Symlink("/usr/bin/"+name, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range sudo {
		text, err := os.ReadFile(filepath.Join("testdata", "bin", name))
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte("PASSWORD"), []byte(script.Quote(a.password)))
		write(t, filepath.Join(dir, "sudo"), string(text), 0o755)
	}
	return dir
}

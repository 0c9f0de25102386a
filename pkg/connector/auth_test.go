package connector

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/kubexm/kubexm/pkg/connector/sshtest"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// TestLogin has a row for each way to log in, and for each way to fail.
func TestLogin(t *testing.T) {
	a := newAccount(t)
	s := startSSHD(t)
	interactive := startSSHD(t, "PasswordAuthentication no", "KbdInteractiveAuthentication yes")
	both := startSSHD(t, "KbdInteractiveAuthentication yes", "MaxAuthTries 2")
	keysOnly := startSSHD(t, "PasswordAuthentication no")
	dir := t.TempDir()
	other, locked, text := filepath.Join(dir, "other"), filepath.Join(dir, "locked"), filepath.Join(dir, "text")
	newKey(t, other)
	public := newLockedKey(t, locked, "open sesame")
	authorize(t, s, public)
	write(t, text, "no key\n", 0o600)

	for _, test := range []struct {
		name   string
		server *sshd
		home   *sshd // whose key is in ~/.ssh
		change func(*SSHConfig)
		ok     bool
	}{
		{"key", s, nil, func(*SSHConfig) {}, true},
		{"password", s, nil, func(c *SSHConfig) { c.PrivateKeyPath, c.Password = "", secret.New(a.password) }, true},
		{"keyboard interactive", interactive, nil, func(c *SSHConfig) { c.PrivateKeyPath, c.Password = "", secret.New(a.password) }, true},
		{"password after key", s, nil, func(c *SSHConfig) { c.PrivateKeyPath, c.Password = other, secret.New(a.password) }, true},
		{"key of the home directory", s, s, func(c *SSHConfig) { c.PrivateKeyPath = "" }, true},
		{"key of the home directory after password", keysOnly, keysOnly, func(c *SSHConfig) { c.PrivateKeyPath, c.Password = "", secret.New(a.password) }, true},
		{"passphrase", s, nil, func(c *SSHConfig) { c.PrivateKeyPath, c.Passphrase = locked, secret.New("open sesame") }, true},

		{"wrong key", s, nil, func(c *SSHConfig) { c.PrivateKeyPath = other }, false},
		{"wrong password", s, nil, func(c *SSHConfig) { c.PrivateKeyPath, c.Password = "", secret.New("wrong") }, false},
		{"wrong password is tried once", both, nil, func(c *SSHConfig) { c.PrivateKeyPath, c.Password = other, secret.New("wrong") }, false},
		{"password where only keys are taken", startSSHD(t, "PasswordAuthentication no", "KbdInteractiveAuthentication no"), nil, func(c *SSHConfig) { c.PrivateKeyPath, c.Password = "", secret.New(a.password) }, false},
		{"no passphrase", s, nil, func(c *SSHConfig) { c.PrivateKeyPath = locked }, false},
		{"wrong passphrase", s, nil, func(c *SSHConfig) { c.PrivateKeyPath, c.Passphrase = locked, secret.New("wrong") }, false},
		{"missing key", s, nil, func(c *SSHConfig) { c.PrivateKeyPath = filepath.Join(dir, "missing") }, false},
		{"not a key", s, nil, func(c *SSHConfig) { c.PrivateKeyPath = text }, false},
		{"nothing to try", s, nil, func(c *SSHConfig) { c.PrivateKeyPath = "" }, false},
		{"wrong key of the home directory", s, keysOnly, func(c *SSHConfig) { c.PrivateKeyPath = "" }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("SSH_AUTH_SOCK", "")
			t.Setenv("HOME", dir)
			if test.home != nil {
				t.Setenv("HOME", homeWith(t, test.home.key()))
			}
			cfg := test.server.config()
			cfg.User = a.name
			test.change(&cfg)
			c, err := SSH(context.Background(), cfg)
			if test.ok {
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				output(t, c, Cmd{Line: "true"})
				return
			}
			if !errors.Is(err, ErrLogin) || fault.IsTransient(err) {
				t.Errorf("got %v", err)
			}
			goldenError(t, err, a.name, "USER", dir, "DIR", os.Getenv("HOME"), "HOME", strconv.Itoa(cfg.Port), "PORT", ssh.FingerprintSHA256(public), "FINGERPRINT")
		})
	}
}

// TestTerminal logs in as a user at a terminal does, who then makes its window larger.
func TestTerminal(t *testing.T) {
	s := startSSHD(t)
	c, err := SSH(t.Context(), s.config())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	keys, typed := io.Pipe()
	defer typed.Close()
	shown, screen := io.Pipe()
	resized := make(chan Size)
	go func() {
		defer screen.Close()
		if err := Login(t.Context(), c, Terminal{In: keys, Out: screen, Type: "dumb", Size: Size{100, 40}, Resized: resized}); err != nil {
			t.Error(err)
		}
	}()
	go fmt.Fprintln(typed, "stty size; echo is a $TERM; echo a; for i in $(seq 200); do stty size | grep -q 120 && break; sleep 0.05; done; stty size; exit 3")
	var all strings.Builder
	lines := bufio.NewScanner(shown)
	for lines.Scan() {
		fmt.Fprintln(&all, lines.Text())
		if strings.TrimSpace(lines.Text()) == "a" {
			resized <- Size{120, 50}
		}
	}
	for _, want := range []string{"40 100", "is a dumb", "50 120"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("no %q in:\n%s", want, &all)
		}
	}
	if err := Login(t.Context(), Local(), Terminal{}); err == nil {
		t.Error("this machine has a login shell")
	}
}

// newLockedKey writes a private key with a passphrase, in little time.
func newLockedKey(t *testing.T, path, passphrase string, more ...string) ssh.PublicKey {
	t.Helper()
	run(t, "", "ssh-keygen", append([]string{"-q", "-t", "ed25519", "-a", "1", "-N", passphrase, "-C", "", "-f", path}, more...)...)
	text, err := os.ReadFile(path + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// authorize lets one more key in.
func authorize(t *testing.T, s *sshd, key ssh.PublicKey) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(s.dir, "authorized"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(ssh.MarshalAuthorizedKey(key)); err != nil {
		t.Fatal(err)
	}
}

// homeWith returns a home directory with a key as ~/.ssh/id_rsa, and one that
// cannot be used as ~/.ssh/id_ecdsa.
func homeWith(t *testing.T, key string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	newLockedKey(t, filepath.Join(dir, ".ssh", "id_ecdsa"), "unknown")
	if err := os.Symlink(key, filepath.Join(dir, ".ssh", "id_rsa")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLoginByAgent(t *testing.T) {
	s := startSSHD(t)
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := sshtest.Agent(t).Add(agent.AddedKey{PrivateKey: key}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", t.TempDir())
	cfg := s.config()
	cfg.PrivateKeyPath = ""
	_, err = SSH(context.Background(), cfg)
	goldenError(t, err, strconv.Itoa(s.port), "PORT", ssh.FingerprintSHA256(signer.PublicKey()), "FINGERPRINT")
	authorize(t, s, signer.PublicKey())
	output(t, s.connect(t, cfg), Cmd{Line: "true"})
}

// TestLockedKeyOfAgent names keys with passphrases that nobody gives but to an agent.
func TestLockedKeyOfAgent(t *testing.T) {
	s, dir := startSSHD(t), t.TempDir()
	file, old := filepath.Join(dir, "new"), filepath.Join(dir, "old")
	keys := map[string]ssh.PublicKey{file: newLockedKey(t, file, "open sesame"), old: newLockedKey(t, old, "open sesame", "-t", "ecdsa", "-m", "PEM")}
	ring := sshtest.Agent(t)
	for _, path := range []string{file, old, file + ".pub"} {
		cfg := s.config()
		cfg.PrivateKeyPath = path
		_, err := SSH(context.Background(), cfg)
		t.Run("without "+filepath.Base(path), func(t *testing.T) {
			goldenError(t, err, dir, "DIR", strconv.Itoa(s.port), "PORT", ssh.FingerprintSHA256(keys[file]), "FINGERPRINT", ssh.FingerprintSHA256(keys[old]), "FINGERPRINT")
		})
	}
	for path, public := range keys {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		key, err := ssh.ParseRawPrivateKeyWithPassphrase(text, []byte("open sesame"))
		if err != nil {
			t.Fatal(err)
		}
		if err := ring.Add(agent.AddedKey{PrivateKey: key}); err != nil {
			t.Fatal(err)
		}
		authorize(t, s, public)
	}
	for _, path := range []string{file, old, file + ".pub"} {
		cfg := s.config()
		cfg.PrivateKeyPath = path
		output(t, s.connect(t, cfg), Cmd{Line: "true"})
	}
	if err := os.Remove(old + ".pub"); err != nil {
		t.Fatal(err)
	}
	t.Run("which is not known", func(t *testing.T) {
		cfg := s.config()
		cfg.PrivateKeyPath = old
		_, err := SSH(context.Background(), cfg)
		goldenError(t, err, dir, "DIR", strconv.Itoa(s.port), "PORT")
	})
}

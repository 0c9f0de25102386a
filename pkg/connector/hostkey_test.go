package connector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/connector/sshtest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// The first key is recorded; from then on the machine must show it.
func TestHostKey(t *testing.T) {
	s := startSSHD(t)
	cfg := s.config()
	cfg.KnownHosts = filepath.Join(t.TempDir(), "new", "known_hosts")
	first := hostKey(t, s)
	line := fmt.Sprintf("[127.0.0.1]:%d %s", s.port, ssh.MarshalAuthorizedKey(first))
	for range 2 {
		s.connect(t, cfg)
		text, err := os.ReadFile(cfg.KnownHosts)
		if err != nil || string(text) != line {
			t.Errorf("recorded %q, %v, want %q", text, err, line)
		}
	}
	if info, err := os.Stat(cfg.KnownHosts); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}

	second := newKey(t, filepath.Join(s.dir, "host"))
	_, err := SSH(context.Background(), cfg)
	if !errors.Is(err, ErrHostKey) || fault.IsTransient(err) {
		t.Errorf("got %v", err)
	}
	goldenError(t, err, strconv.Itoa(s.port), "PORT", cfg.KnownHosts, "FILE",
		ssh.FingerprintSHA256(first), "FIRST", ssh.FingerprintSHA256(second), "SECOND")
}

func hostKey(t *testing.T, s *sshd) ssh.PublicKey {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "host"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return signer.PublicKey()
}

// TestKnownHosts has a row for each kind of line.
func TestKnownHosts(t *testing.T) {
	s := startSSHD(t)
	key := hostKey(t, s)
	other := newKey(t, filepath.Join(t.TempDir(), "other"))
	address := xknownhosts.Normalize(s.config().Endpoint())
	authorized := func(k ssh.PublicKey) string { return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k))) }
	const rsa = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCWIm2vmZuCBymb0Wj4ZN16eb5NAPfzOeMnJgvdjBv6SqfQQTgB6b0J3GBvcNhv/ETuxaRc58kDizAfXicqgPoQkjUrYF0R0BLYjdppiOdY39SO8OAp+VJOwCiifjRsjbVvwsBTLn6/cqW89sTxj6dQKU6WRBx97VcHlde7XvQJRwCNGHtCf4sIHBSrh3FW0qHTSlHON22WsirdGpY9FGMkZBMBNBBx5zQzE8McvL/89ZY3caM11gb019AddCqSv95QcCTcsDRkKjMTYrzEEyH0sWiMm0RttRpz6/Z8IY4EElZODtwEJ2Vr6f2b8bmrISjOSqzj3GngSMnswZWcXPul"

	for _, test := range []struct {
		name, lines string
		ok          bool
		added       bool
	}{
		{"empty", "", true, true},
		{"others", "node9 " + authorized(other) + "\n", true, true},
		{"others without newline", "node9 " + authorized(other), true, true},
		{"hashed", xknownhosts.HashHostname(address) + " " + authorized(key) + "\n", true, false},
		{"one of two", address + " " + authorized(other) + "\n" + address + " " + authorized(key) + "\n", true, false},
		{"pattern", "[127.0.0.*]:* " + authorized(other) + "\n", true, true},
		{"changed hashed", xknownhosts.HashHostname(address) + " " + authorized(other) + "\n", false, false},
		{"revoked", "@revoked * " + authorized(key) + "\n", false, false},
		{"other kind of key", address + " " + rsa + "\n", false, false},
		{"an authority", "@cert-authority * " + authorized(other) + "\n", true, true},
		{"an authority, and another key", "@cert-authority * " + authorized(other) + "\n" + address + " " + authorized(other) + "\n", false, false},
		{"an authority, and revoked", "@cert-authority * " + authorized(other) + "\n@revoked * " + authorized(key) + "\n", false, false},
		{"bad lines", "# one\nnode9 ssh-ed25519 nonsense\n@good " + address + " " + authorized(key) + "\nnode9\n[node9 " + authorized(other) + "\n|1|x|y " + authorized(other) + "\n", true, true},
		{"changed, and bad lines", "node9 ssh-ed25519 nonsense\n" + address + " " + authorized(other) + "\n", false, false},
		{"revoked, and bad lines", "node9 ssh-ed25519 nonsense\n@revoked * " + authorized(key) + "\n", false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := s.config()
			cfg.KnownHosts = filepath.Join(t.TempDir(), "known_hosts")
			write(t, cfg.KnownHosts, test.lines, 0o600)
			c, err := SSH(context.Background(), cfg)
			if test.ok != (err == nil) {
				t.Errorf("got %v", err)
			}
			if err == nil {
				c.Close()
			} else {
				goldenError(t, err, strconv.Itoa(s.port), "PORT", cfg.KnownHosts, "FILE",
					ssh.FingerprintSHA256(key), "KEY", ssh.FingerprintSHA256(other), "OTHER")
			}
			want := test.lines
			if test.added {
				if want != "" && !strings.HasSuffix(want, "\n") {
					want += "\n"
				}
				want += address + " " + authorized(key) + "\n"
			}
			if got, err := os.ReadFile(cfg.KnownHosts); err != nil || string(got) != want {
				t.Errorf("file has %q, %v, want %q", got, err, want)
			}
		})
	}
}

// TestOperatorsKnownHosts has machines that OpenSSH knows already.
func TestOperatorsKnownHosts(t *testing.T) {
	s := startSSHD(t)
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	if err := os.Mkdir(filepath.Join(dir, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(dir, ".ssh", "known_hosts")
	address := xknownhosts.Normalize(s.config().Endpoint())
	line := func(k ssh.PublicKey) string { return address + " " + string(ssh.MarshalAuthorizedKey(k)) }
	other := newKey(t, filepath.Join(dir, "other"))
	for _, c := range []struct {
		name, lines string
		ok, added   bool
	}{
		{"known", line(hostKey(t, s)), true, false},
		{"another key", line(other), false, false},
		{"bad lines", "nonsense nonsense\n", true, true},
		{"another key, and bad lines", "nonsense nonsense\n" + line(other), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := s.config()
			cfg.KnownHosts = filepath.Join(t.TempDir(), "known_hosts")
			write(t, theirs, c.lines, 0o600)
			conn, err := SSH(t.Context(), cfg)
			if c.ok != (err == nil) {
				t.Fatalf("got %v", err)
			}
			if err == nil {
				conn.Close()
			} else if advice := fault.Advice(err); !strings.Contains(advice, "-f "+theirs) {
				t.Errorf("advice: %s", advice)
			}
			if ours, err := os.ReadFile(cfg.KnownHosts); err != nil || c.added != (len(ours) > 0) {
				t.Errorf("recorded: %q, %v", ours, err)
			}
		})
	}
}

// TestKnownHostsUnreadable has a file of the operator's that may name the machine, and that nobody can read.
func TestKnownHostsUnreadable(t *testing.T) {
	s := startSSHD(t)
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	theirs := filepath.Join(dir, ".ssh", "known_hosts")
	if err := os.MkdirAll(theirs, 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := s.config()
	cfg.KnownHosts = filepath.Join(dir, "known_hosts")
	_, err := SSH(t.Context(), cfg)
	if err == nil {
		t.Fatal("connected")
	}
	goldenError(t, err, strconv.Itoa(s.port), "PORT", dir, "DIR")
}

// TestConfiguredHostKey has a row for each way to name the key that a machine must show.
func TestConfiguredHostKey(t *testing.T) {
	s := startSSHD(t)
	key := hostKey(t, s)
	other := newKey(t, filepath.Join(t.TempDir(), "other"))
	address := xknownhosts.Normalize(s.config().Endpoint())
	authorized := func(k ssh.PublicKey) string { return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k))) }
	for _, c := range []struct {
		name, key, lines string
		strict, ok       bool
	}{
		{"key", authorized(key) + " root@node1", "", true, true},
		{"fingerprint", ssh.FingerprintSHA256(key), "", true, true},
		{"known by another", ssh.FingerprintSHA256(key), address + " " + authorized(other) + "\n", false, true},
		{"another key", authorized(other), address + " " + authorized(key) + "\n", false, false},
		{"revoked", authorized(key), "@revoked * " + authorized(key) + "\n", false, false},
		{"strict and unknown", "", "", true, false},
		{"strict and known", "", address + " " + authorized(key) + "\n", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := s.config()
			cfg.KnownHosts, cfg.HostKey, cfg.Strict = filepath.Join(t.TempDir(), "known_hosts"), c.key, c.strict
			write(t, cfg.KnownHosts, c.lines, 0o600)
			conn, err := SSH(t.Context(), cfg)
			switch {
			case c.ok != (err == nil):
				t.Errorf("got %v", err)
			case err == nil:
				conn.Close()
			default:
				goldenError(t, err, strconv.Itoa(s.port), "PORT", cfg.KnownHosts, "FILE", ssh.FingerprintSHA256(key), "KEY", ssh.FingerprintSHA256(other), "OTHER")
			}
			if got, err := os.ReadFile(cfg.KnownHosts); err != nil || string(got) != c.lines {
				t.Errorf("recorded %q, %v", got, err)
			}
		})
	}
}

// TestTrust asks a machine for its key, records that, and connects.
func TestTrust(t *testing.T) {
	s := startSSHD(t)
	cfg := s.config()
	cfg.KnownHosts, cfg.Strict, cfg.User = filepath.Join(t.TempDir(), "known_hosts"), true, "nobody-there"
	shown, err := ShownKey(t.Context(), cfg)
	if err != nil || shown.Fingerprint != ssh.FingerprintSHA256(hostKey(t, s)) || shown.Address != cfg.withDefaults().Endpoint() {
		t.Fatalf("%+v, %v", shown, err)
	}
	known := func() []HostKey {
		keys, err := ReadHostKeys(cfg.KnownHosts)
		if err != nil {
			t.Fatal(err)
		}
		return keys.Of(cfg)
	}
	if known := known(); len(known) > 0 {
		t.Errorf("known before: %v", known)
	}
	for range 2 {
		if err := Trust(cfg.KnownHosts, []HostKey{shown}); err != nil {
			t.Fatal(err)
		}
	}
	if known := known(); len(known) != 1 || known[0] != shown {
		t.Errorf("known: %v", known)
	}
	cfg.User = s.config().User
	s.connect(t, cfg)
	revoked, second := shown, shown
	revoked.Address, revoked.Name, second.Address = "10.0.0.1:22", "node1", "10.0.0.2:22"
	other := newKey(t, filepath.Join(t.TempDir(), "other"))
	revoked.Key = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(other)))
	write(t, cfg.KnownHosts, "@revoked * "+revoked.Key+"\n", 0o600)
	err = Trust(cfg.KnownHosts, []HostKey{revoked, second})
	if err == nil || !strings.Contains(err.Error(), "node1 (10.0.0.1:22)") {
		t.Errorf("one is revoked: %v", err)
	}
	if text, err := os.ReadFile(cfg.KnownHosts); err != nil || !strings.Contains(string(text), "10.0.0.2 ") {
		t.Errorf("the other is not recorded: %q, %v", text, err)
	}
	cfg.Port = 1
	if _, err := ShownKey(t.Context(), cfg); !errors.Is(err, ErrUnreachable) {
		t.Errorf("nobody there: %v", err)
	}
}

// A host certificate is as good as its authority.
func TestHostCertificate(t *testing.T) {
	dir := t.TempDir()
	run(t, "", "ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", filepath.Join(dir, "ca")) // of another type than the key that it signs
	text, err := os.ReadFile(filepath.Join(dir, "ca.pub"))
	if err != nil {
		t.Fatal(err)
	}
	ca, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		t.Fatal(err)
	}
	s := startSSHD(t, "HostCertificate "+filepath.Join(dir, "host-cert.pub"))
	write(t, filepath.Join(dir, "host.pub"), string(ssh.MarshalAuthorizedKey(hostKey(t, s))), 0o600)
	run(t, "", "ssh-keygen", "-q", "-s", filepath.Join(dir, "ca"), "-h", "-I", "id", "-n", "127.0.0.1", filepath.Join(dir, "host.pub"))
	cfg := s.config()
	output(t, s.connect(t, cfg), Cmd{Line: "true"}) // the plain key is recorded
	cfg.KnownHosts = filepath.Join(dir, "known_hosts")
	write(t, cfg.KnownHosts, fmt.Sprintf("@cert-authority [127.0.0.1]:%d %s", s.port, ssh.MarshalAuthorizedKey(ca)), 0o600)
	output(t, s.connect(t, cfg), Cmd{Line: "true"})
	if shown, err := ShownKey(t.Context(), cfg); err != nil || shown.Key != "" {
		t.Errorf("asks about %v, %v, which the authority has signed", shown, err)
	}
	write(t, cfg.KnownHosts, fmt.Sprintf("@cert-authority [127.0.0.1]:%d %s", s.port, ssh.MarshalAuthorizedKey(hostKey(t, s))), 0o600)
	_, err = SSH(context.Background(), cfg)
	goldenError(t, err, strconv.Itoa(s.port), "PORT", cfg.KnownHosts, "FILE", ssh.FingerprintSHA256(hostKey(t, s)), "KEY")
}

// Many machines that are seen for the first time at once are all recorded, once.
func TestHostKeysAtOnce(t *testing.T) {
	const hosts = 100
	file := filepath.Join(t.TempDir(), "known_hosts")
	var g errgroup.Group
	for range hosts {
		s := sshtest.Start(t, sshtest.Config{})
		cfg := SSHConfig{Address: s.Address, Port: s.Port, KnownHosts: file}
		for range 2 {
			g.Go(func() error {
				c, err := SSH(context.Background(), cfg)
				if err != nil {
					return err
				}
				return c.Close()
			})
		}
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(file)
	if n := strings.Count(string(text), "\n"); n != hosts {
		t.Errorf("%d lines, %v", n, err)
	}
}

// Another kubexm is in the middle of a line: it is waited for.
func TestHostKeyHalfWritten(t *testing.T) {
	cfg := SSHConfig{Name: "node1", Address: "192.0.2.1", Port: 22, KnownHosts: filepath.Join(t.TempDir(), "known_hosts")}
	const line = "192.0.2.1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJMUZEWpUjQpNRBDpTSSjhBEYdMlaT5YYjJpLpBBnbzU\n"
	f, err := os.Create(cfg.KnownHosts)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err == nil {
		_, err = f.WriteString(line[:50])
	}
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() {
		_, _ = f.WriteString(line[50:])
		_ = f.Close() // and with it goes the lock
	})
	k, err := newHostKeys(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(k.lines()); n != 1 {
		t.Errorf("%d keys are known", n)
	}
}

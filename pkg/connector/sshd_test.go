package connector

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/kubexm/kubexm/pkg/connector/sshtest"
)

const sshdPath = "/usr/sbin/sshd"

// sshd is OpenSSH's server: one process per connection, as under inetd, so that
// nothing is left when the connections end.
type sshd struct {
	t        testing.TB
	dir      string
	address  string
	port     int
	listener net.Listener
	latency  time.Duration
	wg       sync.WaitGroup
	accepted atomic.Int32

	mu    sync.Mutex
	conns []net.Conn
}

// startSSHD starts a server that lets the key of newKey and the password of users
// in, with more lines of configuration.
func startSSHD(t testing.TB, config ...string) *sshd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: sshd needs root")
	}
	if _, err := os.Stat(sshdPath); err != nil {
		t.Skip("skipped: OpenSSH's server is missing; to install it run: make deps")
	}
	s := &sshd{t: t, dir: sharedDir(t)}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		t.Fatal(err)
	}
	newKey(t, filepath.Join(s.dir, "host"))
	public := newKey(t, s.key())
	write(t, filepath.Join(s.dir, "authorized"), string(ssh.MarshalAuthorizedKey(public)), 0o644)
	lines := append(config, // the first of two wins
		"HostKey "+filepath.Join(s.dir, "host"),
		"AuthorizedKeysFile "+filepath.Join(s.dir, "authorized"),
		"StrictModes no", "UsePAM yes", "SetEnv SHLVL=2", // bash then reads no ~/.bashrc
		"PermitRootLogin yes", "PasswordAuthentication yes", "UseDNS no",
	)
	write(t, filepath.Join(s.dir, "config"), strings.Join(lines, "\n")+"\n", 0o600)
	var err error
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.address = "127.0.0.1"
	s.port = s.listener.Addr().(*net.TCPAddr).Port
	s.wg.Go(s.accept)
	t.Cleanup(s.stop)
	return s
}

func (s *sshd) key() string { return filepath.Join(s.dir, "key") }

func (s *sshd) stop() {
	s.listener.Close()
	s.cut()
	s.wg.Wait()
}

// cut ends all connections, like a cable that is pulled and put back.
func (s *sshd) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

func (s *sshd) accept() {
	for {
		outer, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.accepted.Add(1)
		s.mu.Lock()
		s.conns = append(s.conns, outer)
		s.mu.Unlock()
		near, far, err := loopback()
		if err != nil {
			s.t.Error(err)
			return
		}
		cmd := exec.Command(sshdPath, "-i", "-f", filepath.Join(s.dir, "config"), "-E", filepath.Join(s.dir, "log"))
		cmd.Stdin, cmd.Stdout = far, far
		err = cmd.Start()
		far.Close()
		if err != nil {
			s.t.Error(err)
			return
		}
		s.wg.Go(func() { sshtest.Relay(outer, near, s.latency) })
		s.wg.Go(func() { cmd.Wait() })
	}
}

// loopback returns two ends of a TCP connection, one for a child process.
func loopback() (net.Conn, *os.File, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	far, err := l.Accept()
	if err != nil {
		return nil, nil, err
	}
	defer far.Close()
	f, err := far.(*net.TCPConn).File()
	return near, f, err
}

// config returns what a user needs to log in as root by key.
func (s *sshd) config() SSHConfig {
	return SSHConfig{
		Name: "node1", Address: s.address, Port: s.port,
		PrivateKeyPath: s.key(), KnownHosts: filepath.Join(s.dir, "known_hosts"),
	}
}

// connect connects and closes at the end of the test.
func (s *sshd) connect(t testing.TB, cfg SSHConfig) Connector {
	t.Helper()
	c, err := SSH(context.Background(), cfg)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		t.Fatalf("%v\n%s", err, log)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// sharedDir returns a directory that other users can look into.
func sharedDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func write(t testing.TB, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// newKey writes a new private key.
func newKey(t testing.TB, path string) ssh.PublicKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, string(pem.EncodeToMemory(block)), 0o600)
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer.PublicKey()
}

// account is a user of this machine that lives as long as the test.
type account struct{ name, password string }

// newAccount adds a user, who is deleted after the servers that are started later
// in the test have ended. Lines of sudoers say USER for the name.
func newAccount(t testing.TB, sudoers ...string) account {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: adding users needs root")
	}
	a := account{fmt.Sprintf("kxt-%d-%d", os.Getpid(), accounts.Add(1)), "s3cret 'pass\"word\\"}
	lockAccounts(t, func() {
		run(t, "", "useradd", "--no-create-home", "--home-dir", "/tmp", "--shell", "/bin/sh", a.name)
		run(t, a.name+":"+a.password+"\n", "chpasswd")
	})
	t.Cleanup(func() { lockAccounts(t, func() { a.remove(t) }) })
	if len(sudoers) > 0 {
		file := "/etc/sudoers.d/" + a.name
		t.Cleanup(func() { os.Remove(file) })
		write(t, file, strings.ReplaceAll(strings.Join(sudoers, "\n"), "USER", a.name)+"\n", 0o440)
	}
	return a
}

// remove deletes the user, as soon as the last of his processes is gone.
func (a account) remove(t testing.TB) {
	for try := 0; ; try++ {
		exec.Command("pkill", "-KILL", "-u", a.name).Run() // fails if there is none
		out, err := exec.Command("userdel", a.name).CombinedOutput()
		if err == nil {
			return
		}
		if try == 100 {
			t.Errorf("userdel %s: %v: %s", a.name, err, out)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

var accounts atomic.Int32

// lockAccounts keeps other test processes from changing /etc/passwd meanwhile.
func lockAccounts(t testing.TB, f func()) {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "kubexm-test-accounts.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	f()
}

func run(t testing.TB, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// alive reports whether a process runs.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

package connector

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// ErrHostKey is a machine that does not prove to be the one that is known.
var ErrHostKey = errors.New("host key refused")

// hostKeys checks the key of one machine against a known_hosts file and those of
// OpenSSH, and records it in the first when no file has it.
type hostKeys struct {
	cfg     SSHConfig
	db      *knownhosts.HostKeyDB // nil once the machine has proved itself: a thousand connections do not keep a thousand copies
	refused error                 // what check returned
}

func newHostKeys(c SSHConfig) (*hostKeys, error) {
	path := c.KnownHosts
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		var f *os.File
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600); err == nil {
			f.Close()
		}
	}
	k := &hostKeys{cfg: c}
	if err == nil {
		err = k.read()
	}
	if err != nil {
		return nil, fault.Advise(durable.Advise(fmt.Errorf("reading known host keys: %w", err)), "correct the file, or remove it: keys are then recorded again")
	}
	return k, nil
}

// others are the files in which OpenSSH looks, for machines that the operator knows already.
var others = []string{"~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts"}

// read loads the files while nobody is in the middle of a line.
func (k *hostKeys) read() (err error) {
	recording.RLock()
	defer recording.RUnlock()
	f, err := os.Open(k.cfg.KnownHosts)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
		return fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return k.load()
}

// load reads what is known of machines. A file of others that cannot be read is left out.
func (k *hostKeys) load() (err error) {
	files := []string{k.cfg.KnownHosts}
	for _, f := range others {
		if f = home(f); f == k.cfg.KnownHosts {
			continue
		}
		if _, err := knownhosts.NewDB(f); err == nil {
			files = append(files, f)
		}
	}
	k.db, err = knownhosts.NewDB(files...)
	return err
}

// algorithms returns the kinds of key to ask for: those on record, else in the
// order of OpenSSH. Host certificates are asked for only where an authority is on
// record.
func (k *hostKeys) algorithms() []string {
	if known := k.db.HostKeyAlgorithms(k.cfg.address()); len(known) > 0 {
		return known
	}
	return []string{
		ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
		ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
	}
}

// check is an ssh.HostKeyCallback. It is called again when a long connection
// changes its session keys.
func (k *hostKeys) check(address string, remote net.Addr, key ssh.PublicKey) error {
	if k.db == nil {
		if k.refused = k.read(); k.refused != nil {
			return k.refused
		}
	}
	if k.refused = k.verify(address, remote, key); k.refused == nil {
		k.db = nil
	}
	return k.refused
}

func (k *hostKeys) verify(address string, remote net.Addr, key ssh.PublicKey) error {
	err := k.db.HostKeyCallback()(address, remote, key)
	if knownhosts.IsHostUnknown(err) {
		err = k.record(address, remote, key)
	}
	var changed *xknownhosts.KeyError
	var revoked *xknownhosts.RevokedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &revoked):
		return fault.Advise(fmt.Errorf("%w: the machine shows %s, which is marked @revoked at %s:%d", ErrHostKey,
			fingerprint(key), revoked.Revoked.Filename, revoked.Revoked.Line), "do not trust the machine: give it a new host key")
	case errors.As(err, &changed):
		return k.changed("the machine shows " + fingerprint(key))
	}
	return fault.Advise(fmt.Errorf("%w: %w", ErrHostKey, err), "see "+k.cfg.KnownHosts)
}

// changed is the error for a machine that showed something else than what is on record.
func (k *hostKeys) changed(shown string) error {
	var known []string
	file := k.cfg.KnownHosts
	for _, l := range k.lines() {
		known, file = append(known, fmt.Sprintf("%s:%d has %s", l.Filename, l.Line, fingerprint(l.Key))), l.Filename
	}
	host := knownhosts.Normalize(k.cfg.address())
	return fault.Advise(
		fmt.Errorf("%w: %s, but %s", ErrHostKey, shown, strings.Join(known, ", ")),
		fmt.Sprintf("if the machine was reinstalled, run: ssh-keygen -R '%s' -f %s; if not, someone may be intercepting the connection: "+
			"compare with ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub on the machine's console", host, file))
}

// lines returns what is on record for the machine.
func (k *hostKeys) lines() []xknownhosts.KnownKey {
	var e *xknownhosts.KeyError
	errors.As(k.db.HostKeyCallback()(k.cfg.address(), &net.TCPAddr{IP: net.IPv4zero}, noKey{}), &e)
	if e == nil {
		return nil
	}
	return e.Want
}

// noKey equals no key on record.
type noKey struct{ ssh.PublicKey }

func (noKey) Type() string    { return "none" }
func (noKey) Marshal() []byte { return nil }

func fingerprint(key ssh.PublicKey) string { return key.Type() + " " + ssh.FingerprintSHA256(key) }

// recording keeps this process to one thread that waits in front of the file lock to write.
var recording sync.RWMutex

// record adds the key of a machine that was unknown a moment ago: another
// goroutine or process may have been first.
func (k *hostKeys) record(address string, remote net.Addr, key ssh.PublicKey) (err error) {
	recording.Lock()
	defer recording.Unlock()
	f, err := os.OpenFile(k.cfg.KnownHosts, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	if err := k.load(); err != nil {
		return err
	}
	if err := k.db.HostKeyCallback()(address, remote, key); !knownhosts.IsHostUnknown(err) {
		return err
	}
	line := knownhosts.Line([]string{address}, key) + "\n"
	if end, err := f.Seek(0, 2); err == nil && end > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, end-1); err == nil && last[0] != '\n' {
			line = "\n" + line
		}
	}
	_, err = f.WriteString(line)
	return err
}

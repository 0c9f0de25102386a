package connector

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// hostKeys checks the key of one machine against the configured one, a known_hosts file and those of OpenSSH. Where none has it, it
// records the key in the known_hosts file, unless it is to be strict.
type hostKeys struct {
	cfg     SSHConfig
	db      *knownhosts.HostKeyDB // nil once the machine has proved itself: a thousand connections do not keep a thousand copies
	copied  map[string]string     // the files whose copies without bad lines were read
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
		return nil, fault.Advise(durable.Advise(fmt.Errorf("reading known host keys: %w", err)), "make the file readable; without it, machines that it names could be exchanged unnoticed")
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

// load reads what is known of machines. Lines that are not well formed are skipped, as OpenSSH does; a file that cannot be read is an error.
func (k *hostKeys) load() (err error) {
	files := []string{k.cfg.KnownHosts}
	for _, f := range others {
		if f = home(f); f == k.cfg.KnownHosts {
			continue
		}
		if _, err := os.Stat(f); !errors.Is(err, fs.ErrNotExist) {
			files = append(files, f)
		}
	}
	if k.db, err = knownhosts.NewDB(files...); err == nil {
		return nil
	}
	dir, err := os.MkdirTemp("", "kubexm-known-hosts-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	k.copied = map[string]string{}
	for i, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		files[i] = filepath.Join(dir, strconv.Itoa(i))
		k.copied[files[i]] = f
		if err := os.WriteFile(files[i], wellFormed(text), 0o600); err != nil {
			return err
		}
	}
	k.db, err = knownhosts.NewDB(files...)
	return err
}

// wellFormed empties the lines of a known_hosts file that are none.
func wellFormed(text []byte) []byte {
	lines := bytes.Split(text, []byte("\n"))
	for i, l := range lines {
		marker, hosts, _, _, _, err := ssh.ParseKnownHosts(l)
		if err != nil || !slices.Contains([]string{"", "cert-authority", "revoked"}, marker) || slices.ContainsFunc(hosts, malformed) {
			lines[i] = nil
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

// hashed is a host name in a known_hosts file that only those recognize who know it.
var hashed = regexp.MustCompile(`^\|1\|[A-Za-z0-9+/]{27}=\|[A-Za-z0-9+/]{27}=$`)

// malformed reports whether a pattern stands for no host.
func malformed(pattern string) bool {
	name := strings.TrimPrefix(pattern, "!")
	switch {
	case name == "":
		return pattern != ""
	case name[0] == '@': // another marker
		return true
	case name[0] == '|':
		return !hashed.MatchString(name)
	case name[0] == '[':
		_, _, err := net.SplitHostPort(name)
		return err != nil
	}
	return false
}

// algorithms returns the kinds of key to ask for: that of the configured key, those on record, else in the
// order of OpenSSH. Host certificates are asked for only where an authority is on
// record, and then first.
func (k *hostKeys) algorithms() []string {
	switch key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(k.cfg.HostKey)); {
	case err == nil && key.Type() == ssh.KeyAlgoRSA:
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	case err == nil:
		return []string{key.Type()}
	}
	all := []string{
		ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
		ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
	}
	keys := k.db.HostKeys(k.cfg.Endpoint())
	own := withoutAuthorities(keys)
	switch known := k.db.HostKeyAlgorithms(k.cfg.Endpoint()); {
	case len(keys) == 0 || k.cfg.HostKey != "":
		return all
	case len(own) == 0:
		return slices.Concat(certificates, all) // an authority signs keys of all types, but not all machines
	case len(own) < len(keys):
		return slices.Concat(known, certificates)
	default:
		return known
	}
}

// withoutAuthorities returns the keys of a machine itself.
func withoutAuthorities(keys []knownhosts.PublicKey) []knownhosts.PublicKey {
	return slices.DeleteFunc(slices.Clone(keys), func(key knownhosts.PublicKey) bool { return key.Cert })
}

// unknown reports whether err, of a look into what is on record, means that a machine is not known: an authority says nothing of a key that none has
// signed.
func (k *hostKeys) unknown(address string, key ssh.PublicKey, err error) bool {
	var known *xknownhosts.KeyError
	if _, signed := key.(*ssh.Certificate); signed || !errors.As(err, &known) {
		return knownhosts.IsHostUnknown(err)
	}
	return len(withoutAuthorities(k.db.HostKeys(address))) == 0
}

// certificates are the types of certified host keys.
var certificates = []string{
	ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01, ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
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
	var changed *xknownhosts.KeyError
	var revoked *xknownhosts.RevokedError
	switch unknown := k.unknown(address, key, err); {
	case errors.As(err, &revoked): // whatever is configured
	case k.cfg.HostKey != "":
		err = k.configured(key)
	case unknown && k.cfg.Strict:
		return fault.Advise(fmt.Errorf("%w: it is not known yet, and shows %s", ErrHostKey, fingerprint(key)), "compare that with "+
			"ssh-keygen -lf /etc/ssh/ssh_host_"+kind(key)+"_key.pub on the machine's console; then record it: kubexm hosts trust, or hostKey in the configuration")
	case unknown:
		err = k.record(address, remote, key)
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &revoked):
		return fault.Advise(fmt.Errorf("%w: the machine shows %s, which is marked @revoked at %s:%d", ErrHostKey,
			fingerprint(key), k.original(revoked.Revoked.Filename), revoked.Revoked.Line), "do not trust the machine: give it a new host key")
	case errors.As(err, &changed):
		return k.changed("the machine shows " + fingerprint(key))
	}
	if _, ok := key.(*ssh.Certificate); ok {
		err = fault.Advise(err, "compare the certificate, ssh-keygen -Lf /etc/ssh/ssh_host_*-cert.pub on the machine's console, with the @cert-authority lines in "+
			k.cfg.KnownHosts+" and "+strings.Join(others, ", "))
	}
	return fmt.Errorf("%w: %w", ErrHostKey, err)
}

// configured compares the key with the one that is configured.
func (k *hostKeys) configured(key ssh.PublicKey) error {
	want := k.cfg.HostKey
	if is, _, _, _, err := ssh.ParseAuthorizedKey([]byte(want)); err == nil {
		want = ssh.FingerprintSHA256(is)
	}
	if ssh.FingerprintSHA256(key) == want {
		return nil
	}
	return fault.Advise(fmt.Errorf("the machine shows %s, but its hostKey in the configuration is %s", fingerprint(key), want), "if the machine was reinstalled, "+
		"or the fingerprint is of a key of another type, correct hostKey; if not, someone may be intercepting the connection: "+
		"compare with ssh-keygen -lf /etc/ssh/ssh_host_"+kind(key)+"_key.pub on the machine's console")
}

// kind is what sshd's files call the type of a key.
func kind(key ssh.PublicKey) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(key.Type(), "ssh-"), "sk-"), "-")
	return name
}

// original is the file of which another one is a copy.
func (k *hostKeys) original(file string) string { return cmp.Or(k.copied[file], file) }

// changed is the error for a machine that showed something else than what is on record.
func (k *hostKeys) changed(shown string) error {
	var known []string
	file := k.cfg.KnownHosts
	for _, l := range k.lines() {
		file = k.original(l.Filename)
		known = append(known, fmt.Sprintf("%s:%d has %s", file, l.Line, fingerprint(l.Key)))
	}
	host := knownhosts.Normalize(k.cfg.Endpoint())
	return fault.Advise(
		fmt.Errorf("%w: %s, but %s", ErrHostKey, shown, strings.Join(known, ", ")),
		fmt.Sprintf("if the machine was reinstalled, run: ssh-keygen -R '%s' -f %s; if not, someone may be intercepting the connection: "+
			"compare with ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub on the machine's console", host, file))
}

// lines returns what is on record for the machine.
func (k *hostKeys) lines() []xknownhosts.KnownKey {
	var e *xknownhosts.KeyError
	errors.As(k.db.HostKeyCallback()(k.cfg.Endpoint(), &net.TCPAddr{IP: net.IPv4zero}, noKey{}), &e)
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

// HostKey is the key with which a machine proves to be the one that is known.
type HostKey struct {
	Name        string `json:"name"`    // of the host
	Address     string `json:"address"` // with its port
	Key         string `json:"key"`     // as in known_hosts: "ssh-ed25519 AAAA..."; empty where the fingerprint alone is known
	Fingerprint string `json:"fingerprint"`
}

// HostKeys are those on record in a known_hosts file and in those of OpenSSH.
type HostKeys struct{ db *knownhosts.HostKeyDB }

// Type is that of the key, like ssh-ed25519.
func (h HostKey) Type() string {
	kind, _, _ := strings.Cut(h.Key, " ")
	return kind
}

// String is like "node1 10.0.0.1:22 ssh-ed25519 SHA256:...".
func (h HostKey) String() string {
	return strings.Join([]string{h.Name, h.Address, h.Type(), h.Fingerprint}, " ")
}

// ReadHostKeys reads what is known of machines.
func ReadHostKeys(knownHosts string) (*HostKeys, error) {
	k, err := newHostKeys(SSHConfig{KnownHosts: knownHosts})
	if err != nil {
		return nil, err
	}
	return &HostKeys{k.db}, nil
}

// Of returns the keys with which a machine may prove itself: that of the configuration, else those on record; none where it is not known. Authorities are
// not told.
func (h *HostKeys) Of(cfg SSHConfig) (all []HostKey) {
	cfg = cfg.withDefaults()
	if key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(cfg.HostKey)); err == nil {
		return []HostKey{cfg.hostKey(key)}
	}
	if cfg.HostKey != "" { // the fingerprint alone is known
		return []HostKey{{Name: cfg.Name, Address: cfg.Endpoint(), Fingerprint: cfg.HostKey}}
	}
	for _, key := range withoutAuthorities(h.db.HostKeys(cfg.Endpoint())) {
		all = append(all, cfg.hostKey(key.PublicKey))
	}
	return all
}

func (c SSHConfig) hostKey(key ssh.PublicKey) HostKey {
	return HostKey{c.Name, c.Endpoint(), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), ssh.FingerprintSHA256(key)}
}

// errSeen ends a connection that only asked for the host key.
var errSeen = errors.New("host key seen")

// ShownKey asks a machine for its host key, without logging in. Nothing is recorded. The key is empty where the machine has a
// certificate of a known authority.
func ShownKey(ctx context.Context, cfg SSHConfig) (HostKey, error) {
	cfg = cfg.withDefaults()
	k, err := newHostKeys(cfg)
	if err != nil {
		return HostKey{}, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, cfg.ConnectTimeout, errTimeout)
	defer cancel()
	raw, err := cfg.dial(limited)
	if err != nil {
		return HostKey{}, cfg.unreachable(limited, err)
	}
	defer raw.Close()
	defer context.AfterFunc(limited, func() { raw.Close() })()
	var shown HostKey
	_, _, _, err = ssh.NewClientConn(raw, cfg.Endpoint(), &ssh.ClientConfig{
		HostKeyCallback: func(address string, remote net.Addr, key ssh.PublicKey) error {
			if _, is := key.(*ssh.Certificate); is {
				return cmp.Or(k.verify(address, remote, key), errSeen)
			}
			shown = cfg.hostKey(key)
			return errSeen
		},
		HostKeyAlgorithms: k.algorithms(),
	})
	if errors.Is(err, errSeen) {
		return shown, nil
	}
	return HostKey{}, cfg.handshakeError(limited, err, &auth{cfg: cfg}, k)
}

// Trust records keys that machines have shown, in a known_hosts file. The error has those that could not be.
func Trust(knownHosts string, shown []HostKey) error {
	k, err := newHostKeys(SSHConfig{KnownHosts: knownHosts})
	if err != nil {
		return err
	}
	var all []error
	for _, h := range shown {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(h.Key))
		if err == nil {
			err = k.record(h.Address, &net.TCPAddr{IP: net.IPv4zero}, key)
		}
		if err != nil {
			all = append(all, fmt.Errorf("recording the host key of %s (%s): %w", h.Name, h.Address, err))
		}
	}
	return errors.Join(all...)
}

// Forget removes what a known_hosts file has of a machine at an address with its port: another one has taken its place.
func Forget(knownHosts, address string) (err error) {
	recording.Lock()
	defer recording.Unlock()
	f, err := os.Open(knownHosts)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", knownHosts, err)
	}
	was, err := os.ReadFile(knownHosts)
	if err != nil {
		return err
	}
	var kept []byte
	for line := range bytes.Lines(was) {
		if _, hosts, _, _, _, err := ssh.ParseKnownHosts(line); err == nil && slices.Contains(hosts, knownhosts.Normalize(address)) {
			continue
		}
		kept = append(kept, line...)
	}
	if len(kept) == len(was) {
		return nil
	}
	return durable.Write(knownHosts, kept)
}

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
	if err := k.db.HostKeyCallback()(address, remote, key); !k.unknown(address, key, err) {
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

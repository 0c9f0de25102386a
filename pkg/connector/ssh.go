package connector

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/kubexm/kubexm/pkg/util/secret"
)

// SSHConfig says how to reach a machine over SSH. The zero value of every field
// but Address is fit for use.
type SSHConfig struct {
	Name           string        // the host's name in messages; default: Address
	Address        string        // host name or IP address
	Port           int           // default: 22
	User           string        // default: root
	Password       secret.Secret // for login, also by keyboard-interactive
	PrivateKeyPath string        // default: the agent's keys, then ~/.ssh/id_{ed25519,ecdsa,rsa}
	Passphrase     secret.Secret // of the private key
	SudoPassword   secret.Secret // default: Password
	Bastion        Connector     // the machine to go through; nil: none. Not closed by Close
	KnownHosts     string        // file of host keys; default: ~/.ssh/known_hosts
	HostKey        string        // the public key that the machine must show, or its fingerprint "SHA256:..."; default: one on record, or the first one shown
	Strict         bool          // no key is recorded: one that is not known is refused
	ConnectTimeout time.Duration // for TCP, key exchange and login; default: 10s
	KeepAlive      time.Duration // silence after which the machine is asked for a sign of life, four times; default: 15s
	MaxSessions    int           // commands at once on the connection; default: 8, sshd's own limit is 10
}

func (c SSHConfig) withDefaults() SSHConfig {
	c.Name = cmp.Or(c.Name, c.Address)
	c.Port = cmp.Or(c.Port, 22)
	c.User = cmp.Or(c.User, "root")
	c.SudoPassword = cmp.Or(c.SudoPassword, c.Password)
	c.KnownHosts = home(cmp.Or(c.KnownHosts, "~/.ssh/known_hosts"))
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 10*time.Second)
	c.KeepAlive = cmp.Or(c.KeepAlive, 15*time.Second)
	c.MaxSessions = cmp.Or(c.MaxSessions, 8)
	return c
}

// Endpoint is the address with the port.
func (c SSHConfig) Endpoint() string {
	return net.JoinHostPort(c.Address, strconv.Itoa(cmp.Or(c.Port, 22)))
}

// String names the machine as users know it.
func (c SSHConfig) String() string { return fmt.Sprintf("%s (%s@%s)", c.Name, c.User, c.Endpoint()) }

type sshConnector struct {
	cfg SSHConfig
	*life
	mu   sync.Mutex
	last *attempt
}

// attempt is one try to connect; its conn and err are set when done is closed.
type attempt struct {
	done chan struct{}
	conn *conn
	err  error
}

// SSH connects to a machine. The connection is shared by all commands, and made
// again by the next command after it was lost.
//
// Errors wrap ErrUnreachable, ErrLogin or ErrHostKey and carry advice; those that
// trying again may cure are transient.
func SSH(ctx context.Context, cfg SSHConfig) (Connector, error) {
	s := &sshConnector{cfg: cfg.withDefaults(), life: newLife()}
	if _, err := s.connect(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *sshConnector) Exec(ctx context.Context, c Cmd) error {
	ctx, conn, leave, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return conn.exec(ctx, c)
}

func (s *sshConnector) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, c, leave, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	conn, err := c.client.DialContext(ctx, network, address)
	if err != nil {
		return nil, c.dialError(ctx, network, address, err)
	}
	return conn, nil
}

func (s *sshConnector) Listen(ctx context.Context) (net.Listener, error) {
	_, c, leave, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	l, err := c.client.Listen("tcp", freePort)
	if err != nil {
		return nil, c.listenError(err)
	}
	return l, nil
}

// use returns the connection, and a context that ends with the connector, until leave is called.
func (s *sshConnector) use(ctx context.Context) (within context.Context, c *conn, leave func(), err error) {
	within, leave, err = s.enter(ctx)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", s.cfg.Name, err)
	}
	if c, err = s.connect(within); err != nil {
		leave()
		return nil, nil, nil, err
	}
	return within, c, leave, nil
}

func (s *sshConnector) Close() error {
	s.life.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if <-s.last.done; s.last.conn != nil {
		s.last.conn.client.Close()
		<-s.last.conn.lost
	}
	return nil
}

// connect returns the connection. If there is none that lives it makes one, once
// for all who ask meanwhile.
func (s *sshConnector) connect(ctx context.Context) (*conn, error) {
	s.mu.Lock()
	a := s.last
	if a == nil || a.failed() {
		a = &attempt{done: make(chan struct{})}
		s.last = a
		go func() {
			defer close(a.done)
			a.conn, a.err = s.cfg.open(s.done)
		}()
	}
	s.mu.Unlock()
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connecting to %s: %w", s.cfg, context.Cause(ctx))
	}
}

// failed reports whether nothing is to be expected of a any more.
func (a *attempt) failed() bool {
	select {
	case <-a.done:
		return a.err != nil || a.conn.err() != nil
	default:
		return false
	}
}

// conn is one SSH connection.
type conn struct {
	machine
	cfg    SSHConfig
	client *ssh.Client
	pool   *pool
	lost   chan struct{} // closed when the connection is over; then cause is set
	cause  error
}

func (c *conn) err() error {
	select {
	case <-c.lost:
		return c.cause
	default:
		return nil
	}
}

// open connects and logs in.
func (c SSHConfig) open(ctx context.Context) (*conn, error) {
	auth, err := newAuth(c)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", c, err)
	}
	defer auth.close()
	keys, err := newHostKeys(c)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", c, err)
	}
	limited, cancel := context.WithTimeoutCause(ctx, c.ConnectTimeout, errTimeout)
	defer cancel()
	raw, err := c.dial(limited)
	if err != nil {
		return nil, c.unreachable(limited, err)
	}
	live := &liveConn{Conn: raw}
	stop := context.AfterFunc(limited, func() { raw.Close() })
	sc, chans, reqs, err := ssh.NewClientConn(live, c.Endpoint(), &ssh.ClientConfig{
		Config:            ssh.Config{Ciphers: ciphers},
		User:              c.User,
		Auth:              auth.methods,
		HostKeyCallback:   keys.check,
		HostKeyAlgorithms: keys.algorithms(),
	})
	if !stop() && err == nil {
		err = context.Cause(limited)
	}
	if err != nil {
		raw.Close()
		return nil, c.handshakeError(limited, err, auth, keys)
	}
	n := &conn{cfg: c, client: ssh.NewClient(sc, chans, reqs), pool: newPool(c.MaxSessions), lost: make(chan struct{})}
	n.machine = machine{name: c.Name, user: c.User, root: c.User == "root", password: c.SudoPassword, launch: n.session}
	go live.watch(n)
	return n, nil
}

// dial connects to the machine's sshd, through the bastion if there is one.
func (c SSHConfig) dial(ctx context.Context) (net.Conn, error) {
	if c.Bastion != nil {
		return c.Bastion.Dial(ctx, "tcp", c.Endpoint())
	}
	return new(net.Dialer).DialContext(ctx, "tcp", c.Endpoint())
}

// ciphers in order of preference: AES-GCM is the fastest where CPUs have AES.
var ciphers = []string{
	ssh.CipherAES128GCM, ssh.CipherAES256GCM, ssh.CipherChaCha20Poly1305,
	ssh.CipherAES128CTR, ssh.CipherAES192CTR, ssh.CipherAES256CTR,
}

package connector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

var (
	// ErrUnreachable is a machine that no connection could be made to.
	ErrUnreachable = errors.New("not reachable")
	// ErrLogin is a login that the machine refused, or that could not be tried.
	ErrLogin = errors.New("cannot log in")

	errTimeout = errors.New("no answer in time")
)

// unreachable explains why the machine's port could not be dialed.
func (c SSHConfig) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("connecting to %s: %w", c, context.Cause(ctx))
	}
	var dns *net.DNSError
	why, advice := "", "check the address and port, and that the machine is up"
	final := c.Bastion != nil && ctx.Err() == nil && !fault.IsTransient(err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		why, advice = "connection refused", fmt.Sprintf("check that sshd runs and listens on port %d", c.Port)
	case errors.As(err, &dns) && dns.IsNotFound:
		why, advice, final = "no such host name", "correct the address, or add the name to DNS or /etc/hosts of this machine", true
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		why, advice = "no route to it", "check the address, the machine's network and the routes of this machine"
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded): // whichever clock was quicker
		why, advice = fmt.Sprintf("no answer in %v", c.ConnectTimeout), "check the address, firewalls, and that the machine is up"
	}
	if why != "" {
		err = fmt.Errorf("%s: %w", why, err)
	}
	err = fault.Advise(fmt.Errorf("connecting to %s: %w: %w", c, ErrUnreachable, err), advice)
	if final {
		return err
	}
	return fault.Away(err)
}

// handshakeError explains why the machine was reached and still not entered.
func (c SSHConfig) handshakeError(ctx context.Context, err error, a *auth, k *hostKeys) error {
	var algorithms *ssh.AlgorithmNegotiationError
	switch {
	case k.refused != nil:
		err = k.refused
	case errors.As(err, &algorithms) && algorithms.What == "host key" && len(k.lines()) > 0:
		err = k.changed("the machine has only " + strings.Join(algorithms.RequestedAlgorithms, ", "))
	case errors.As(err, &algorithms):
		err = fault.Advise(err, "the machine's sshd is too old or too strict: allow a current algorithm in its sshd_config")
	case strings.Contains(err.Error(), "unable to authenticate"), strings.Contains(err.Error(), "Too many authentication failures"):
		err = a.refused()
	case errors.Is(context.Cause(ctx), errTimeout):
		err = fault.Away(fault.Advise(fmt.Errorf("%w: no SSH login in %v", ErrUnreachable, c.ConnectTimeout),
			"check the machine's load and that it is sshd which answers there"))
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		err = fault.Away(fault.Advise(fmt.Errorf("%w: %w", ErrUnreachable, err),
			"check that it is sshd which answers there, and its limits (MaxStartups)"))
	}
	return fmt.Errorf("connecting to %s: %w", c, err)
}

// refused tells what was tried to log in, and what could not be.
func (a *auth) refused() error {
	err := fmt.Errorf("%w: there is no key, agent or password to try", ErrLogin)
	switch {
	case len(a.tried) > 0:
		err = fmt.Errorf("%w: the machine refused %s", ErrLogin, strings.Join(a.tried, ", "))
	case !a.cfg.Password.IsZero():
		err = fmt.Errorf("%w: the machine takes no passwords, and there is no key or agent to try", ErrLogin)
	}
	if len(a.skipped) > 0 {
		err = fmt.Errorf("%w; not tried: %s", err, strings.Join(a.skipped, "; "))
	}
	switch {
	case a.tested:
		return fault.Advise(err, "check user and password; \"PasswordAuthentication yes\" must be in sshd_config, and for root \"PermitRootLogin yes\"")
	case len(a.signers) > 0:
		return fault.Advise(err, fmt.Sprintf("put the public key into ~%s/.ssh/authorized_keys on the machine: ssh-copy-id -p %d %s", a.cfg.User, a.cfg.Port,
			Quote(a.cfg.User+"@"+a.cfg.Address)))
	case !a.cfg.Password.IsZero():
		return fault.Advise(err, "set privateKeyPath to a key that the machine knows, or \"PasswordAuthentication yes\" in its sshd_config")
	}
	return fault.Advise(err, "set privateKeyPath or a password, or start an agent and ssh-add a key")
}

// dialError explains why the machine did not connect further.
func (c *conn) dialError(ctx context.Context, network, address string, err error) error {
	var refused *ssh.OpenChannelError
	var malformed *net.AddrError
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.As(err, &malformed):
	case !errors.As(err, &refused):
		err = c.lostOr(err)
	case refused.Reason == ssh.Prohibited:
		err = c.forbidden(err)
	case network == "unix": // sshd gives no reasons
		err = fault.Transient(fault.Advise(err, fmt.Sprintf("check on %s that the socket is there, that %s may open it, "+
			"and that sshd_config has \"AllowStreamLocalForwarding yes\"", c.name, c.user)))
	default:
		err = fault.Transient(err)
	}
	return fmt.Errorf("dialing %s from %s: %w", address, c.name, err)
}

func (c *conn) listenError(err error) error {
	if strings.Contains(err.Error(), "denied by peer") { // x/crypto has no error of its own for it
		err = c.forbidden(err)
	} else {
		err = c.lostOr(err)
	}
	return fmt.Errorf("listening on the loopback of %s: %w", c.name, err)
}

func (c *conn) forbidden(err error) error {
	return fault.Advise(err, fmt.Sprintf("set \"AllowTcpForwarding yes\" in sshd_config on %s and reload sshd", c.name))
}

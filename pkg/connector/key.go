package connector

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// agentTimeout is how long an agent may take to sign: it may ask its user.
const agentTimeout = 2 * time.Minute

// Signer returns the private key in a file. Where the file needs a passphrase, or has only
// the public key, it is the one that the SSH agent holds. release lets go of the agent.
func Signer(file string) (signer ssh.Signer, release func(), err error) {
	file = home(file)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	public := publicKey(text, file)
	if public == nil {
		signer, err = parseKey(text, file, secret.Secret{})
		return signer, func() {}, err
	}
	conn, signer, err := agentSigner(public, file, agentTimeout)
	if err != nil {
		return nil, nil, fault.Advise(err, "load the private key into an agent (ssh-add), or name one without a passphrase")
	}
	return signer, func() { conn.Close() }, nil
}

// publicKey returns the public key of a file that has no other, or needs a passphrase; nil where it has a private key
// to be used as it is, or none. Files in an older format keep it in a second one beside them.
func publicKey(text []byte, path string) ssh.PublicKey {
	_, err := ssh.ParsePrivateKey(text)
	locked, ok := errors.AsType[*ssh.PassphraseMissingError](err)
	switch {
	case ok && locked.PublicKey != nil:
		return locked.PublicKey
	case ok:
		text, _ = os.ReadFile(path + ".pub") // without it nothing is parsed
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil
	}
	return public
}

// agentSigner returns the key of a file from the agent that holds it; it answers as long as conn is open.
func agentSigner(public ssh.PublicKey, file string, timeout time.Duration) (conn net.Conn, signer ssh.Signer, err error) {
	conn, held, err := agentSigners(timeout)
	if err != nil {
		return nil, nil, fmt.Errorf("asking the SSH agent for the key of %s: %w", file, err)
	}
	i := slices.IndexFunc(held, func(s ssh.Signer) bool { return bytes.Equal(s.PublicKey().Marshal(), public.Marshal()) })
	if i < 0 {
		if conn != nil {
			conn.Close()
		}
		return nil, nil, fmt.Errorf("%s needs a passphrase, or is a public key, and the SSH agent does not hold %s", file, ssh.FingerprintSHA256(public))
	}
	return conn, held[i], nil
}

// agentSigners returns the keys of the agent that SSH_AUTH_SOCK names, which answer as long
// as conn is open; none and no conn where it names none.
func agentSigners(timeout time.Duration) (conn net.Conn, all []ssh.Signer, err error) {
	socket := os.Getenv("SSH_AUTH_SOCK")
	if socket == "" {
		return nil, nil, nil
	}
	if conn, err = net.Dial("unix", socket); err != nil {
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if all, err = agent.NewClient(conn).Signers(); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, all, nil
}

// parseKey reads the private key that a file holds.
func parseKey(text []byte, path string, passphrase secret.Secret) (ssh.Signer, error) {
	signer, err := ssh.ParsePrivateKey(text)
	if locked, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok {
		if passphrase.IsZero() {
			advice := "set its passphrase, or load the key into an agent: ssh-add " + path
			if locked.PublicKey == nil {
				advice += ", where it is found by " + path + ".pub"
			}
			return nil, fault.Advise(fmt.Errorf("private key %s needs a passphrase", path), advice)
		}
		signer, err = ssh.ParsePrivateKeyWithPassphrase(text, []byte(passphrase.Reveal()))
		if errors.Is(err, x509.IncorrectPasswordError) {
			return nil, fault.Advise(fmt.Errorf("wrong passphrase for private key %s", path),
				"check it with: ssh-keygen -y -f "+path)
		}
	}
	if err != nil {
		return nil, fault.Advise(fmt.Errorf("%s is not a private key: %w", path, err),
			"name the private key, not the .pub file, in OpenSSH or PEM format")
	}
	return signer, nil
}

package signature

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Key is a private key that can sign.
type Key struct {
	signer  ssh.Signer
	release func()
}

// Open returns the private key in a file, or held by the SSH agent: for a file that needs
// a passphrase, or has only the public key. The key is to be closed.
func Open(file string) (*Key, error) {
	signer, release, err := connector.Signer(file)
	if err != nil {
		return nil, fmt.Errorf("opening the key to sign with: %w", err)
	}
	return &Key{signer, release}, nil
}

// Close lets go of the agent.
func (k *Key) Close() { k.release() }

// Fingerprint names the key as ssh-keygen does: SHA256:...
func (k *Key) Fingerprint() string { return ssh.FingerprintSHA256(k.signer.PublicKey()) }

// Sign returns the signature of a text, in a namespace that keeps it from being taken for
// one of another purpose. Of Ed25519 and RSA keys it is the same each time.
func (k *Key) Sign(namespace string, text []byte) ([]byte, error) {
	s, err := sshsig.Sign(bytes.NewReader(text), k.signer, sshsig.HashSHA512, namespace)
	if err != nil {
		return nil, fmt.Errorf("signing with %s: %w", k.Fingerprint(), err)
	}
	return sshsig.Armor(s), nil
}

// ErrOther is a right signature by a key that is not among those believed.
var ErrOther = errors.New("is of another key")

// Verify checks the signature of a text and returns the fingerprint of the key that made it.
// Where keys are given, as of PublicKeys, it must be one of them; else the error is ErrOther.
func Verify(namespace string, text, signature []byte, keys []string) (fingerprint string, err error) {
	s, err := sshsig.Unarmor(signature)
	if err != nil {
		return "", fmt.Errorf("reading the signature: %w", err)
	}
	fingerprint = ssh.FingerprintSHA256(s.PublicKey)
	if err := sshsig.Verify(bytes.NewReader(text), s, s.PublicKey, s.HashAlgorithm, namespace); err != nil {
		return fingerprint, fmt.Errorf("the signature of %s does not fit: %w", fingerprint, err)
	}
	for _, k := range keys {
		if k == line(s.PublicKey) {
			return fingerprint, nil
		}
	}
	if keys != nil {
		return fingerprint, fmt.Errorf("the signature %w: %s", ErrOther, fingerprint)
	}
	return fingerprint, nil
}

// line is a public key as in a file of public keys, without a comment.
func line(k ssh.PublicKey) string { return string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(k))) }

// PublicKeys reads the public keys, of which one must have signed in namespace, from a
// file as of ssh-keygen, authorized_keys or allowed_signers.
func PublicKeys(file, namespace string) ([]string, error) {
	const advice = "name a file of public keys: one that ssh-keygen made (.pub), or lines in the format of authorized_keys or allowed_signers"
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.Advise(fmt.Errorf("reading the public keys: %w", err), advice)
	}
	var all []string
	n := 0
	for l := range bytes.Lines(text) {
		n++
		if l = bytes.TrimSpace(l); len(l) == 0 || l[0] == '#' {
			continue
		}
		key, err := publicKey(l, namespace)
		if err != nil {
			return nil, fault.Advise(fmt.Errorf("%s, line %d: %w", file, n, err), advice)
		}
		if key != nil {
			all = append(all, line(key))
		}
	}
	if all == nil {
		return nil, fault.Advise(fmt.Errorf("%s has no public key for the namespace %s", file, namespace), advice)
	}
	return all, nil
}

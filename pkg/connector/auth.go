package connector

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// auth is how a user can log in, and what came of it.
type auth struct {
	cfg     SSHConfig
	methods []ssh.AuthMethod
	signers []ssh.Signer
	names   []string // of the keys, for messages
	skipped []string // keys that could not be used, and why
	agent   net.Conn
	tried   []string // what was offered to the machine
	tested  bool     // the password was
}

// newAuth puts what the configuration names before what the user's agent and
// home directory hold: sshd counts tries, six by default.
func newAuth(c SSHConfig) (*auth, error) {
	a := &auth{cfg: c}
	keys := ssh.PublicKeysCallback(a.keys)
	if c.PrivateKeyPath != "" {
		if err := a.addFile(home(c.PrivateKeyPath)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLogin, err)
		}
		a.methods = append(a.methods, keys)
	}
	if !c.Password.IsZero() {
		a.methods = append(a.methods, ssh.PasswordCallback(a.password), ssh.KeyboardInteractive(a.interactive))
	}
	if c.PrivateKeyPath == "" {
		a.addAgent()
		for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
			if err := a.addFile(home("~/.ssh/" + name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				a.skipped = append(a.skipped, err.Error())
			}
		}
		a.methods = append(a.methods, keys)
	}
	return a, nil
}

func (a *auth) close() {
	if a.agent != nil {
		a.agent.Close()
	}
}

// addAgent adds the keys of the agent that SSH_AUTH_SOCK names, if there is one.
func (a *auth) addAgent() {
	conn, signers, err := agentSigners(a.cfg.ConnectTimeout)
	if err != nil {
		a.skipped = append(a.skipped, fmt.Sprintf("agent at SSH_AUTH_SOCK: %v", err))
	}
	a.agent = conn
	for _, s := range signers {
		a.add(s, "agent's "+ssh.FingerprintSHA256(s.PublicKey()))
	}
}

// addFile adds the private key in a file. Where privateKeyPath names one that is not to be opened without a passphrase, it
// is the agent's.
func (a *auth) addFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fault.Advise(fmt.Errorf("reading the private key: %w", err), "check privateKeyPath and the file's mode and owner")
	}
	var signer ssh.Signer
	if public := publicKey(text, path); public != nil && a.cfg.PrivateKeyPath != "" && a.cfg.Passphrase.IsZero() {
		a.agent, signer, err = agentSigner(public, path, a.cfg.ConnectTimeout)
		err = fault.Advise(err, "set its passphrase, or load the key into an agent: ssh-add "+strings.TrimSuffix(path, ".pub"))
	} else {
		signer, err = parseKey(text, path, a.cfg.Passphrase)
	}
	if err != nil {
		return err
	}
	a.add(signer, path)
	return nil
}

func (a *auth) add(s ssh.Signer, name string) {
	a.signers = append(a.signers, s)
	a.names = append(a.names, name)
}

func (a *auth) keys() ([]ssh.Signer, error) {
	if len(a.signers) > 0 {
		a.tried = append(a.tried, "public key ("+strings.Join(a.names, ", ")+")")
	}
	return a.signers, nil
}

func (a *auth) password() (string, error) {
	a.tried = append(a.tried, "password")
	a.tested = true
	return a.cfg.Password.Reveal(), nil
}

// interactive answers every hidden question with the password, unless the machine
// has refused it already: failures are counted there.
func (a *auth) interactive(_, _ string, questions []string, echos []bool) ([]string, error) {
	answers := make([]string, len(questions))
	for i := range questions {
		if a.tested || echos[i] {
			return nil, fmt.Errorf("no answer to %q", questions[i])
		}
		answers[i] = a.cfg.Password.Reveal()
	}
	if len(questions) > 0 {
		a.tried = append(a.tried, "keyboard-interactive")
		a.tested = true
	}
	return answers, nil
}

// home resolves a path that begins with ~/, in the home directory of this user.
func home(path string) string {
	rest, ok := strings.CutPrefix(path, "~/")
	if dir, err := os.UserHomeDir(); ok && err == nil {
		return filepath.Join(dir, rest)
	}
	return path
}

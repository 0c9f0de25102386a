package connector

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// Why sudo did not start a command. Each is an ErrSudo.
var (
	ErrSudo         = errors.New("sudo refused")
	ErrSudoPassword = fmt.Errorf("%w the password", ErrSudo)
	ErrSudoDenied   = fmt.Errorf("%w: not allowed by sudoers", ErrSudo)
	ErrSudoTTY      = fmt.Errorf("%w: sudoers asks for a terminal", ErrSudo)
	ErrSudoMissing  = fmt.Errorf("%w: not installed", ErrSudo)
)

// sudoSays maps what sudo (or sudo-rs) prints under LC_ALL=C to the reason. The
// texts are from plugins/sudoers/{sudoers,logging,auth}*.c and src/exec.c of sudo
// 1.8 to 1.9, and src/common/error.rs of sudo-rs.
var sudoSays = []struct {
	text   string
	reason error
}{
	{"must have a tty", ErrSudoTTY},
	{"is not in the sudoers file", ErrSudoDenied},
	{"is not allowed to execute", ErrSudoDenied},
	{"may not run sudo", ErrSudoDenied},
	{"I'm afraid I can't do that", ErrSudoDenied},
	{"incorrect password attempt", ErrSudoPassword},
	{"incorrect authentication attempt", ErrSudoPassword},
	{"uthentication failed", ErrSudoPassword},
	{"no password was provided", ErrSudoPassword},
	{"sudo: not found", ErrSudoMissing},
	{"sudo': No such file", ErrSudoMissing},
	{"sudo: No such file", ErrSudoMissing},
	{"can't execute 'sudo'", ErrSudoMissing},
}

// sudoError tells why sudo did not start the shell.
func (m *machine) sudoError(err error, said string) error {
	reason := err
	for _, s := range sudoSays {
		if strings.Contains(said, s.text) {
			reason = s.reason
		}
	}
	user, advice := m.user, ""
	switch {
	case errors.Is(reason, ErrSudoPassword) && m.password.IsZero():
		reason = fmt.Errorf("%w: it asks for one and none is set", ErrSudoPassword)
		advice = fmt.Sprintf("set the sudo password of %s, or allow %s to use sudo without one (NOPASSWD in /etc/sudoers.d)", user, user)
	case errors.Is(reason, ErrSudoPassword):
		reason = ErrSudoPassword
		advice = "check the sudo password of " + user + "; it was tried once, so that the account is not locked"
	case errors.Is(reason, ErrSudoDenied):
		advice = fmt.Sprintf("allow it: as root, write \"%s ALL=(ALL) ALL\" to /etc/sudoers.d/%s, or log in as another user", user, user)
	case errors.Is(reason, ErrSudoTTY):
		advice = fmt.Sprintf("as root, write \"Defaults:%s !requiretty\" to /etc/sudoers.d/%s", user, user)
	case errors.Is(reason, ErrSudoMissing):
		advice = "install sudo on the machine, or log in as root"
	default:
		reason = fmt.Errorf("%w: %w: %q", ErrSudo, err, said)
		advice = "run \"sudo -v\" as " + user + " on the machine and see what it says"
	}
	return fault.Advise(fmt.Errorf("%s: user %s: %w", m.name, user, reason), advice)
}

// prompter reads what sudo says and answers its question for the password, once.
// A second question means that the password was wrong: sudo would go on to read
// the command's input as further tries.
type prompter struct {
	prompt   string
	password secret.Secret
	answer   io.Writer
	text     []byte
	asked    int
}

func (p *prompter) Write(b []byte) (int, error) {
	const most = 64 << 10
	p.text = append(p.text, b...)
	if len(p.text) > most {
		p.text = p.text[len(p.text)-most/2:]
		return len(b), nil
	}
	if strings.Count(string(p.text), p.prompt) == p.asked {
		return len(b), nil
	}
	if p.asked++; p.asked > 1 || p.password.IsZero() {
		return 0, ErrSudoPassword
	}
	_, err := io.WriteString(p.answer, p.password.Reveal()+"\n")
	return len(b), err
}

// said returns what sudo said, without the prompt.
func (p *prompter) said() string {
	return strings.TrimSpace(cut(strings.ReplaceAll(string(p.text), p.prompt, "")))
}

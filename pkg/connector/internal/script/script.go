// Package script holds the shell texts by which a connector starts commands on
// a machine, and the marks by which it finds its way in their output.
//
// A mark is the bytes 0 and 1, a nonce, one letter, a text and a newline. The shell
// makes the bytes out of `\000\001`, so no copy of the script (in `set -x` traces,
// /proc/*/cmdline, error messages) looks like a mark.
package script

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Letters of marks.
const (
	Ready = 'R' // standard error: past sudo, running as the wanted user; text: pid and process group
	Begin = 'B' // standard output: what follows is the command's output
	End   = 'E' // both: the command ended; text on standard output: exit status
	Clean = 'C' // standard output: no child of the command is left that could write there
)

const (
	prelude = `cd /; umask 022; export LC_ALL=C PATH="$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"; ` +
		`read -r _ _ _ _ g _ </proc/$$/stat; printf "\000\001$1R$$ $g\n" >&2; `
	one  = prelude + `printf "\000\001$1B\n"; (eval "set --; $2"); printf "\000\001$1E$?\n"; printf "\000\001$1E\n" >&2`
	many = prelude + `exec sh`
)

// One returns what the login shell has to run so that line runs and reports by
// marks. Its standard input is line's from the Ready mark on.
func One(nonce, line string, sudo bool) string {
	return start(one, nonce, sudo) + " " + Quote(line)
}

// Many returns what the login shell has to run to become a shell for many commands:
// after the Ready mark it reads Functions, then Calls.
func Many(nonce string, sudo bool) string { return start(many, nonce, sudo) }

func start(text, nonce string, sudo bool) string {
	as := "exec "
	if sudo {
		as = "exec env LC_ALL=C sudo -S -p " + Prompt(nonce) + " -- "
	}
	return as + "sh -c " + Quote(text) + " kubexm " + nonce
}

// In a shell for many commands a child that a command leaves behind would write
// into the output of the next one. So each holds a pipe (7) which the shell reads
// to its end, after it told the end of the command itself.
const functions = `exec 8>&1; kx() { printf "\000\001$nonceB\n"; ` +
	`: "$( (eval "set --; $1") 7>&1 >&8 8>&-; printf "\000\001$nonceE$?\n" >&8; printf "\000\001$nonceE\n" >&2)"; ` +
	`printf "\000\001$nonceC\n"; }` + "\n"

// Functions returns what a shell for many commands must know.
func Functions(nonce string) string { return strings.ReplaceAll(functions, "$nonce", nonce) }

// Call returns the text that makes such a shell run line with the given standard input.
func Call(line string, stdin []byte) string {
	if len(stdin) == 0 {
		return "kx " + Quote(line) + " </dev/null\n"
	}
	return "printf " + format(stdin) + " | kx " + Quote(line) + "\n"
}

// format returns the quoted printf format for any bytes.
func format(text []byte) string {
	var b strings.Builder
	b.WriteByte('\'')
	for i, c := range text {
		switch {
		case c == '%':
			b.WriteString("%%")
		case c == '\n' || c >= ' ' && c < 0x7f && c != '\'' && c != '\\' && (i > 0 || c != '-'):
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\%03o`, c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// Prompt is the text by which sudo asks for the password.
func Prompt(nonce string) string { return nonce + "-password" }

// Quote quotes a word for a POSIX shell.
func Quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// Mark returns the bytes that start every mark.
func Mark(nonce string) []byte { return append([]byte{0, 1}, nonce...) }

// Nonce makes a nonce of random bytes.
func Nonce(random []byte) string { return fmt.Sprintf("kx%s", hex.EncodeToString(random)) }

const killGroup = "kill -TERM -%[1]d; i=0; while [ $i -lt 10 ] && kill -0 -%[1]d; do i=$((i+1)); sleep 0.1; done; kill -KILL -%[1]d && sleep 0.1"

// KillGroup returns the command that ends a process group: by TERM, and what is
// left after a second by KILL, which takes a moment.
func KillGroup(group int) string { return fmt.Sprintf(killGroup, group) }

package script

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
)

// ParseStart takes a command line of One or Many apart. Many has no line.
func ParseStart(login string) (nonce, line string, ok bool) {
	if _, nonce, ok = strings.Cut(login, "sh -c "+Quote(many)+" kubexm "); ok {
		return nonce, "", true
	}
	if _, login, ok = strings.Cut(login, "sh -c "+Quote(one)+" kubexm "); !ok {
		return "", "", false
	}
	nonce, line, _ = strings.Cut(login, " ")
	line, err := readQuoted(bufio.NewReader(strings.NewReader(line)))
	return nonce, line, err == nil
}

// ReadCall reads one Call, and Functions before the first.
func ReadCall(r *bufio.Reader) (line string, stdin []byte, err error) {
	var word string
	for word != "kx " {
		if word, err = r.ReadString(' '); err != nil {
			return "", nil, err
		}
		switch word {
		case "exec ":
			_, err = r.ReadString('\n')
		case "printf ":
			if word, err = readQuoted(r); err == nil {
				stdin, err = unformat(word)
			}
			_, _ = r.Discard(len(" | "))
		}
		if err != nil {
			return "", nil, err
		}
	}
	if line, err = readQuoted(r); err != nil {
		return "", nil, err
	}
	_, err = r.ReadString('\n')
	return line, stdin, err
}

// readQuoted reads what Quote wrote.
func readQuoted(r *bufio.Reader) (string, error) {
	if _, err := r.Discard(1); err != nil {
		return "", err
	}
	text := ""
	for {
		part, err := r.ReadString('\'')
		if err != nil {
			return "", err
		}
		text += part[:len(part)-1]
		if more, _ := r.Peek(1); len(more) == 0 || more[0] != '\\' {
			return text, nil
		}
		text += "'"
		_, _ = r.Discard(len(`\''`))
	}
}

// unformat turns what format made, without its quotes, back.
func unformat(text string) ([]byte, error) {
	var b []byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '%':
			i++
		case c == '\\' && i+3 < len(text):
			n, err := strconv.ParseUint(text[i+1:i+4], 8, 8)
			if err != nil {
				return nil, fmt.Errorf("bad escape: %w", err)
			}
			b = append(b, byte(n))
			i += 3
			continue
		}
		b = append(b, text[i])
	}
	return b, nil
}

// ParseKillGroup returns the group of a KillGroup command.
func ParseKillGroup(line string) (group int, ok bool) {
	_, err := fmt.Sscanf(line, "kill -TERM -%d", &group)
	return group, err == nil && line == KillGroup(group)
}

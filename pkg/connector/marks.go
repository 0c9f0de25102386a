package connector

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// errEnded is a stream that ended where a mark was due.
var errEnded = errors.New("output ended too early")

// marked reads a stream that marks divide (see package script).
type marked struct {
	from io.Reader
	mark []byte
	buf  []byte // read and not yet passed on
}

// next copies to w what comes before the next mark, which must be of the given
// letter, and returns the mark's text. Text is passed on as it comes.
func (m *marked) next(letter byte, w io.Writer) (string, error) {
	room := make([]byte, 32<<10)
	m.buf = append(room[:0], m.buf...)
	for {
		at, whole := bytes.Index(m.buf, m.mark), false
		if at >= 0 {
			whole = bytes.IndexByte(m.buf[at:], '\n') > 0
		} else {
			at = len(m.buf) - m.partial()
		}
		if at > 0 {
			if _, err := w.Write(m.buf[:at]); err != nil {
				return "", fmt.Errorf("passing output on: %w", err)
			}
			m.buf = room[:copy(room, m.buf[at:])]
		}
		if whole {
			text, rest, _ := bytes.Cut(m.buf[len(m.mark):], []byte("\n"))
			m.buf = bytes.Clone(rest)
			if len(text) == 0 || text[0] != letter {
				return "", fmt.Errorf("mark %q where %q is due", text, letter)
			}
			return string(text[1:]), nil
		}
		if len(m.buf) == len(room) {
			return "", errors.New("mark without an end")
		}
		n, err := m.from.Read(room[len(m.buf):])
		if m.buf = room[:len(m.buf)+n]; n == 0 && err != nil {
			if len(m.buf) > 0 {
				_, _ = w.Write(m.buf) // the beginning of a mark that never was
			}
			return "", errEnded
		}
	}
}

// partial returns how many bytes at the end may be the beginning of a mark.
func (m *marked) partial() int {
	if at := bytes.LastIndexByte(m.buf, m.mark[0]); at >= 0 && bytes.HasPrefix(m.mark, m.buf[at:]) {
		return len(m.buf) - at
	}
	return 0
}

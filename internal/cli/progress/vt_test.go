package progress

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// vt is a terminal that knows the controls that a Screen uses, and that joins and
// breaks lines when its size changes, as most do.
type vt struct {
	width, height int
	above         []string // scrolled off the top
	rows          [][]rune
	row, col      int
	wrap          bool
	writes        int
	faults        []string
}

func newVT(width, height int) *vt {
	return &vt{width: width, height: height, rows: make([][]rune, 1), wrap: true}
}

var control = regexp.MustCompile(`^\x1b\[(\??)([\d;]*)([A-Za-z])`)

func (v *vt) Write(p []byte) (int, error) {
	v.writes++
	for s := string(p); s != ""; {
		if s[0] == '\x1b' {
			m := control.FindStringSubmatch(s)
			if m == nil {
				v.faults = append(v.faults, fmt.Sprintf("unknown control %.10q", s))
				return len(p), nil
			}
			v.control(m[1]+m[3], m[2])
			s = s[len(m[0]):]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		switch r {
		case '\r':
			v.col = 0
		case '\n': // as a terminal driver has it: with a carriage return
			v.col = 0
			v.down()
		default:
			v.put(r)
		}
	}
	return len(p), nil
}

func (v *vt) control(what, number string) {
	n, _ := strconv.Atoi(number)
	switch what {
	case "A":
		if v.row < n {
			v.faults = append(v.faults, fmt.Sprintf("the cursor goes up %d lines from line %d", n, v.row))
		}
		v.row = max(v.row-n, 0)
	case "K":
		v.rows[v.row] = v.rows[v.row][:min(v.col, len(v.rows[v.row]))]
	case "J":
		v.rows[v.row] = v.rows[v.row][:min(v.col, len(v.rows[v.row]))]
		v.rows = v.rows[:v.row+1]
	case "?h", "?l":
		if n == 7 {
			v.wrap = what == "?h"
		}
	case "m":
	default:
		v.faults = append(v.faults, "unknown control "+what)
	}
}

func (v *vt) put(r rune) {
	if v.col == v.width {
		if !v.wrap {
			v.faults = append(v.faults, "a line is too long")
			return
		}
		v.col = 0
		v.down()
	}
	for len(v.rows[v.row]) <= v.col {
		v.rows[v.row] = append(v.rows[v.row], ' ')
	}
	v.rows[v.row][v.col] = r
	v.col++
}

func (v *vt) down() {
	v.row++
	if v.row == len(v.rows) {
		v.rows = append(v.rows, nil)
	}
	v.scroll()
}

func (v *vt) scroll() {
	for len(v.rows) > v.height {
		v.above = append(v.above, string(v.rows[0]))
		v.rows = v.rows[1:]
		v.row--
	}
}

// resize breaks lines that have become too long.
func (v *vt) resize(width, height int) {
	v.width, v.height = width, height
	var rows [][]rune
	for i, row := range v.rows {
		for len(row) > width {
			rows, row = append(rows, row[:width:width]), row[width:]
		}
		rows = append(rows, row)
		if i == v.row {
			v.row = len(rows) - 1
		}
	}
	v.rows = rows
	v.scroll()
}

// all is what was ever written and not erased.
func (v *vt) all() []string {
	lines := append([]string(nil), v.above...)
	for i, row := range v.rows {
		if i <= v.row || len(row) > 0 {
			lines = append(lines, strings.TrimRight(string(row), " "))
		}
	}
	return lines
}

package human

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// MostText is how many bytes of a text from elsewhere are shown to people.
const MostText = 64 << 10

// Clean makes a text that comes from a host fit for a terminal and a log: without terminal escapes,
// control characters but line feeds and tabs, and marks that turn the direction of writing; of one longer than
// MostText the end is left out.
func Clean(s string) string {
	left := 0
	if len(s) > MostText {
		cut := MostText
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s, left = s[:cut], len(s)-cut
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, ansi.Strip(strings.ToValidUTF8(s, "\uFFFD")))
	if left > 0 {
		s += fmt.Sprintf("... (%s more)", Bytes(int64(left)))
	}
	return s
}

// Line is Clean for what is to stand in one line: line feeds and tabs become spaces.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, strings.TrimSpace(Clean(s)))
}

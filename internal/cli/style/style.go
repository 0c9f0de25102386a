// Package style holds the few colors that kubexm uses on terminals: the first
// sixteen, which people choose in their terminal.
package style

import "charm.land/lipgloss/v2"

// Style paints single lines of text; the zero value paints nothing.
type Style struct {
	Good, Bad, Warn, Accent, Bold, Dim Paint
}

// Paint colors a single line of text.
type Paint struct{ style *lipgloss.Style }

// New returns the colors, or a Style that paints nothing.
func New(color bool) Style {
	if !color {
		return Style{}
	}
	paint := func(s lipgloss.Style) Paint { return Paint{&s} }
	plain := lipgloss.NewStyle()
	return Style{
		Good: paint(plain.Foreground(lipgloss.Green)), Bad: paint(plain.Foreground(lipgloss.Red).Bold(true)),
		Warn: paint(plain.Foreground(lipgloss.Yellow)), Accent: paint(plain.Foreground(lipgloss.Cyan)),
		Bold: paint(plain.Bold(true)), Dim: paint(plain.Faint(true)),
	}
}

// String returns the painted text.
func (p Paint) String(text string) string {
	if p.style == nil || text == "" {
		return text
	}
	return p.style.Render(text)
}

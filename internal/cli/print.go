package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"charm.land/lipgloss/v2"
	lgtable "charm.land/lipgloss/v2/table"
	"github.com/charmbracelet/x/ansi"
	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/style"
)

// print writes a value as JSON or YAML.
func (p *program) print(format string, value any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(value); err != nil {
		return fmt.Errorf("encoding the output: %w", err)
	}
	text := b.Bytes()
	if format == "yaml" {
		var err error
		if text, err = yaml.JSONToYAML(text); err != nil {
			return fmt.Errorf("encoding the output: %w", err)
		}
	}
	p.answered = true
	_, err := p.out.Write(text)
	return err
}

// gap is how many columns are between two cells.
const gap = 2

// table lines up cells, painted or not, in columns.
func table(rows [][]string) string {
	var widths []int
	for _, r := range rows {
		for i, cell := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], ansi.StringWidth(cell))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		for i, cell := range r {
			if i < len(r)-1 {
				cell += strings.Repeat(" ", widths[i]-ansi.StringWidth(cell)+gap)
			}
			b.WriteString(cell)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// fitting is a table without as many of its last columns as have no room.
func fitting(rows [][]string, width int) string {
	text := table(rows)
	for n := len(rows[0]) - 1; n > 3 && lipgloss.Width(text) > width; n-- {
		for i := range rows {
			rows[i] = rows[i][:n]
		}
		text = table(rows)
	}
	return text
}

// wrapped is a table whose cells are wrapped where it would be wider than width.
func wrapped(rows [][]string, width int) string {
	t := lgtable.New().Headers(rows[0]...).Rows(rows[1:]...).Border(lipgloss.HiddenBorder()).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).BorderHeader(false).BorderColumn(false).
		StyleFunc(func(_, _ int) lipgloss.Style { return lipgloss.NewStyle().PaddingRight(gap) })
	text := t.String()
	if lipgloss.Width(text) > width {
		text = t.Width(width).String()
	}
	return trimLines(text)
}

// trimLines takes the white space off the ends of lines.
func trimLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// head paints the names of columns.
func head(p style.Paint, names ...string) []string {
	for i, n := range names {
		names[i] = p.String(n)
	}
	return names
}

// observer is told what goes on aside from results, and on a terminal asked whether machines are the right ones.
func (p *program) observer() app.Observer {
	o := app.Observer{Notice: p.notice, Log: unclosed{p.err}}
	if terminal(p.in) && terminal(p.err) {
		o.MayTrust = p.mayTrust
	}
	return o
}

// unclosed is a stream that others use, too.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

// notice tells what goes on aside from results. Warnings are told to whoever wants quiet, too: of machines that are trusted from now on, for one.
func (p *program) notice(text string) {
	if !p.quiet || strings.HasPrefix(text, "warning: ") {
		fmt.Fprintln(p.err, text)
	}
}

package progress

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// lines draws the state for a terminal: fewer lines than it has, each narrower
// than it is.
func (s *State) lines(title string, now time.Time, width, height int, st style.Style) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	width = max(width-1, 20)
	lines := []string{
		ends(s.head(title, st), human.Duration(now.Sub(s.begun)), width),
		s.bar(width, st),
	}
	room := max(height-1, 2) - len(lines)
	if room >= 4 {
		tasks := s.overview(width, min(2, room-3), st)
		lines = append(lines, tasks...)
		lines = append(lines, "")
		room -= len(tasks) + 1
	}
	return append(lines, s.table(now, width, room, st)...)
}

// head says what runs, and what came of it so far.
func (s *State) head(title string, st style.Style) string {
	parts := []string{st.Bold.String(title)}
	c := s.counts
	for _, part := range []struct {
		n     int
		what  string
		paint style.Paint
	}{{c.Changed, "changed", st.Good}, {c.Pending, "would change", st.Warn}, {c.Failed, "failed", st.Bad}, {c.Restored, "rolled back", st.Warn}, {c.Skipped, "skipped", st.Warn}} {
		if part.n > 0 {
			parts = append(parts, part.paint.String(fmt.Sprintf("%d %s", part.n, part.what)))
		}
	}
	return strings.Join(parts, "  ")
}

// bar shows how many steps are done.
func (s *State) bar(width int, st style.Style) string {
	total := s.counts.Total
	text := fmt.Sprintf("  %*d/%d", len(strconv.Itoa(total)), s.done(), total)
	long := max(width-len(text), 8)
	full := long * s.done() / max(total, 1)
	paint := st.Accent
	if s.counts.Failed > 0 {
		paint = st.Bad
	}
	return cut(paint.String(strings.Repeat("━", full))+st.Dim.String(strings.Repeat("─", long-full))+text, width)
}

// overview tells about all tasks in at most so many lines: those that are done,
// at work and to come.
func (s *State) overview(width, most int, st style.Style) []string {
	var done, todo int
	var all, some []string
	for _, t := range s.tasks {
		name := path.Base(t.name)
		item := st.Dim.String("· " + name)
		switch {
		case t.done == t.total && t.failed == 0:
			item = st.Good.String("✓") + " " + name
			done++
		case t.failed > 0:
			item = st.Bad.String("✗") + fmt.Sprintf(" %s %d/%d", name, t.done, t.total)
			some = append(some, item)
		case t.running > 0 || t.done > 0:
			item = st.Accent.String("▸") + fmt.Sprintf(" %s %d/%d", name, t.done, t.total)
			some = append(some, item)
		default:
			todo++
		}
		all = append(all, item)
	}
	if lines := flow(all, width); len(lines) <= most {
		return lines
	}
	if done > 0 {
		some = append([]string{st.Good.String("✓") + fmt.Sprintf(" %d done", done)}, some...)
	}
	if todo > 0 {
		some = append(some, st.Dim.String(fmt.Sprintf("· %d to come", todo)))
	}
	lines := flow(some, width)
	return lines[:min(most, len(lines))]
}

// flow puts items into lines.
func flow(items []string, width int) (lines []string) {
	for _, item := range items {
		last := len(lines) - 1
		if last >= 0 && ansi.StringWidth(lines[last])+3+ansi.StringWidth(item) <= width {
			lines[last] += "   " + item
		} else {
			lines = append(lines, cut(item, width))
		}
	}
	return lines
}

// table has a line for each host, or where there is no room for that, for those
// that failed and those whose step runs longest.
func (s *State) table(now time.Time, width, room int, st style.Style) []string {
	shown, rest := s.order, []*host(nil)
	if len(shown) > room {
		shown = slices.Clone(shown)
		slices.SortStableFunc(shown, func(a, b *host) int {
			if c := cmp.Compare(a.rank(), b.rank()); c != 0 || len(a.running) == 0 || len(b.running) == 0 {
				return c
			}
			return a.running[0].since.Compare(b.running[0].since)
		})
		shown, rest = fair(shown, max(room-1, 0))
	}
	var slow *host // whose step runs longest
	names := 0
	for _, h := range shown {
		names = max(names, ansi.StringWidth(h.name))
		if len(h.running) > 0 && (slow == nil || h.running[0].since.Before(slow.running[0].since)) {
			slow = h
		}
	}
	var lines []string
	for _, h := range shown {
		lines = append(lines, s.line(h, now, width, min(names, width/4), h == slow, st))
	}
	if len(rest) > 0 && room > 0 {
		lines = append(lines, cut(st.Dim.String(others(rest)), width))
	}
	return lines
}

// rank is the order in which hosts are worth a line.
func (h *host) rank() int {
	switch {
	case h.failed > 0:
		return 0
	case len(h.running) > 0:
		return 1
	case h.done < h.total:
		return 2
	}
	return 3
}

// fair takes the first so many hosts, but leaves half of the room to those that
// did not fail.
func fair(hosts []*host, room int) (shown, rest []*host) {
	failed := slices.IndexFunc(hosts, func(h *host) bool { return h.rank() > 0 })
	if failed < 0 {
		failed = len(hosts)
	}
	most := max(room/2, room-(len(hosts)-failed))
	if failed > most {
		hosts = slices.Concat(hosts[:most], hosts[failed:], hosts[most:failed])
	}
	return hosts[:room], hosts[room:]
}

// others counts the hosts that have no line.
func others(hosts []*host) string {
	var n [4]int
	for _, h := range hosts {
		n[h.rank()]++
	}
	var parts []string
	for rank, what := range []string{"failed", "running", "waiting", "done"} {
		if n[rank] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[rank], what))
		}
	}
	return fmt.Sprintf("  and %d more: %s", len(hosts), strings.Join(parts, ", "))
}

// line tells what a host is doing.
func (s *State) line(h *host, now time.Time, width, name int, slowest bool, st style.Style) string {
	symbol, text := st.Dim.String("·"), ""
	switch {
	case len(h.running) > 0:
		symbol, text = st.Accent.String("▸"), h.doing(now, min(max(width/3, 16), 44), slowest, st)
	case h.failed > 0:
		symbol, text = st.Bad.String("✗"), st.Bad.String(h.err)
	case h.done == h.total && h.skipped > 0:
		symbol, text = st.Warn.String("–"), st.Dim.String(human.Count(h.skipped, "step")+" skipped")
	case h.done == h.total:
		symbol, text = st.Good.String("✓"), st.Dim.String("done")
	default:
		text = "waiting for its turn"
		if other := s.waitsFor(h); other != nil {
			text = fmt.Sprintf("waiting for %s on %s", other.what, other.host)
		}
		text = st.Dim.String(text)
	}
	return ends(symbol+" "+pad(h.name, name)+"  "+text, fmt.Sprintf("%d/%d", h.done, h.total), width)
}

// doing tells about the step that runs longest on a host.
func (h *host) doing(now time.Time, width int, slowest bool, st style.Style) string {
	at := h.running[0]
	what := at.what
	if n := len(h.running); n > 1 {
		what += fmt.Sprintf(" +%d", n-1)
	}
	took := fmt.Sprintf("%5s", human.Duration(now.Sub(at.since)))
	if slowest {
		took = st.Warn.String(took)
	}
	return pad(what, width) + "  " + took + "  " + st.Dim.String(at.text)
}

// ends puts two texts at the ends of a line.
func ends(left, right string, width int) string {
	room := width - ansi.StringWidth(right) - 2
	return pad(left, max(room, 1)) + "  " + right
}

// pad makes a text exactly so wide.
func pad(text string, width int) string {
	text = cut(text, width)
	return text + strings.Repeat(" ", max(width-ansi.StringWidth(text), 0))
}

func cut(text string, width int) string { return ansi.Truncate(text, width, "…") }

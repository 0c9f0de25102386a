package progress

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestLines draws moments of runs on terminals of two sizes.
func TestLines(t *testing.T) {
	const s = time.Second
	for name, run := range map[string]struct {
		recorded
		moments []time.Duration
	}{
		"real":  {created(t), []time.Duration{0, 500 * time.Millisecond, 5 * s, 9 * s, 24 * s, 45 * s, 57 * s, 66 * s}},
		"crowd": {crowd(1000), []time.Duration{1 * s, 6 * s, 15 * s, 30 * s, 60 * s}},
	} {
		for _, size := range [][2]int{{80, 24}, {60, 12}} {
			var text strings.Builder
			for _, moment := range run.moments {
				state, now := run.after(moment)
				lines := state.lines("create cluster prod", now, size[0], size[1], style.Style{})
				fmt.Fprintf(&text, "after %v:\n%s\n\n", moment, strings.Join(lines, "\n"))
			}
			golden.Equal(t, text.String(), fmt.Sprintf("%s-%dx%d.txt", name, size[0], size[1]))
		}
	}
}

// TestLinesFit draws on terminals of all sizes: never as many lines as they have,
// never as wide a line as they are, color or not.
func TestLinesFit(t *testing.T) {
	for _, run := range []recorded{created(t), crowd(40)} {
		state, now := run.after(9 * time.Second)
		for width := 22; width < 130; width += 7 {
			for _, height := range []int{3, 4, 6, 7, 8, 12, 24, 50} {
				plain := state.lines("create cluster prod", now, width, height, style.Style{})
				painted := state.lines("create cluster prod", now, width, height, style.New(true))
				if len(plain) >= height {
					t.Fatalf("%dx%d: %d lines", width, height, len(plain))
				}
				for i, line := range plain {
					if w := ansi.StringWidth(line); w >= width {
						t.Fatalf("%dx%d: line %d is %d wide: %q", width, height, i, w, line)
					}
					if line != ansi.Strip(painted[i]) {
						t.Fatalf("%dx%d: line %d is %q, with colors %q", width, height, i, line, painted[i])
					}
				}
			}
		}
	}
}

// TestStates tells all that can become of a host.
func TestStates(t *testing.T) {
	run := crowd(6)
	begin := run.events[0].Time
	s := NewState(run.graph, begin)
	steps := map[string][]engine.Event{}
	for _, n := range run.graph.Nodes {
		steps[n.Host] = append(steps[n.Host], engine.Event{Time: begin, Node: n.ID, Task: n.Task, Host: n.Host, What: n.What})
	}
	apply := func(host string, i int, status engine.Status, text string) {
		ev := steps[host][i]
		ev.Status, ev.Duration = status, time.Duration(i)*time.Second
		switch status {
		case engine.Progress:
			ev.Text = text
		case engine.Failed, engine.Retry, engine.Restored:
			ev.Error = text
		default:
		}
		s.Apply(ev)
	}
	all := func(host string, from int, status engine.Status) {
		for i := from; i < len(steps[host]); i++ {
			apply(host, i, status, "")
		}
	}
	all("node0001", 0, engine.OK)
	all("node0002", 0, engine.Changed)
	apply("node0003", 0, engine.Started, "")
	apply("node0003", 0, engine.Failed, "exit 1\x1b[2J\tboom")
	apply("node0003", 0, engine.Restored, "")
	all("node0003", 1, engine.Skipped)
	apply("node0004", 0, engine.Started, "")
	apply("node0004", 0, engine.Retry, "connection reset\nby peer")
	apply("node0005", 0, engine.Started, "")
	apply("node0005", 1, engine.Started, "")
	apply("node0005", 1, engine.Progress, "3 of 4 MB")
	all("node0006", 0, engine.Skipped)
	apply("node0006", 0, engine.Progress, "of a step that does not run")
	s.Apply(engine.Event{Host: "stranger", Status: engine.OK})
	golden.Equal(t, strings.Join(s.lines("create cluster prod", begin.Add(90*time.Second), 80, 24, style.Style{}), "\n")+"\n", "lines.txt")
	if got := s.Running(); got != 3 {
		t.Errorf("%d steps run, want 3", got)
	}
	for i, slow := range s.Slow() {
		if slow.Took != 6*time.Second {
			t.Errorf("slow step %d took %v, want 6s", i, slow.Took)
		}
	}
}

// BenchmarkLines draws a thousand hosts; ten frames a second should not be felt.
func BenchmarkLines(b *testing.B) {
	state, now := crowd(1000).after(15 * time.Second)
	for b.Loop() {
		state.lines("create cluster prod", now, 120, 50, style.New(true))
	}
}

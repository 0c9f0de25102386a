package progress

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// locked lets a test look at a terminal while a Screen writes to it.
type locked struct {
	sync.Mutex
	*vt
}

func (l *locked) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.vt.Write(p)
}

func (l *locked) size() (int, int) {
	l.Lock()
	defer l.Unlock()
	return l.width, l.height
}

// replay plays a record on a terminal in the bubble's time.
func replay(run recorded, s *State, sc *Screen, during func(at time.Duration)) {
	begin, last := run.events[0].Time, time.Duration(0)
	for _, ev := range run.events {
		at := ev.Time.Sub(begin)
		for ; last+time.Second < at; last += time.Second {
			time.Sleep(time.Second)
			synctest.Wait()
			during(last + time.Second)
		}
		ev.Time = time.Now().Add(at - last)
		s.Apply(ev)
		sc.Event(ev)
	}
}

// TestScreen plays records on terminals that are resized while people look at
// them: the lines below are the state, those above are not harmed, and in the end
// nothing of it is left.
func TestScreen(t *testing.T) {
	many := crowd(100)
	many.events = slices.DeleteFunc(many.events, func(ev engine.Event) bool { return ev.Time.Sub(many.events[0].Time) > 20*time.Second })
	for name, test := range map[string]struct {
		recorded
		sizes [][2]int // a terminal that gets too small for the lines on it scrolls some away
	}{
		"real":  {created(t), [][2]int{{60, 24}, {60, 20}, {100, 20}, {50, 20}, {90, 30}}},
		"crowd": {many, [][2]int{{100, 24}, {100, 30}, {130, 40}}},
	} {
		t.Run(name, func(t *testing.T) {
			run, sizes := test.recorded, test.sizes
			synctest.Test(t, func(t *testing.T) {
				term := &locked{vt: newVT(80, 24)}
				want := []string{"$ kubexm create cluster"}
				fmt.Fprintln(term, want[0])
				state := NewState(run.graph, time.Now())
				screen := NewScreen(Terminal{Out: term, Notices: term, Size: term.size, Style: style.New(true)}, "create cluster prod", state)
				replay(run, state, screen, func(at time.Duration) {
					checkScreen(t, term, state, want)
					switch second := int(at / time.Second); {
					case second%5 == 2:
						text := fmt.Sprintf("notice at %v", at)
						want = append(want, text)
						screen.Notice(text)
					case second%5 == 4 && second/5 < len(sizes):
						term.Lock()
						term.resize(sizes[second/5][0], sizes[second/5][1])
						term.Unlock()
					}
				})
				screen.End()
				fmt.Fprintln(term, "done")
				want = append(want, "done", "")
				if diff := cmp.Diff(want, term.all()); diff != "" {
					t.Errorf("left on the terminal (-want +got):\n%s", diff)
				}
				if len(term.faults) > 0 {
					t.Errorf("%d faults: %q", len(term.faults), term.faults[0])
				}
				seconds := int(time.Since(state.begun) / time.Second)
				if most := 11*seconds + 4*len(want) + 10; term.writes > most {
					t.Errorf("%d writes in %d seconds", term.writes, seconds)
				}
			})
		})
	}
}

// checkScreen compares what the terminal shows with the state.
func checkScreen(t *testing.T, term *locked, s *State, above []string) {
	t.Helper()
	term.Lock()
	defer term.Unlock()
	lines := s.lines("create cluster prod", time.Now(), term.width, term.height, style.Style{})
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	want := append(slices.Concat(above, lines), "")
	if diff := cmp.Diff(want, term.all()); diff != "" {
		t.Errorf("after %v on %dx%d (-want +got):\n%s", time.Since(s.begun), term.width, term.height, diff)
	}
}

// TestScreenWritesLittle counts what is written when next to nothing happens.
func TestScreenWritesLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := created(t)
		state := NewState(run.graph, time.Now())
		var out counter
		screen := NewScreen(Terminal{Out: &out, Notices: io.Discard, Size: func() (int, int) { return 80, 24 }}, "create", state)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		screen.End()
		if perSecond := out.bytes / 10; perSecond > 2500 {
			t.Errorf("%d bytes a second while nothing happens", perSecond)
		}
	})
}

type counter struct{ bytes int }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += len(p)
	return len(p), nil
}

// TestPlain plays a record as lines.
func TestPlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Local = time.UTC //nolint:gosmopolitan // lines show local time
		run := created(t)
		var out, notices strings.Builder
		state := NewState(run.graph, time.Now())
		plain := NewPlain(&out, &notices, state)
		begin := time.Now()
		for _, ev := range run.events {
			time.Sleep(ev.Time.Sub(run.events[0].Time) - time.Since(begin))
			ev.Time = time.Now()
			state.Apply(ev)
			plain.Event(ev)
		}
		plain.Notice("the end")
		plain.End()
		golden.Equal(t, out.String(), "real.txt")
		if notices.String() != "the end\n" {
			t.Errorf("notices: %q", notices.String())
		}
	})
}

// TestPlainMissesEvents has a reader that was too slow for three of them.
func TestPlainMissesEvents(t *testing.T) {
	var out strings.Builder
	plain := NewPlain(&out, &out, NewState(&plan.ExecutionGraph{}, time.Now()))
	plain.Event(engine.Event{Status: engine.OK, Missed: 3})
	plain.End()
	if want := "(3 events not shown: this output is read too slowly)\n"; out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

// TestLine describes every kind of event.
func TestLine(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local) //nolint:gosmopolitan // lines show local time
	var b strings.Builder
	for _, all := range []bool{false, true} {
		for _, status := range []engine.Status{
			engine.Started, engine.Progress, engine.Retry, engine.OK, engine.Changed, engine.Pending, engine.Failed, engine.Skipped, engine.Restored,
		} {
			ev := engine.Event{Time: at, Host: "node1", What: "service etcd", Status: status, Duration: 1200 * time.Millisecond}
			if status == engine.Failed || status == engine.Retry {
				ev.Error = "exited with status 1: \x1b[31mno\x1b[m\nmore"
			}
			if line := Line(ev, all); line != "" {
				b.WriteString(line + "\n")
			}
		}
		b.WriteString("\n")
	}
	golden.Equal(t, b.String(), "lines.txt")
}

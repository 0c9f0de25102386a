package progress

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// heartbeat is how often plain lines say what is running.
const heartbeat = 15 * time.Second

// Plain writes a line for each step that changed something or failed, and now
// and then one that says what is running.
type Plain struct {
	state   *State
	mu      sync.Mutex // guards what is written to
	w       io.Writer
	notices io.Writer
	end     chan struct{}
	ended   sync.WaitGroup
}

// NewPlain begins to show a run. Events must have been applied to its state
// before they are shown.
func NewPlain(w, notices io.Writer, s *State) *Plain {
	p := &Plain{w: w, notices: notices, state: s, end: make(chan struct{})}
	p.ended.Go(func() {
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-p.end:
				return
			case now := <-tick.C:
				p.beat(now)
			}
		}
	})
	return p
}

// Event shows an event.
func (p *Plain) Event(ev engine.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ev.Missed > 0 {
		fmt.Fprintf(p.w, "(%s not shown: this output is read too slowly)\n", human.Count(ev.Missed, "event"))
	}
	if line := Line(ev, false); line != "" {
		fmt.Fprintln(p.w, line)
	}
}

// Notice shows a text aside from events.
func (p *Plain) Notice(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.notices, text)
}

// Line describes an event in a line. Without all it is empty for events that
// neither changed anything nor failed.
func Line(ev engine.Event, all bool) string {
	text := ev.What
	switch {
	case ev.Error != "":
		text += ": " + firstLine(ev.Error)
	case ev.Status == engine.Progress && all:
		text += ": " + ev.Text
	case ev.Status == engine.Changed:
		text += "  " + human.Duration(ev.Duration)
	case ev.Status != engine.Restored && !all:
		return ""
	}
	return fmt.Sprintf("%s  %-8s  %-10s  %s", ev.Time.Local().Format(time.TimeOnly), ev.Status, ev.Host, text)
}

func (p *Plain) beat(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	running := p.state.longest()
	if len(running) == 0 {
		return
	}
	const most = 4
	var parts []string
	for i, s := range running {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d more", len(running)-i))
			break
		}
		part := fmt.Sprintf("%s: %s %s", s.host, s.what, human.Duration(now.Sub(s.since)))
		if s.text != "" {
			part += " (" + s.text + ")"
		}
		parts = append(parts, part)
	}
	fmt.Fprintf(p.w, "%s  %-8s  %d of %d steps done; %s\n", now.Local().Format(time.TimeOnly), "running", p.state.done(), p.state.counts.Total, strings.Join(parts, "; "))
}

// End stops showing.
func (p *Plain) End() {
	close(p.end)
	p.ended.Wait()
}

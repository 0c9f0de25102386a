package progress

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/engine"
)

// frame is how often the screen is drawn.
const frame = 100 * time.Millisecond

// Terminal is what a Screen draws on.
type Terminal struct {
	Out     io.Writer
	Notices io.Writer                  // for texts aside from progress; may be the same terminal
	Size    func() (width, height int) // asked for each frame
	Style   style.Style
}

// Screen draws the state of a run in the last lines of a terminal, over and over.
// What was on the terminal before scrolls up unharmed.
type Screen struct {
	Terminal
	title string
	state *State
	end   chan struct{}
	ended sync.WaitGroup

	mu    sync.Mutex // guards what follows, and writing
	drawn []string   // lines that are on the terminal
	width int        // of the terminal when they were drawn
}

// NewScreen begins to show a run.
func NewScreen(t Terminal, title string, s *State) *Screen {
	sc := &Screen{Terminal: t, title: title, state: s, end: make(chan struct{})}
	sc.draw(time.Now())
	sc.ended.Go(func() {
		tick := time.NewTicker(frame)
		defer tick.Stop()
		for {
			select {
			case <-sc.end:
				return
			case now := <-tick.C:
				sc.draw(now)
			}
		}
	})
	return sc
}

// Event does nothing: the next frame shows what came of it.
func (sc *Screen) Event(engine.Event) {}

// Notice writes a text above the screen.
func (sc *Screen) Notice(text string) {
	sc.mu.Lock()
	sc.clear()
	fmt.Fprintln(sc.Notices, text)
	sc.mu.Unlock()
	sc.draw(time.Now())
}

// End takes the screen off the terminal.
func (sc *Screen) End() {
	close(sc.end)
	sc.ended.Wait()
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.clear()
}

// Terminal controls, ECMA-48 and xterm's: a frame appears at once where the
// terminal knows mode 2026, its lines never wrap.
const (
	beginFrame = "\x1b[?2026h\x1b[?25l\x1b[?7l"
	endFrame   = "\x1b[?7h\x1b[?25h\x1b[?2026l"
	eraseRight = "\x1b[K"
	eraseBelow = "\x1b[J"
)

// clear takes the lines drawn off the terminal; the cursor is where they began.
// They are erased one by one: some terminals keep what is erased at once from the
// top of the screen on.
func (sc *Screen) clear() {
	if len(sc.drawn) > 0 {
		rows := sc.rows(sc.Size())
		_, _ = io.WriteString(sc.Out, beginFrame+up(rows)+strings.Repeat(eraseRight+"\r\n", rows)+up(rows)+endFrame) // nobody to tell
		sc.drawn = nil
	}
}

// rows is how many rows of the terminal the lines drawn take: those that are wider
// than it has become are taken to have been wrapped by it.
func (sc *Screen) rows(width, height int) int {
	rows := 0
	for _, line := range sc.drawn {
		rows += max(1, (ansi.StringWidth(line)+width-1)/width)
	}
	return min(rows, height-1)
}

// up moves the cursor to the begin of an earlier row.
func up(rows int) string {
	if rows == 0 {
		return "\r"
	}
	return fmt.Sprintf("\r\x1b[%dA", rows)
}

// draw brings the terminal to the state, in one write.
func (sc *Screen) draw(now time.Time) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	width, height := sc.Size()
	lines := sc.state.lines(sc.title, now, width, height, sc.Style)
	var b strings.Builder
	b.WriteString(beginFrame + up(sc.rows(width, height)))
	resized := width != sc.width
	for i, line := range lines {
		if resized || i >= len(sc.drawn) || sc.drawn[i] != line {
			b.WriteString(line + eraseRight)
		}
		b.WriteString("\r\n")
	}
	if resized || len(lines) < len(sc.drawn) {
		b.WriteString(eraseBelow)
	}
	b.WriteString(endFrame)
	_, _ = io.WriteString(sc.Out, b.String()) // nobody to tell
	sc.drawn, sc.width = lines, width
}

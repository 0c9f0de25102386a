// Command picture makes an animated SVG of what a program wrote to a terminal: picture TYPESCRIPT TIMING, which script(1) recorded, to standard
// output. Time passes faster than it did.
package main

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"io"
	"os"
	"strings"
	"time"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
)

const (
	columns, rows = 100, 16 // as in picture.sh
	speed         = 4
	step          = time.Second     // of the program's time, from one frame to the next
	rest          = 6 * time.Second // of the viewer's time, on the last frame
	charWidth     = 8.4             // of most monospaced fonts at 14 pixels
	lineHeight    = 18
	margin        = 14
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: picture TYPESCRIPT TIMING")
		os.Exit(2)
	}
	frames, err := read(os.Args[1], os.Args[2])
	if err == nil {
		_, err = os.Stdout.WriteString(draw(frames))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// frame is what a terminal shows at one moment, as lines of SVG.
type frame [rows]string

// read replays what a program wrote, and takes a frame at each step of time.
func read(typescript, timing string) (frames []frame, err error) {
	text, err := os.ReadFile(typescript)
	if err != nil {
		return nil, fmt.Errorf("reading what was written: %w", err)
	}
	_, text, _ = bytes.Cut(text, []byte("\n")) // of script's own
	times, err := os.ReadFile(timing)
	if err != nil {
		return nil, fmt.Errorf("reading when it was written: %w", err)
	}
	term := vt.NewEmulator(columns, rows)
	go func() { _, _ = io.Copy(io.Discard, term) }() // its answers to the program
	var now, next time.Duration
	for line := range strings.Lines(string(times)) {
		var seconds float64
		var n int
		if _, err := fmt.Sscan(line, &seconds, &n); err != nil || n > len(text) {
			return nil, fmt.Errorf("%s does not fit %s: %q", timing, typescript, line)
		}
		for now += time.Duration(seconds * float64(time.Second)); now >= next; next += step {
			frames = append(frames, snapshot(term))
		}
		if _, err := term.Write(text[:n]); err != nil {
			return nil, err
		}
		text = text[n:]
	}
	return append(frames, snapshot(term)), nil
}

func snapshot(term *vt.Emulator) (f frame) {
	for y := range f {
		var b strings.Builder
		for x := 0; x < columns; {
			begin, of := x, term.CellAt(x, y)
			var text strings.Builder
			for ; x < columns; x++ { // what has one style
				c := term.CellAt(x, y)
				if c.Width == 0 && x > begin {
					continue // the second half of a wide character
				}
				if !c.Style.Equal(&of.Style) {
					break
				}
				text.WriteString(c.Content)
			}
			shown := strings.TrimLeft(text.String(), " ")
			begin += text.Len() - len(shown)
			if shown = strings.TrimRight(shown, " "); shown != "" {
				fmt.Fprintf(&b, `<text x="%.1f" textLength="%.1f"%s>%s</text>`, float64(begin)*charWidth, float64(ansi.StringWidth(shown))*charWidth, class(of.Style), html.EscapeString(shown))
			}
		}
		f[y] = b.String()
	}
	return f
}

func class(s uv.Style) string {
	var names []string
	if s.Attrs&uv.AttrBold != 0 {
		names = append(names, "b")
	}
	if s.Attrs&uv.AttrFaint != 0 {
		names = append(names, "d")
	}
	if n, is := s.Fg.(ansi.BasicColor); is {
		names = append(names, fmt.Sprintf("c%d", n%8))
	}
	if names == nil {
		return ""
	}
	return fmt.Sprintf(` class=%q`, strings.Join(names, " "))
}

// palette has the first eight colors of a terminal, and those of its text and background.
var palette = struct {
	basic            [8]color.RGBA
	text, background color.RGBA
}{
	[8]color.RGBA{{0x6e, 0x76, 0x81, 255}, {0xff, 0x7b, 0x72, 255}, {0x7e, 0xe7, 0x87, 255}, {0xe3, 0xb3, 0x41, 255}, {0x79, 0xc0, 0xff, 255}, {0xd2, 0xa8, 0xff, 255}, {0x76, 0xd9, 0xe6, 255}, {0xf0, 0xf6, 0xfc, 255}},
	color.RGBA{0xe6, 0xed, 0xf3, 255},
	color.RGBA{0x0d, 0x11, 0x17, 255},
}

func hex(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

// draw puts the frames one beside the other, and moves them past a window. A line that is there more than once is drawn once. Who does not
// move pictures shows a frame in the middle.
func draw(frames []frame) string {
	width, height := columns*charWidth+2*margin, float64(rows*lineHeight+2*margin)
	length := time.Duration(len(frames)-1)*step/speed + rest
	still := len(frames) * 2 / 3
	var b, keys, lines, body strings.Builder
	known := map[string]int{}
	for i, f := range frames {
		at := float64(i-still) * width // 0 for the one that stands still
		fmt.Fprintf(&keys, "%.3f%%{transform:translateX(%.0fpx)}", float64(time.Duration(i)*step/speed)/float64(length)*100, -at)
		fmt.Fprintf(&body, `<g transform="translate(%.0f %d)">`, at+margin, margin+lineHeight-4)
		for y, line := range f {
			if line == "" {
				continue
			}
			id, is := known[line]
			if !is {
				id = len(known)
				known[line] = id
				fmt.Fprintf(&lines, "<g id=\"l%d\">%s</g>\n", id, line)
			}
			fmt.Fprintf(&body, `<use href="#l%d" y="%d"/>`, id, y*lineHeight)
		}
		body.WriteString("</g>\n")
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f"`, width, height, width, height)
	b.WriteString(` role="img" aria-label="kubexm create cluster, as it runs">` + "\n<style>")
	fmt.Fprintf(&b, "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;fill:%s}.b{font-weight:bold}.d{opacity:.6}", hex(palette.text))
	for i, c := range palette.basic {
		fmt.Fprintf(&b, ".c%d{fill:%s}", i, hex(c))
	}
	fmt.Fprintf(&b, "@keyframes play{%s100%%{transform:translateX(%.0fpx)}}.play{animation:play %.2fs steps(1,end) infinite}", keys.String(), -float64(len(frames)-1-still)*width, length.Seconds())
	fmt.Fprintf(&b, "</style>\n<rect width=\"%.0f\" height=\"%.0f\" rx=\"8\" fill=\"%s\"/>\n<defs>\n", width, height, hex(palette.background))
	fmt.Fprintf(&b, "%s</defs>\n<g class=\"play\">\n%s</g>\n</svg>\n", lines.String(), body.String())
	return b.String()
}

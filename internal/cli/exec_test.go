package cli

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// TestRawKeys copies keys of a terminal as a login does: the terminal is raw from the first key that is asked for until the end.
func TestRawKeys(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	raw := func() bool {
		is, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return is.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0
	}
	if !term.IsTerminal(int(tty.Fd())) || raw() {
		t.Fatal("no terminal to begin with")
	}
	keys := &rawKeys{file: tty}
	r, w := io.Pipe()
	go func() { _, _ = io.Copy(w, keys) }()
	for begun := time.Now(); !raw() && time.Since(begun) < 10*time.Second; time.Sleep(time.Millisecond) {
	}
	if _, err := master.WriteString("\x03"); err != nil { // Ctrl-C, without a line's end
		t.Fatal(err)
	}
	got := make([]byte, 1)
	if _, err := io.ReadFull(r, got); err != nil || got[0] != 3 || !raw() {
		t.Errorf("got %q, %v; raw: %v", got, err, raw())
	}
	keys.restore()
	if raw() {
		t.Error("the terminal stays raw")
	}
	if _, err := keys.Read(got); err != io.EOF || raw() {
		t.Errorf("a late key: %v; raw: %v", err, raw())
	}
}

// TestLines has two hosts that answer at once, with a line without an end, one that is long, and escapes.
func TestLines(t *testing.T) {
	var out bytes.Buffer
	var mu sync.Mutex
	one, two := lines{to: &out, mu: &mu, prefix: "one  "}, lines{to: &out, mu: &mu, prefix: "two  "}
	for _, w := range []struct {
		to   *lines
		text string
	}{{&one, "a\nb"}, {&two, "\x1b[2Jc\r\n"}, {&one, "b\nlast"}, {&two, strings.Repeat("x", 70<<10) + "\n"}} {
		if n, err := w.to.Write([]byte(w.text)); n != len(w.text) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	one.end()
	two.end()
	want := "one  a\ntwo  c\none  bb\ntwo  " + strings.Repeat("x", 64<<10) + "\ntwo  " + strings.Repeat("x", 6<<10) + "\none  last\n"
	if out.String() != want {
		t.Errorf("got %.200q", out.String())
	}
}

package human

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:                            "0.0s",
		0:                                       "0.0s",
		449 * time.Millisecond:                  "0.4s",
		9949 * time.Millisecond:                 "9.9s",
		9950 * time.Millisecond:                 "10s",
		59499 * time.Millisecond:                "59s",
		59500 * time.Millisecond:                "1m00s",
		61 * time.Second:                        "1m01s",
		59*time.Minute + 59600*time.Millisecond: "1h00m",
		26*time.Hour + 3*time.Minute:            "26h03m",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%d ms) = %q, want %q", d.Milliseconds(), got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 KiB", 1 << 20: "1.0 MiB", 5_100_000_000: "4.7 GiB", 3 << 50: "3072.0 TiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

func TestCountAndNames(t *testing.T) {
	for got, want := range map[string]string{
		Count(0, "step"): "0 steps", Count(1, "step"): "1 step", Count(2, "step"): "2 steps",
		Names(nil, 2): "", Names([]string{"a", "b", "c"}, 2): "a, b, c", Names([]string{"a", "b", "c", "d"}, 2): "a, b and 2 more",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain, Ünïcode 世界\n\tindented": "plain, Ünïcode 世界\n\tindented",
		"\x1b[31mred\x1b[0m":            "red",
		"\x1b]0;title\x07shown":         "shown",
		"\x1b]8;;http://evil\x1b\\link": "link",
		"back\b\b\rover\x00\x7f":        "backover",
		"c1 \u009b31m\u0085":            "c1 31m",
		"bidi \u202etxt.exe\u2066":      "bidi txt.exe",
		"bad \xff\xfe utf":              "bad \uFFFD utf",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
	long := Clean(strings.Repeat("世", MostText))
	if !utf8.ValidString(long) || len(long) > MostText+100 || !strings.HasSuffix(long, "(128.0 KiB more)") {
		t.Errorf("a long text: %d bytes, ends in %q", len(long), long[len(long)-40:])
	}
	if got := Line(" one\n\ttwo\x1b[2J\n"); got != "one  two" {
		t.Errorf("Line: %q", got)
	}
}

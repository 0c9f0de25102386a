package human

import (
	"testing"
	"time"
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

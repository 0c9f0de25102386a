package cable

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ends returns two files that pass datagrams to one another, as an interface
// and what is plugged into it.
func ends(t *testing.T) (inside, outside *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	inside, outside = os.NewFile(uintptr(fds[0]), "inside"), os.NewFile(uintptr(fds[1]), "outside")
	t.Cleanup(func() { outside.Close() })
	return inside, outside
}

func TestCarry(t *testing.T) {
	near, node := ends(t)
	far, bridge := ends(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- (&Cable{near, far}).Carry(ctx, time.Millisecond, 100e6)
	}()
	buf := make([]byte, 2000)
	for _, way := range [][2]*os.File{{node, bridge}, {bridge, node}} {
		for i := range 10 {
			if _, err := way[0].WriteString("frame " + strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 10 {
			n, err := way[1].Read(buf)
			if want := "frame " + strconv.Itoa(i); err != nil || string(buf[:n]) != want {
				t.Fatalf("got %q, %v; want %q", buf[:n], err, want)
			}
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := near.Stat(); err == nil {
		t.Error("the cable is still open")
	}
}

// What is sent is due after the delay, and no sooner than the rate allows.
func TestReceive(t *testing.T) {
	near, node := ends(t)
	frames := make(chan frame, 3)
	start := time.Now()
	for range 3 {
		if _, err := node.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	go receive(t.Context(), near, frames, time.Second, 8000) // a frame takes a second
	for i := range 3 {
		if f := <-frames; f.due.Before(start.Add(time.Duration(i+2) * time.Second)) {
			t.Errorf("frame %d is due after %v", i, f.due.Sub(start))
		}
	}
	near.Close()
}

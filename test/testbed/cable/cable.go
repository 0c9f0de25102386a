// Package cable is a network cable with a length: it carries the frames of an
// interface over a program that holds them back. Unlike the kernel's netem it
// is there on every kernel that has tap interfaces.
package cable

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// queue is how many frames wait in each direction; the kernel drops what comes
// on top, as a router would.
const queue = 2000

// A Cable connects the interface at one end with a tap interface at the other.
type Cable struct {
	near, far *os.File
}

// Open makes the tap interface far and takes over what comes in on the
// interface near, which must belong to nothing else (no bridge, no addresses).
func Open(near, far string) (*Cable, error) {
	tap, err := openTap(far)
	if err != nil {
		return nil, fmt.Errorf("making interface %s: %w", far, err)
	}
	raw, err := openRaw(near)
	if err != nil {
		tap.Close()
		return nil, fmt.Errorf("listening on interface %s: %w", near, err)
	}
	return &Cable{raw, tap}, nil
}

// Carry passes frames on until ctx ends, each one way after delay and, when
// rate is not 0, at no more than rate bits per second and direction. It closes
// the cable, and with it the tap interface goes.
func (c *Cable) Carry(ctx context.Context, delay time.Duration, rate int64) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, way := range [][2]*os.File{{c.near, c.far}, {c.far, c.near}} {
		frames := make(chan frame, queue)
		group.Go(func() error { return receive(ctx, way[0], frames, delay, rate) })
		group.Go(func() error { return send(way[1], frames) })
	}
	group.Go(func() error {
		<-ctx.Done()
		return errors.Join(c.near.Close(), c.far.Close())
	})
	if err := group.Wait(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

type frame struct {
	due  time.Time
	data []byte
}

// receive reads frames and says when each is due at the other end.
func receive(ctx context.Context, from *os.File, frames chan<- frame, delay time.Duration, rate int64) error {
	defer close(frames)
	var free time.Time // when the line has sent all that came before
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if errors.Is(err, unix.ENETDOWN) {
			continue // the interface went down and may come back
		}
		if err != nil {
			return fmt.Errorf("receiving frames: %w", err)
		}
		now := time.Now()
		if free.Before(now) {
			free = now
		}
		if rate > 0 {
			free = free.Add(time.Duration(int64(n) * 8 * int64(time.Second) / rate))
		}
		select {
		case frames <- frame{free.Add(delay), append([]byte(nil), buf[:n]...)}:
		case <-ctx.Done():
			return nil
		}
	}
}

// send writes frames when they are due.
func send(to *os.File, frames <-chan frame) error {
	for f := range frames {
		time.Sleep(time.Until(f.due))
		if _, err := to.Write(f.data); errors.Is(err, os.ErrClosed) {
			return err
		}
	}
	return nil
}

func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openRaw opens a socket for the whole frames that come in on an interface.
func openRaw(name string) (*os.File, error) {
	iface, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: iface.Index}))
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

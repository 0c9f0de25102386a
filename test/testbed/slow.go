package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/kubexm/kubexm/test/testbed/cable"
	"github.com/kubexm/kubexm/test/testbed/host"
)

// tap is the bridge's end of a node's long cable.
func (t *Testbed) tap(node string) string { return t.own(node) + "t" }

// Slow puts rtt between a node and everything else, and limits each direction
// to rate bits per second when it is not 0. It returns when that is in effect;
// wait returns when it has ended, with ctx. A node is slow in one way at a time.
func (t *Testbed) Slow(ctx context.Context, n Node, rtt time.Duration, rate int64) (wait func() error, err error) {
	port, ns := t.own(n.Name), t.own(n.Name)
	for _, c := range []string{
		"ip link set " + port + " nomaster arp off",       // nobody but the cable listens there
		"ip netns exec " + ns + " ethtool -K eth0 tx off", // checksums are the sender's matter
		"ip netns exec " + ns + " ethtool -K eth0 gro off",
	} {
		if err := command(ctx, c); err != nil {
			return nil, err
		}
	}
	line, err := cable.Open(port, t.tap(n.Name))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- line.Carry(ctx, rtt/2, rate) }()
	wait = func() error {
		defer stop()
		return errors.Join(<-ended, t.shorten(context.WithoutCancel(ctx), n))
	}
	if err := command(ctx, "ip link set "+t.tap(n.Name)+" master "+t.bridge()+" up"); err != nil {
		stop()
		return nil, errors.Join(err, wait())
	}
	return wait, nil
}

// shorten connects a node's cable straight to the bridge again.
func (t *Testbed) shorten(ctx context.Context, n Node) error {
	ns := t.own(n.Name)
	if _, err := net.InterfaceByName(ns); err != nil {
		return nil // the node is off
	}
	for _, c := range []string{
		"ip netns exec " + ns + " ethtool -K eth0 tx on",
		"ip netns exec " + ns + " ethtool -K eth0 gro on",
		"ip link set " + ns + " master " + t.bridge() + " arp on",
	} {
		if err := command(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// SlowDetached starts this program again to keep a node slow until Heal.
func (t *Testbed) SlowDetached(ctx context.Context, n Node, rtt time.Duration, rate int64) error {
	if err := t.Heal(ctx, n); err != nil {
		return err
	}
	args := []string{"cable", n.Name, rtt.String()}
	if rate > 0 {
		args = append(args, strconv.FormatInt(rate, 10)+"bit")
	}
	return t.detach(ctx, t.dir(n.Name, "cable"), "the long cable of "+n.Name, args, func() bool {
		_, err := host.Run(ctx, "ip", "link", "show", "up", "master", t.bridge(), "dev", t.tap(n.Name))
		return err == nil
	})
}

// Rate reads a rate in bits per second: 1gbit, 100mbit, 64kbit, 300bit.
func Rate(s string) (int64, error) {
	for _, unit := range []struct {
		name string
		bits int64
	}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}} {
		if number, ok := strings.CutSuffix(s, unit.name); ok {
			if n, err := strconv.ParseInt(number, 10, 64); err == nil && n > 0 {
				return n * unit.bits, nil
			}
		}
	}
	return 0, fmt.Errorf("rate %q: want a number and bit, kbit, mbit or gbit", s)
}

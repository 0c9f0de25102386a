package testbed

import (
	"context"
	"fmt"
	"strings"

	"github.com/kubexm/kubexm/test/testbed/host"
)

// outpost is the name of the namespace in which programs run that Isolate shuts in with the nodes.
const outpost = "control"

// wall is the chain that drops what wants out of an isolated testbed.
func (t *Testbed) wall() string { return t.chain() + "-WALL" }

// outpostAddress is the address of the namespace.
func (t *Testbed) outpostAddress() string { return fmt.Sprintf("10.%d.0.9", t.network) }

// Isolate shuts the nodes in, and with them programs that run by Inside: they reach one
// another, and every packet that wants to anywhere else, this machine and a name server on its loopback
// interface included, is dropped and counted. Answers to who calls from this machine get through. Release undoes it.
func (t *Testbed) Isolate(ctx context.Context) error {
	if err := t.Release(ctx); err != nil {
		return err
	}
	if err := t.plugIn(ctx, Node{Name: outpost, Address: t.outpostAddress()}); err != nil {
		return err
	}
	br, wall, inside := t.bridge(), t.wall(), strings.Join(t.Inside(), " ")+" "
	for _, c := range []string{
		"iptables -w -N " + wall,
		"iptables -w -A " + wall + " -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN",
		"iptables -w -A " + wall + " -j DROP",
		"iptables -w -I INPUT -i " + br + " -j " + wall,
		"iptables -w -I FORWARD -i " + br + " ! -o " + br + " -j " + wall,
		inside + "iptables -w -N " + wall,
		inside + "iptables -w -A " + wall + " -j DROP",
		inside + "iptables -w -A OUTPUT -o lo -p udp --dport 53 -j " + wall,
	} {
		if err := command(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// Inside is the beginning of a command line that runs a program where Isolate holds.
func (t *Testbed) Inside() []string { return []string{"ip", "netns", "exec", t.own(outpost)} }

// Tried counts the packets that wanted out since Isolate.
func (t *Testbed) Tried(ctx context.Context) (packets int64, err error) {
	list := []string{"iptables", "-w", "-nvxL", t.wall()}
	for _, c := range [][]string{list, append(t.Inside(), list...)} {
		out, err := host.Run(ctx, c[0], c[1:]...)
		if err != nil {
			return 0, err
		}
		for line := range strings.SplitSeq(out, "\n") {
			var n int64
			if f := strings.Fields(line); len(f) > 2 && f[2] == "DROP" {
				if _, err := fmt.Sscan(f[0], &n); err != nil {
					return 0, fmt.Errorf("reading %q: %w", line, err)
				}
				packets += n
			}
		}
	}
	return packets, nil
}

// Release undoes Isolate, as far as it was done.
func (t *Testbed) Release(ctx context.Context) error {
	br, wall := t.bridge(), t.wall()
	for _, rule := range []string{"INPUT -i " + br, "FORWARD -i " + br + " ! -o " + br} {
		for command(ctx, "iptables -w -D "+rule+" -j "+wall) == nil {
		}
	}
	if command(ctx, "iptables -w -F "+wall) == nil {
		if err := command(ctx, "iptables -w -X "+wall); err != nil {
			return err
		}
	}
	return t.unplug(ctx, outpost)
}

package testbed

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/test/testbed/host"
)

// outpost is the name of the namespace in which programs run that Isolate shuts in with the nodes.
const outpost = "control"

// wall is the chain that drops what wants out of an isolated testbed.
func (t *Testbed) wall() string { return t.chain() + "-WALL" }

// walled are the packet filters of the testbed's families, each a command.
func (t *Testbed) walled() []string {
	switch t.Family() {
	case Dual:
		return []string{"iptables", "ip6tables"}
	case IPv6:
		return []string{"ip6tables"}
	}
	return []string{"iptables"}
}

// astray is the routing table that leads IPv6 packets for anywhere to the wall: this machine does not forward them.
func (t *Testbed) astray() string { return strconv.Itoa(1000 + t.network) }

// Isolate shuts the nodes in, and with them programs that run by Inside: they reach one
// another, and every packet that wants to anywhere else, this machine and a name server on its loopback
// interface included, is dropped and counted. Answers to who calls from this machine get through. Release undoes it.
func (t *Testbed) Isolate(ctx context.Context) error {
	if err := t.Release(ctx); err != nil {
		return err
	}
	if err := t.plugIn(ctx, Node{Name: outpost}.at(t.addresses(9))); err != nil {
		return err
	}
	var all []string
	for _, filter := range t.walled() {
		all = append(all, t.wallIn(filter+" -w")...)
	}
	return commands(ctx, all...)
}

// wallIn is what makes the wall of a packet filter. With IPv6, finding one another on the link is part of it: no packet wants out for that.
func (t *Testbed) wallIn(filter string) []string {
	br, wall, inside := t.bridge(), t.wall(), strings.Join(t.Inside(), " ")+" "
	all := []string{filter + " -N " + wall, filter + " -A " + wall + " -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN"}
	if strings.HasPrefix(filter, "ip6") {
		all = append(all, filter+" -A "+wall+" -d ff02::/16 -j RETURN",
			filter+" -A "+wall+" -p icmpv6 --icmpv6-type neighbour-solicitation -j RETURN",
			filter+" -A "+wall+" -p icmpv6 --icmpv6-type neighbour-advertisement -j RETURN",
			"ip -6 route add local default dev lo table "+t.astray(), "ip -6 rule add iif "+br+" lookup "+t.astray())
	}
	return append(all,
		filter+" -A "+wall+" -j DROP",
		filter+" -I INPUT -i "+br+" -j "+wall,
		filter+" -I FORWARD -i "+br+" ! -o "+br+" -j "+wall,
		inside+filter+" -N "+wall,
		inside+filter+" -A "+wall+" -j DROP",
		inside+filter+" -A OUTPUT -o lo -p udp --dport 53 -j "+wall)
}

// Inside is the beginning of a command line that runs a program where Isolate holds.
func (t *Testbed) Inside() []string { return []string{"ip", "netns", "exec", t.own(outpost)} }

// Tried counts the packets that wanted out since Isolate.
func (t *Testbed) Tried(ctx context.Context) (packets int64, err error) {
	var lists [][]string
	for _, filter := range t.walled() {
		list := []string{filter, "-w", "-nvxL", t.wall()}
		lists = append(lists, list, slices.Concat(t.Inside(), list))
	}
	for _, c := range lists {
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
	for _, filter := range t.walled() {
		for _, rule := range []string{"INPUT -i " + br, "FORWARD -i " + br + " ! -o " + br} {
			for command(ctx, filter+" -w -D "+rule+" -j "+wall) == nil {
			}
		}
		if command(ctx, filter+" -w -F "+wall) == nil {
			if err := command(ctx, filter+" -w -X "+wall); err != nil {
				return err
			}
		}
	}
	if t.Family() != IPv4 {
		for command(ctx, "ip -6 rule del iif "+br+" lookup "+t.astray()) == nil {
		}
		_ = command(ctx, "ip -6 route flush table "+t.astray()) // of which there may be none
	}
	return t.unplug(ctx, outpost)
}

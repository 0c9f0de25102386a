package testbed

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/test/testbed/host"
)

// chain holds this testbed's rules, in the nat and in the filter table.
func (t *Testbed) chain() string { return "KUBEXM-" + strings.ToUpper(t.Name) }

// A jump is a rule that leads into chain, and what it finds there.
type jump struct {
	table, how, from string // the beginning of a command; whether it comes first or last; the chain that it is in
	rules            []string
}

// jumps are those that the testbed's families need. IPv6 has no way to what this machine reaches.
func (t *Testbed) jumps() []jump {
	br := t.bridge()
	pass := []string{"-i " + br + " -j ACCEPT", "-o " + br + " -j ACCEPT"}
	all := []jump{
		{"iptables -w -t nat", "-A", "POSTROUTING", []string{"-s " + t.Subnet() + " ! -o " + br + " -j MASQUERADE"}}, // not what only crosses the bridge
		{"iptables -w -t filter", "-I", "FORWARD", pass},
		{"ip6tables -w -t filter", "-I", "FORWARD", pass},
	}
	switch t.Family() {
	case Dual:
		return all
	case IPv6:
		return all[2:]
	}
	return all[:2]
}

// netUp makes the bridge and lets nodes reach what this machine reaches.
func (t *Testbed) netUp(ctx context.Context) error {
	switch owner := addressOwner(t.Gateway()); owner {
	case t.bridge():
		return nil
	case "": // not made, or only in part
		if err := t.netDown(ctx); err != nil {
			return err
		}
	default:
		return fmt.Errorf("the address %s of testbed %s is in use on interface %s: choose another testbed name", t.Gateway(), t.Name, owner)
	}
	br, chain := t.bridge(), t.chain()
	var all []string
	for _, j := range t.jumps() {
		all = append(all, j.table+" -N "+chain)
		for _, r := range j.rules {
			all = append(all, j.table+" -A "+chain+" "+r)
		}
		all = append(all, j.table+" "+j.how+" "+j.from+" -j "+chain)
	}
	all = append(all, "ip link add "+br+" type bridge", "ip link set "+br+" up")
	for _, a := range t.addresses(1) {
		all = append(all, "ip addr add "+onLink(a, br))
	}
	return commands(ctx, all...)
}

// Sent counts the bytes that this machine, not its nodes, has sent to nodes.
func (t *Testbed) Sent() (n int64, err error) {
	text, err := os.ReadFile(filepath.Join("/sys/class/net", t.bridge(), "statistics/tx_bytes"))
	if err == nil {
		_, err = fmt.Sscan(string(text), &n)
	}
	return n, err
}

// netDown removes the bridge and the rules, as far as they are there.
func (t *Testbed) netDown(ctx context.Context) error {
	if err := t.Release(ctx); err != nil {
		return err
	}
	for _, j := range t.jumps() {
		for command(ctx, j.table+" -D "+j.from+" -j "+t.chain()) == nil {
		}
		if command(ctx, j.table+" -F "+t.chain()) == nil {
			if err := command(ctx, j.table+" -X "+t.chain()); err != nil {
				return err
			}
		}
	}
	if _, err := net.InterfaceByName(t.bridge()); err == nil {
		return command(ctx, "ip link del "+t.bridge())
	}
	return nil
}

func addressOwner(ip string) string {
	ifaces, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, i := range ifaces {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.String() == ip {
				return i.Name
			}
		}
	}
	return ""
}

// plugIn makes the node's network namespace again, as a reboot would.
func (t *Testbed) plugIn(ctx context.Context, n Node) error {
	if err := t.unplug(ctx, n.Name); err != nil {
		return err
	}
	ns := t.own(n.Name)
	all := []string{
		"ip netns add " + ns,
		"ip link add " + ns + " type veth peer name eth0 address " + hardwareAddress(n) + " netns " + ns,
		"ip link set " + ns + " master " + t.bridge() + " up",
		"ip netns exec " + ns + " sysctl -q -w net.ipv4.ip_forward=0", // a new namespace takes after this machine
	}
	if t.Family() != IPv4 { // its addresses and routes are those that are given to it
		all = append(all, "ip netns exec "+ns+" sysctl -q -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.all.forwarding=0 net.ipv6.conf.eth0.accept_ra=0")
	}
	all = append(all, "ip -n "+ns+" link set lo up", "ip -n "+ns+" link set eth0 up")
	for i, a := range n.Addresses() {
		all = append(all, "ip -n "+ns+" addr add "+onLink(a, "eth0"), "ip -n "+ns+" route add default via "+t.addresses(1)[i])
	}
	return commands(ctx, all...)
}

// hardwareAddress is one that the node keeps.
func hardwareAddress(n Node) string {
	ip := net.ParseIP(n.Address).To16()
	return net.HardwareAddr{0x02, 0, ip[12], ip[13], ip[14], ip[15]}.String()
}

func (t *Testbed) unplug(ctx context.Context, node string) error {
	ns := t.own(node)
	if _, err := net.InterfaceByName(ns); err == nil {
		if err := command(ctx, "ip link del "+ns); err != nil {
			return err
		}
	}
	if _, err := os.Stat("/run/netns/" + ns); err == nil {
		return command(ctx, "ip netns del "+ns)
	}
	return nil
}

// plugged lists the nodes that have a namespace or an interface.
func (t *Testbed) plugged() []string {
	paths, _ := filepath.Glob("/run/netns/" + t.own("node*"))
	links, _ := filepath.Glob("/sys/class/net/" + t.own("node*"))
	var nodes []string
	for _, p := range append(paths, links...) {
		nodes = append(nodes, strings.TrimPrefix(filepath.Base(p), t.Name+"-"))
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Cut takes the node's network away, as pulling the cable would.
func (t *Testbed) Cut(ctx context.Context, n Node) error {
	return command(ctx, "ip link set "+t.own(n.Name)+" down")
}

// Heal undoes Cut and Slow.
func (t *Testbed) Heal(ctx context.Context, n Node) error {
	if err := endDetached(ctx, t.dir(n.Name, "cable")); err != nil {
		return err
	}
	if err := t.shorten(ctx, n); err != nil {
		return err
	}
	if err := command(ctx, "ip link set "+t.own(n.Name)+" up"); err != nil {
		return err
	}
	for _, a := range n.Addresses() { // this machine may be about to conclude that the node is not there: then it asks anew
		if err := command(ctx, "ip neigh flush to "+a+" dev "+t.bridge()); err != nil {
			return err
		}
	}
	return nil
}

// commands runs one after the other.
func commands(ctx context.Context, lines ...string) error {
	for _, l := range lines {
		if err := command(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// command runs a line that needs no quoting.
func command(ctx context.Context, line string) error {
	f := strings.Fields(line)
	_, err := host.Run(ctx, f[0], f[1:]...)
	return err
}

package testbed

import (
	"cmp"
	"fmt"
	"net"
	"strings"
)

// Families of addresses that a testbed can have.
const (
	IPv4 = "ipv4"
	Dual = "dual" // both, IPv4 first
	IPv6 = "ipv6" // alone: of IPv4, nodes have the loopback interface's address and nothing else
)

// Families are all of them.
var Families = []string{IPv4, Dual, IPv6}

// Family is the one that the first `up` was asked for.
func (t *Testbed) Family() string { return cmp.Or(t.settings().Family, IPv4) }

// addresses are those of the nodes' network with that last part, in the order of its families:
// 10.77.0.13, and fd00:10:77::13, which shows the same digits.
func (t *Testbed) addresses(last int) []string {
	all := []string{fmt.Sprintf("10.%d.0.%d", t.network, last), fmt.Sprintf("fd00:10:%d::%d", t.network, last)}
	switch t.Family() {
	case Dual:
		return all
	case IPv6:
		return all[1:]
	}
	return all[:1]
}

// Addresses are all of a node's, the first one being that by which it is reached.
func (n Node) Addresses() []string {
	if n.Second == "" {
		return []string{n.Address}
	}
	return []string{n.Address, n.Second}
}

// at gives Addresses to a node.
func (n Node) at(addresses []string) Node {
	n.Address = addresses[0]
	if len(addresses) > 1 {
		n.Second = addresses[1]
	}
	return n
}

// Port is the address of a port of the node.
func (n Node) Port(port string) string { return net.JoinHostPort(n.Address, port) }

// cidrs are the networks of a cluster's pods and services; empty where the defaults have the right family.
func (t *Testbed) cidrs() (pods, services string) {
	const pods4, services4, pods6, services6 = "10.233.64.0/18", "10.233.0.0/18", "fd00:10:233:40::/58", "fd00:10:233::/112"
	switch t.Family() {
	case Dual:
		return pods4 + "," + pods6, services4 + "," + services6
	case IPv6:
		return pods6, services6
	}
	return "", ""
}

// onLink says of an interface, to `ip addr add`, that it has an address. Nobody else can have the same one: an IPv6 address can be used at once.
func onLink(address, dev string) string {
	if strings.Contains(address, ":") {
		return address + "/64 dev " + dev + " nodad"
	}
	return address + "/24 dev " + dev
}

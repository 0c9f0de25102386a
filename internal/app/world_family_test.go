package app_test

import (
	"cmp"
	"net"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
)

// families are by the ends of names of rows, "row9-ipv6", what their configurations are like.
var families = map[string]string{"ipv6": "fd00::", "dual": ",fd00::"}

func dual(config string) bool { return strings.Contains(config, families["dual"]) }

// like gives addresses in a text the family that a configuration has: fd00::11 instead of 10.0.0.11; or hosts both of them.
func like(config, text string) string {
	switch {
	case dual(config):
		return clustertest.ToDualStack(text)
	case strings.Contains(config, families["ipv6"]):
		return clustertest.ToIPv6(text)
	}
	return text
}

func (w *world) like(text string) string { return like(w.first, text) }

// at is the primary address of a machine now.
func (w *world) at(host string) string { return cmp.Or(w.moved[host], w.like(addresses[host])) }

// ips are all its addresses.
func (w *world) ips(host string) []string {
	if dual(w.first) {
		return []string{w.at(host), clustertest.ToIPv6(addresses[host])}
	}
	return []string{w.at(host)}
}

// socket is a port there.
func (w *world) socket(host, port string) string { return net.JoinHostPort(w.at(host), port) }

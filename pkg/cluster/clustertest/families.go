package clustertest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster"
)

var (
	address = regexp.MustCompile(`(?:10\.0\.0|169\.254\.20)\.(\d+)`) // of machines, and of DNS caches
	host    = regexp.MustCompile(`address: (10\.0\.0\.(\d+)), roles`)
)

// ToIPv6 gives a configuration addresses of IPv6 alone: fd00::11 instead of 10.0.0.11.
func ToIPv6(config string) string { return address.ReplaceAllString(config, "fd00::$1") }

// ToDualStack gives the hosts of a configuration addresses of both families: 10.0.0.11,fd00::11.
func ToDualStack(config string) string {
	return host.ReplaceAllString(config, `address: $1, internalAddress: "$1,fd00::$2", roles`)
}

// DualStack is a cluster like that of New with addresses of both families.
var DualStack = ToDualStack(frame)

// IPv6 is one with addresses of IPv6 alone.
var IPv6 = ToIPv6(frame)

// Families shows what a text says of clusters with addresses of both families, and with those of IPv6 alone, that it does not say of one with IPv4. config is a
// whole configuration with IPv4, or what New takes.
func Families(t testing.TB, config string, text func(*cluster.Cluster) string) string {
	t.Helper()
	if !strings.HasPrefix(config, "apiVersion:") {
		config = frame + config
	}
	known, b := map[string]bool{}, strings.Builder{}
	for l := range strings.Lines(text(Parse(t, config, nil))) {
		known[l] = true
	}
	for _, other := range []string{ToDualStack(config), ToIPv6(config)} {
		c := Parse(t, other, nil)
		b.WriteString("######## pods: " + c.Spec.Network.PodCIDR + "\n")
		for l := range strings.Lines(text(c)) {
			if !known[l] {
				b.WriteString(l)
			}
		}
	}
	return b.String()
}

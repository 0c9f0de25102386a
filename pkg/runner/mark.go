package runner

import (
	"slices"
	"strings"
)

// Mark is by what addresses on a host's loopback are found again: a label, or a metric where they are of IPv6, which has no labels.
type Mark struct{ Label, Metric string }

// FormerMark is on the addresses of Facts.Former, CacheMark on that of the DNS cache.
var (
	FormerMark = Mark{"lo:kubexm", "53157"}
	CacheMark  = Mark{"lo:dnscache", "53053"}
)

// Add is a script that gives the host an address, if it has it not yet. What the host sends comes from another one, where nothing else is said: Linux
// would take one of IPv6 that has more in common with where a packet goes.
func (m Mark) Add(ip string) string {
	if strings.Contains(ip, ":") {
		return "ip addr replace " + ip + "/128 dev lo nodad preferred_lft 0 metric " + m.Metric
	}
	return "ip addr replace " + ip + "/32 dev lo label " + m.Label
}

// List is a script that shows the addresses, one in a line.
func (m Mark) List() string {
	return "ip -o addr show dev lo label " + m.Label + "; ip -o -6 addr show dev lo | grep ' metric " + m.Metric + " '"
}

// Flush is a script that takes them off.
func (m Mark) Flush() string {
	return "ip addr flush dev lo label " + m.Label + "; ip -o -6 addr show dev lo | grep ' metric " + m.Metric + " ' | while read -r _ _ _ a _; do ip addr del $a dev lo; done"
}

// on reports whether words that show an address have the mark.
func (m Mark) on(words []string) bool {
	i := slices.Index(words, "metric")
	return i > 0 && i+1 < len(words) && words[i+1] == m.Metric || slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, m.Label) })
}

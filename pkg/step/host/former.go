package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// Moved is a host that is at another address than others know it by.
type Moved struct{ Former, Now string }

// KeepFormer is a script that lets a host have the address by which others know it, if that is another than it has, and reach other hosts that moved by their
// former addresses. What it sends to them comes from that address: members of etcd compare it with certificates. It waits for the API server at a port,
// if the host is a master that needs such an address. Nothing of it outlives a restart of the machine. The hosts are neighbours, as no router knows of the addresses; one that is not needed
// may not find the others.
func KeepFormer(own string, others []Moved, needed bool, port int) string {
	var lines strings.Builder
	for _, m := range others {
		fmt.Fprintf(&lines, "%s %s\n", m.Former, m.Now)
	}
	need := ""
	if needed {
		need = "yes"
	}
	return runner.Inputs("OWN", own, "PROTOCOL", runner.FormerRoutes, "NEEDED", need, "PORT", strconv.Itoa(port)) +
		"moved() { printf %s " + runner.Quote(lines.String()) + "; }\nown() { " + runner.FormerMark.Add(own) + "; }\nnone() { " + runner.FormerMark.Flush() + "; }\n" + runner.Script(scripts, "former")
}

// NoFormer takes former addresses off a host, and the routes to those of others.
func NoFormer() step.Step {
	const routes = "ip route show proto " + runner.FormerRoutes + "; ip -6 route show proto " + runner.FormerRoutes
	return step.Command{
		What: "no former addresses", Unless: `[ -z "$(` + runner.FormerMark.List() + "; " + routes + `)" ]`,
		Run: runner.FormerMark.Flush() + "; for f in -4 -6; do ip $f route flush proto " + runner.FormerRoutes + "; done",
	}
}

// FormerHosts are hosts that have former addresses, or routes to those of others; none while one is still known by its own.
func FormerHosts(c *cluster.Cluster) (hosts []string) {
	for _, h := range c.Hosts() {
		f := c.FactsOf(h)
		if slices.Contains(f.Former, c.IP(h)) {
			return nil
		}
		if f.HasFormer() {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

package config

import (
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // the control machine may have no time zones

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// checkTime checks time servers and the time zone.
func (k *checker) checkTime() {
	servers := k.System.NTPServers
	for i, s := range servers {
		at := fmt.Sprintf("spec.system.ntpServers[%d]", i)
		ours := slices.ContainsFunc(k.Hosts, func(h v1alpha1.Host) bool { return s == h.Name || s == h.Address || slices.Contains(h.IPs(), s) })
		switch {
		case s == "":
			k.fail(at, s, "must be an IP address or a DNS name")
		case slices.Contains(servers[:i], s):
			k.fail(at, s, "is given twice")
		case ours && len(servers) > 1:
			k.fail(at, s, "is a host of the cluster, and serves the others only where it is the only time server")
		case !ours:
			k.address(at, s)
		}
	}
	const path = "spec.system.timezone"
	zone := k.System.Timezone
	if _, err := time.LoadLocation(zone); err != nil || zone == "Local" {
		k.fail(path, zone, "is not a time zone, like Europe/Berlin or UTC")
	}
}

// checkResolvers checks the name servers of hosts.
func (k *checker) checkResolvers() {
	const most = 3 // MAXNS of resolv.conf(5)
	list := k.Extra.Resolves
	for i, r := range list {
		at := fmt.Sprintf("spec.extra.resolves[%d].address", i)
		if !isIP(r.Address) {
			k.fail(at, r.Address, "must be an IP address")
		} else if slices.Contains(list[:i], r) {
			k.fail(at, r.Address, "is given twice")
		}
	}
	if len(list) > most {
		k.warn("spec.extra.resolves", "", "%d name servers: hosts without systemd-resolved ask the first %d only", len(list), most)
	}
}

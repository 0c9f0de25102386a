package host

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// Clock lets chrony keep the clock by the configuration's time servers, if there are any. Installing chrony has
// removed other time services where packages conflict; where they do not, they are turned off.
func Clock(c *cluster.Cluster, host string) []step.Step {
	if len(c.Spec.System.NTPServers) == 0 {
		return nil
	}
	f := c.FactsOf(host)
	fam := familyOf(f)
	conf := chronyConf(c, host, fam.conf)
	return []step.Step{
		off("no other time service", "systemd-timesyncd", "ntpd", "openntpd"), formerChronyConf(conf, fam.conf), conf,
		step.Service{Name: fam.clock, DropIn: chronyDropIn(f, fam), Reads: []step.Step{conf}},
	}
}

// timeServer is the host of the cluster that is the only time server; empty: there is none.
func timeServer(c *cluster.Cluster) string {
	servers := c.Spec.System.NTPServers
	for _, h := range c.All() {
		if len(servers) == 1 && slices.Contains(append(c.Addresses(h), h), servers[0]) {
			return h
		}
	}
	return ""
}

// chronyConf configures chrony. The host that serves the others keeps the sources that it has, and goes on without
// them. The others have the given servers only, so the whole file is ours: a drop-in, where a distribution has a
// directory for it, adds to its public servers, but takes none away.
//
// Facts: https://chrony-project.org/doc/4.3/chrony.conf.html
func chronyConf(c *cluster.Cluster, host, path string) step.Step {
	var b bytes.Buffer
	server := timeServer(c)
	if host == server {
		b.WriteString("local stratum 10\n")
		for _, h := range c.All() {
			for _, a := range c.Addresses(h) {
				if _, err := netip.ParseAddr(a); err == nil && h != host {
					fmt.Fprintf(&b, "allow %s\n", a)
				}
			}
		}
		return step.Block{Path: path, Begin: "# BEGIN kubexm", End: "# END kubexm", Content: b.Bytes(), Mode: 0o644}
	}
	b.WriteString("# Made by kubexm.\n")
	for _, s := range c.Spec.System.NTPServers {
		kind := "pool" // a name, of one address or of several
		if server != "" {
			s = c.IP(server)
		}
		if _, err := netip.ParseAddr(s); err == nil {
			kind = "server"
		}
		fmt.Fprintf(&b, "%s %s iburst\n", kind, s)
	}
	b.WriteString("driftfile /var/lib/chrony/drift\nmakestep 1.0 3\nrtcsync\n")
	return step.File{Path: path, Content: b.Bytes(), Mode: 0o644}
}

// capSysTime is the bit of CAP_SYS_TIME, linux/capability.h.
const capSysTime = 25

// formerChronyConf takes back what the host had where it begins, or ends, to serve the others: a block in the file, or the
// whole file.
func formerChronyConf(conf step.Step, path string) step.Step {
	former := "block " + path + "\t*"
	if _, serves := conf.(step.Block); serves {
		former = "path " + path
	}
	return step.Absent{What: "former configuration of chrony", Items: []string{former}}
}

// chronyDropIn lets chronyd run in a container that has no clock of its own: systemd would
// leave it out, as its unit wants CAP_SYS_TIME, and with -x it serves and watches, but sets no clock (chronyd(8)).
func chronyDropIn(f *runner.Facts, fam family) step.Content {
	if f.Capabilities&(1<<capSysTime) != 0 {
		return step.Content("[Service]\n")
	}
	return step.Content("[Unit]\nConditionCapability=\n\n[Service]\nEnvironmentFile=\nEnvironment=" + fam.clockEnv + "=-x\n")
}

// Zone sets the configuration's time zone, if there is one, as timedatectl does; that
// needs D-Bus. Debian has it in /etc/timezone, too.
func Zone(c *cluster.Cluster) []step.Step {
	zone := c.Spec.System.Timezone
	if zone == "" {
		return nil
	}
	return []step.Step{step.Command{
		What: "time zone " + zone, Inputs: runner.Inputs("ZONE", zone), Script: script("zone"),
		Unless: "is_set", Run: "set_zone", Undo: "put_back /etc/localtime /etc/timezone",
		Makes: []string{"path /etc/localtime", "path /etc/timezone"},
	}}
}

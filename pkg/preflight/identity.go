package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// identities are what no two hosts may have in common: machines made from one
// image often do.
var identities = []struct {
	name, what, fix string
	works           bool                                           // nothing breaks
	of              func(h *v1alpha1.Host, f *runner.Facts) string // empty: it has none
}{
	{name: "unique-hostname", what: "host name", of: hostName, works: true, fix: "kubexm gives each machine its node's name"},
	{name: "unique-machine-id", what: "machine-id", of: machineID, fix: "rm /etc/machine-id; systemd-machine-id-setup; reboot"},
	{name: "unique-product-uuid", what: "product_uuid", of: productUUID, fix: "give each virtual machine a UUID of its own"},
	{name: "unique-mac", what: "MAC address", of: mac, fix: "give each network card a MAC address of its own"},
}

func hostName(_ *v1alpha1.Host, f *runner.Facts) string { return f.Hostname }

// machineID is empty until the first boot has made one (machine-id(5)).
func machineID(_ *v1alpha1.Host, f *runner.Facts) string {
	return strings.TrimPrefix(f.MachineID, "uninitialized")
}

// noUUIDs are what boards and hypervisors show that have none.
var noUUIDs = []string{
	"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "03000200-0400-0500-0006-000700080009", "not settable",
}

// productUUID leaves out containers: they see that of the machine below, and all
// on one machine have the same.
func productUUID(_ *v1alpha1.Host, f *runner.Facts) string {
	if f.Container != "" || slices.Contains(noUUIDs, f.ProductUUID) {
		return ""
	}
	return f.ProductUUID
}

// mac is that of the card by which other hosts reach this one: bridges and tunnels
// have made-up ones. Containers may share their machine's (ipvlan).
func mac(h *v1alpha1.Host, f *runner.Facts) string {
	for _, i := range f.Interfaces {
		if i.Has(h.IP()) && f.Container == "" && strings.Trim(i.MAC, "0:") != "" {
			return i.MAC
		}
	}
	return ""
}

// alike finds hosts that have in common what they may not. Where all are members
// of the cluster already, it works somehow.
func alike(c *cluster.Cluster) []Finding {
	var all []Finding
	for _, id := range identities {
		var values []string // in the order of hosts
		hosts := map[string][]string{}
		for i := range c.Spec.Hosts {
			h := &c.Spec.Hosts[i]
			v := id.of(h, c.FactsOf(h.Name))
			if hosts[v] == nil && v != "" {
				values = append(values, v)
			}
			hosts[v] = append(hosts[v], h.Name)
		}
		for _, v := range values {
			if len(hosts[v]) == 1 {
				continue
			}
			fresh := slices.ContainsFunc(hosts[v], func(h string) bool { return !c.IsTouched(h) })
			severity := SeverityWarning
			if !id.works && fresh {
				severity = SeverityError
			}
			for _, h := range hosts[v] {
				all = append(all, Finding{
					Host: h, Check: id.name, Severity: severity, Found: fmt.Sprintf("%s %s on %s", id.what, v, human.Names(hosts[v], 3)),
					Needed: "a " + id.what + " that no other host has", Fix: id.fix,
				})
			}
		}
	}
	return all
}

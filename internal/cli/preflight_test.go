package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/preflight"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// unfit are findings of all kinds: of many hosts, of one, of two together, warnings.
func unfit() []preflight.Finding {
	var all []preflight.Finding
	for i := 1; i <= 6; i++ {
		host := fmt.Sprintf("node%d", i)
		all = append(all,
			preflight.Finding{Host: host, Check: "memory", Found: "900 MiB of memory", Needed: "at least 1800 MiB of memory", Fix: "give the machine more memory", Severity: preflight.SeverityError},
			preflight.Finding{Host: host, Check: "cgroup", Found: "cgroup v1", Needed: "cgroup v2", Fix: "boot with systemd.unified_cgroup_hierarchy=1", Severity: preflight.SeverityWarning})
	}
	for _, host := range []string{"node2", "node3"} {
		all = append(all, preflight.Finding{Host: host, Check: "unique-machine-id", Found: "machine-id 0123 on node2, node3", Needed: "a machine-id that no other host has", Fix: "systemd-machine-id-setup", Severity: preflight.SeverityError})
	}
	return append(all,
		preflight.Finding{Host: "node1", Check: "ports", Found: "port 6443 (by nginx), 2379 (by etcd) taken", Needed: "these ports free", Fix: "stop what listens on them", Severity: preflight.SeverityError},
		preflight.Finding{Host: "node7", Check: "connectivity", Found: "cannot log in:\n\x1b[2Jpassword refused", Needed: "a login by SSH", Fix: "check the password\nor the key", Severity: preflight.SeverityError},
	)
}

// TestPreflight shows the error that ends create cluster, wide and narrow.
func TestPreflight(t *testing.T) {
	var b strings.Builder
	for _, width := range []int{300, 80} {
		for _, one := range problems(preflight.Unfit(unfit())) {
			one.write(&b, style.Style{}, width)
		}
	}
	golden.Equal(t, b.String())
}

// TestFitness shows what kubexm preflight prints.
func TestFitness(t *testing.T) {
	var b strings.Builder
	warning := preflight.Finding{Host: "node1", Check: "swap", Found: "swap on /dev/sda2", Needed: "no swap", Fix: "kubexm turns it off", Severity: preflight.SeverityWarning}
	for _, found := range [][]preflight.Finding{nil, {warning}, unfit()} {
		is := &app.Fitness{Cluster: "prod", Fit: preflight.Unfit(found) == nil, Hosts: 7, Checks: []string{"os", "swap"}, Findings: found}
		b.WriteString(fitnessText(is, style.Style{}, 300) + "====\n")
	}
	golden.Equal(t, b.String())
}

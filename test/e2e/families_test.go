//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/test/smoke"
	"github.com/kubexm/kubexm/test/testbed"
)

// family is that of the addresses of all machines and clusters: IPv4, or what E2E_FAMILY names.
func family() string { return cmp.Or(os.Getenv("E2E_FAMILY"), testbed.IPv4) }

// onlyIPv4 leaves out what a test does that is about the form of IPv4 addresses.
func onlyIPv4(t *testing.T, why string) {
	t.Helper()
	if family() != testbed.IPv4 {
		t.Skipf("not with E2E_FAMILY=%s: %s", family(), why)
	}
}

// byFamily chooses among the values for clusters whose primary addresses are of IPv4, and of IPv6.
func byFamily[T any](four, six T) T {
	if family() == testbed.IPv6 {
		return six
	}
	return four
}

// hostEntry is a machine as it stands in a configuration.
func hostEntry(n testbed.Node, roles ...any) map[string]any {
	entry := map[string]any{"name": n.Name, "address": n.Address, "roles": roles}
	if n.Second != "" {
		entry["internalAddress"] = strings.Join(n.Addresses(), ",")
	}
	return entry
}

// writeHosts writes machines as `add node --hosts` reads them: arguments have one address for each.
func writeHosts(t *testing.T, file string, nodes []testbed.Node, roles []any) {
	t.Helper()
	var all []any
	for _, n := range nodes {
		all = append(all, hostEntry(n, roles...))
	}
	text, err := yaml.Marshal(all)
	must(t, err)
	must(t, os.WriteFile(file, text, 0o600))
}

// prover proves that a cluster works with addresses of its family.
func prover(t *testing.T, c *cluster) *smoke.Prover {
	t.Helper()
	p, err := smoke.New(c.kubeconfig(), t.Logf)
	must(t, err)
	p.Families = map[string][]corev1.IPFamily{
		testbed.IPv4: {corev1.IPv4Protocol}, testbed.Dual: {corev1.IPv4Protocol, corev1.IPv6Protocol}, testbed.IPv6: {corev1.IPv6Protocol},
	}[family()]
	p.Host = func(ctx context.Context, node string, urls ...string) (string, error) {
		return the.bed.SSH(ctx, the.node(t, node), "curl -sSf -m 5 '"+strings.Join(urls, "' '")+"'")
	}
	return p
}

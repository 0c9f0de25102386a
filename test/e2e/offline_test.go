//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestOffline makes clusters of Debian 12 and 13 with the cable cut, as the README tells to: what a
// machine with a network has packed into a file is imported, built and installed where kubexm and the
// machines reach one another and nobody else. No packet may even try to get out.
func TestOffline(t *testing.T) {
	for _, row := range []int{1, 2} {
		t.Run(fmt.Sprint("row", row), func(t *testing.T) { offline(t, row, fmt.Sprint(row)) })
	}
}

// offline is TestOffline with a row and some edits of its configuration.
func offline(t *testing.T, row int, name string, edits ...edit) {
	edits = append(edits, impatient)
	bundle := filepath.Join(the.dir, "bundle"+name+".tar.zst")
	newCluster(t, row, where{work: filepath.Join(the.dir, "online"+name)}, edits...).run(t, "download", "--os", "debian12,debian13", "--export", bundle).ok(t)
	must(t, the.bed.Isolate(t.Context()))
	defer func() { must(t, the.bed.Release(t.Context())) }()
	edits = append(edits, set("source.offline", true), set("dns.coredns.upstream", []any{the.nodes[1].Address})) // of all name servers, one within the walls
	c := newCluster(t, row, where{work: filepath.Join(the.dir, "offline"+name)}, edits...)
	c.isolated = true
	c.create(t).fails(t, fault.ExitPreflight, "not in the store", "kubexm import")
	c.run(t, "import", bundle).ok(t)
	c.built = true
	cycle(t, c)
	switch n, err := the.bed.Tried(t.Context()); {
	case err != nil:
		t.Error(err)
	case n > 0:
		t.Errorf("%d packets wanted out", n)
	}
}

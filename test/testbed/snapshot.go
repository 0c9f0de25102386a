package testbed

import (
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"strings"

	"github.com/kubexm/kubexm/test/testbed/host"
)

//go:embed scripts/snapshot.sh
var snapshotScript string

// Snapshot describes a running node: files with mode, owner, size and sum,
// packages, units, processes, mounts, network, packet filter, kernel settings.
// Two snapshots differ where somebody changed something; logs, caches and what
// a system writes by itself are left out.
func (t *Testbed) Snapshot(ctx context.Context, n Node) (string, error) {
	line := append(t.SSHCommand(n, "root"), "bash -s")
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdin = strings.NewReader(snapshotScript)
	out, err := host.Output(cmd)
	if err != nil {
		return "", fmt.Errorf("describing %s: %w", n.Name, err)
	}
	return out, nil
}

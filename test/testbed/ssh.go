package testbed

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/kubexm/kubexm/test/testbed/host"
)

// SSHCommand is the OpenSSH command line that opens a session as user on a
// node, with the testbed's key and the node's known host key.
func (t *Testbed) SSHCommand(n Node, user string) []string {
	return []string{
		"ssh", "-i", t.KeyFile(), "-o", "IdentitiesOnly=yes", "-o", "UserKnownHostsFile=" + t.KnownHosts(),
		"-o", "StrictHostKeyChecking=yes", "-o", "HostKeyAlias=" + n.Name, "-o", "ConnectTimeout=10", "-o", "LogLevel=ERROR", user + "@" + n.Address,
	}
}

// SSH runs a shell command as root on a node and returns its standard output.
func (t *Testbed) SSH(ctx context.Context, n Node, command string) (string, error) {
	line := append(t.SSHCommand(n, "root"), command)
	out, err := host.Run(ctx, line[0], line[1:]...)
	if err != nil {
		return out, fmt.Errorf("on %s: %w", n.Name, err)
	}
	return out, nil
}

// knownHosts writes the host keys of nodes, by address and by name.
func (t *Testbed) knownHosts(nodes []Node) error {
	var out strings.Builder
	for _, n := range nodes {
		key, err := os.ReadFile(t.dir(n.Name, "upper/etc/ssh/ssh_host_ed25519_key.pub"))
		if err != nil {
			return fmt.Errorf("collecting the host keys: %w", err)
		}
		f := strings.Fields(string(key))
		fmt.Fprintf(&out, "%s,%s %s %s\n", strings.Join(n.Addresses(), ","), n.Name, f[0], f[1])
	}
	return os.WriteFile(t.KnownHosts(), []byte(out.String()), 0o644)
}

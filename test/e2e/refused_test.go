//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/kubexm/kubexm/pkg/util/fault"
	machine "github.com/kubexm/kubexm/test/testbed/host"
)

// Machines that are not fit, or not to be reached, are refused with a reason,
// and nothing is touched on any of them.
func TestRefused(t *testing.T) {
	defer timed(t)()
	restoreMachines(t)
	before := the.snapshots(t)
	node1, node2 := the.nodes[0], the.nodes[1]
	for _, c := range []struct {
		name    string
		edits   []edit
		prepare func(t *testing.T, c *cluster)
		undo    func(t *testing.T)
		code    int
		says    []string
	}{
		{
			name:  "wrong password",
			edits: []edit{host(1, "privateKeyPath", filepath.Join(the.dir, "other-key")), host(1, "passwordFrom", map[string]any{"env": "WRONG"})},
			prepare: func(t *testing.T, c *cluster) {
				makeKey(t, filepath.Join(the.dir, "other-key"))
				c.env = append(c.env, "WRONG=nonsense")
			},
			code: fault.ExitFailed,
			says: []string{"node2", "cannot log in: the machine refused", "password", "PasswordAuthentication yes"},
		},
		{
			name:  "wrong sudo password",
			edits: []edit{host(0, "user", "kube"), host(0, "sudoPassword", "nonsense")},
			code:  fault.ExitFailed,
			says:  []string{"node1", "user kube", "sudo", "the password"},
		},
		{
			name:    "host down",
			edits:   []edit{impatient},
			prepare: func(t *testing.T, _ *cluster) { must(t, the.bed.Poweroff(t.Context(), node2)) },
			undo:    func(t *testing.T) { must(t, the.bed.Start(t.Context(), node2)) },
			code:    fault.ExitFailed,
			says:    []string{"node2", "not reachable", "check the address"},
		},
		{
			name:    "host key changed",
			prepare: swapHostKeys,
			code:    fault.ExitFailed,
			says:    []string{"node1", "host key", "ssh-keygen"},
		},
		{
			name:  "host key unknown",
			edits: []edit{host(1, "hostKeyPolicy", "strict")},
			code:  fault.ExitFailed,
			says:  []string{"node2", "host key refused: it is not known yet, and shows ssh-ed25519 SHA256:", "kubexm hosts trust"},
		},
		{
			name: "port taken",
			prepare: func(t *testing.T, _ *cluster) {
				the.on(t, node1, "systemd-run -q --unit squatter socat TCP-LISTEN:6443,fork,reuseaddr -; until ss -Hltn | grep -q :6443; do sleep 0.1; done")
			},
			undo: func(t *testing.T) {
				the.on(t, node1, "systemctl stop squatter; systemctl reset-failed squatter 2>&1 || true")
			},
			code: fault.ExitPreflight,
			says: []string{"node1", "ports", "port 6443 (by socat) taken"},
		},
		{
			name: "leftovers of another cluster",
			prepare: func(t *testing.T, _ *cluster) {
				the.on(t, node2, "mkdir -p /etc/kubernetes; echo other > /etc/kubernetes/kubelet.conf")
			},
			undo: func(t *testing.T) { the.on(t, node2, "rm -r /etc/kubernetes") },
			code: fault.ExitPreflight,
			says: []string{"node2", "leftovers", "/etc/kubernetes"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			refused := newCluster(t, 1, where{work: t.TempDir()}, c.edits...)
			if c.prepare != nil {
				c.prepare(t, refused)
			}
			if c.undo != nil {
				defer c.undo(t)
			}
			refused.create(t).fails(t, c.code, c.says...)
		})
	}
	asBefore(t, before)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// swapHostKeys lets kubexm meet the machines, then exchanges what it has noted of them.
func swapHostKeys(t *testing.T, c *cluster) {
	t.Helper()
	c.run(t, "plan").ok(t)
	file := c.dir("known_hosts")
	text, err := os.ReadFile(file)
	must(t, err)
	one, two := regexp.MustCompile(regexp.QuoteMeta(the.nodes[0].Address)), regexp.MustCompile(regexp.QuoteMeta(the.nodes[1].Address))
	text = one.ReplaceAll(text, []byte("@"))
	text = two.ReplaceAll(text, []byte(the.nodes[0].Address))
	must(t, os.WriteFile(file, regexp.MustCompile("@").ReplaceAll(text, []byte(the.nodes[1].Address)), 0o600))
}

// makeKey writes an SSH key that no machine knows.
func makeKey(t *testing.T, file string) {
	t.Helper()
	_, err := machine.Run(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file)
	must(t, err)
}

//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/test/testbed"
)

// TestPackage makes a cluster as a new user does: with the package of a release, on a machine that has nothing else of kubexm's.
func TestPackage(t *testing.T) {
	defer timed(t)()
	dist := t.TempDir()
	made := exec.Command("make", "release", "PLATFORMS=linux/amd64", "DIST="+dist)
	made.Dir = "../.."
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("make release: %v\n%s", err, out)
	}
	packages, err := filepath.Glob(filepath.Join(dist, "*.deb"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("%v, %v", packages, err)
	}
	restoreMachines(t)
	before := the.snapshots(t)
	key := filepath.Join(t.TempDir(), "recovery.key")
	public, err := exec.Command(the.program, "backup", "key", "--out", key).Output()
	must(t, err)
	c := newCluster(t, 1, where{}, impatient, set("kubernetes.autoRenewCerts", true), set("backup", map[string]any{
		"recipients": []any{strings.TrimSpace(string(public))}, "targets": []any{map[string]any{"dir": "/root/backups"}}, "schedule": "daily",
		"drill": map[string]any{"schedule": "weekly", "identityFile": "/root/recovery.key"},
	}))
	nodes := the.nodes
	the.resize(t, 3)
	all, desk := the.nodes, the.nodes[2]
	the.nodes = nodes
	defer func() {
		the.nodes = all
		the.shrink(t)
	}()
	put(t, desk, packages[0], "/root/kubexm.deb")
	put(t, desk, c.file, "/root/cluster.yaml")
	put(t, desk, the.bed.KeyFile(), the.bed.KeyFile())
	put(t, desk, key, "/root/recovery.key")
	the.on(t, desk, "chmod 600 "+the.bed.KeyFile())
	t.Log(the.on(t, desk, "dpkg --install /root/kubexm.deb && kubexm version"))
	the.on(t, desk, "dpkg --contents /root/kubexm.deb | grep -q /usr/share/man/man1/kubexm-create-cluster.1.gz && . /usr/share/bash-completion/completions/kubexm && complete -p kubexm")
	kubexm := func(commands ...string) (said string) {
		for _, command := range commands {
			said = the.on(t, desk, "cd /root && kubexm "+command+" -f cluster.yaml </dev/null")
			t.Log(said)
		}
		return said
	}
	kubexm("config validate", "preflight", "create cluster --yes", "status", "kubeconfig --merge", "schedule install")
	for _, job := range []string{"backup", "drill", "certs"} {
		unit := "kubexm-job-e2e-" + job + ".service"
		t.Log(the.on(t, desk, "systemctl start "+unit+"; journalctl -q --no-pager -o cat -u "+unit))
	}
	if said := kubexm("schedule list"); strings.Count(said, "success") != 3 {
		t.Errorf("jobs:\n%s", said)
	}
	if said := kubexm("backup list"); strings.Count(said, "e2e-") != 1 {
		t.Errorf("backups:\n%s", said)
	}
	kubexm("schedule remove", "status", "delete cluster --yes")
	if left := the.on(t, desk, "ls /etc/systemd/system | grep kubexm || true"); left != "" {
		t.Errorf("left on the control machine: %s", left)
	}
	the.on(t, desk, "dpkg --purge kubexm && ! command -v kubexm")
	asBefore(t, before)
}

// put copies a file to a machine.
func put(t *testing.T, to testbed.Node, file, at string) {
	t.Helper()
	in, err := os.Open(file)
	must(t, err)
	defer in.Close()
	line := append(the.bed.SSHCommand(to, "root"), "mkdir -p "+runner.Quote(filepath.Dir(at))+" && cat >"+runner.Quote(at))
	cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("copying %s to %s: %v\n%s", file, to.Name, err, strings.TrimSpace(string(out)))
	}
}

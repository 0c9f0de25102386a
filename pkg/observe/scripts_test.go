package observe_test

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// apiServer runs a program of that name with arguments until the test ends.
func apiServer(t *testing.T, args ...string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kube-apiserver")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho; read -r _\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	runs, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hold.Close(); _ = cmd.Wait() })
	if _, err := io.ReadFull(runs, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// ipProgram stands in for that of a machine with a former address, and a route to another.
const ipProgram = `#!/bin/sh
case "$*" in
"-o addr show dev lo label lo:kubexm") echo '1: lo    inet 10.0.0.91/32 scope global lo:kubexm\       valid_lft forever preferred_lft forever' ;;
"-4 route show proto 157") echo '10.0.0.92 via 10.0.0.12 dev eth0 src 10.0.0.91' ;;
*) exit 1 ;;
esac
`

// TestNames runs the script on the host in memory and on real shells, which must agree. There it finds a process that is real.
func TestNames(t *testing.T) {
	text, err := os.ReadFile("scripts/names.sh")
	if err != nil {
		t.Fatal(err)
	}
	const etcd, port = "--etcd-servers=https://10.98.7.6:2379,https://10.98.7.5:2379", "--secure-port=7654"
	apiServer(t, etcd, "--token-auth-file=secret", port)
	const want = `
@hostname
node7

@drained
yes

@names
10.0.0.11 node1

@pods
10.0.0.11 lb.kubexm.local

@kubeconfigs
/etc/kubernetes/admin.conf https://lb.kubexm.local:6443
/etc/kubernetes/two.conf https://10.0.0.11:6443
/etc/kubernetes/two.conf https://10.0.0.12:6443
/var/lib/kube-proxy/kubeconfig.conf https://lb.kubexm.local:6443

@apiservers

@former
10.0.0.91
route to 10.0.0.92

@/etc/proxy.conf
server 10.0.0.11:6443

@/etc/none.conf

@end
`
	check := func(t *testing.T, r *runner.Runner, put func(p, text string, mode fs.FileMode)) string {
		for p, text := range map[string]string{
			"/proc/sys/kernel/hostname": "node7\n", "/var/lib/kubexm/drained": "", "/etc/hosts": "10.0.0.11 node1\n",
			"/var/lib/kubelet/pods/x/etc-hosts": "# Kubernetes-managed\n10.0.0.11 lb.kubexm.local\n", "/var/lib/kubelet/pods/y/etc-hosts": "127.0.0.1 localhost\n",
			"/etc/kubernetes/admin.conf":          "clusters:\n- cluster:\n    server: https://lb.kubexm.local:6443\nusers:\n- user: {client-key-data: secret}\n",
			"/etc/kubernetes/two.conf":            "    server: https://10.0.0.11:6443\n    server: https://10.0.0.12:6443\n",
			"/var/lib/kube-proxy/kubeconfig.conf": "    server: https://lb.kubexm.local:6443\n", "/var/lib/kube-proxy/config.conf": "mode: nftables\n",
			"/etc/proxy.conf": "server 10.0.0.11:6443\n",
		} {
			put(p, text, 0o644)
		}
		out, err := r.Sh(t.Context(), runner.Inputs("S", runner.StateDir, "NAME", "lb.kubexm.local", "PROTOCOL", runner.FormerRoutes, "FILES", "/etc/proxy.conf /etc/none.conf")+"former() { "+runner.FormerMark.List()+"; }\n"+string(text))
		if err != nil {
			t.Fatal(err)
		}
		before, rest, _ := strings.Cut(out, "@apiservers\n")
		servers, after, _ := strings.Cut(rest, "\n@former")
		if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(before+"@apiservers\n\n@former"+after)); diff != "" {
			t.Error(diff)
		}
		return servers
	}
	t.Run("memory", func(t *testing.T) {
		h := runnertest.Debian12("node7")
		if _, err := h.Runner().Sh(t.Context(), "ip addr replace 10.0.0.91/32 dev lo label lo:kubexm; ip route replace 10.0.0.92/32 via 10.0.0.12 proto 157"); err != nil {
			t.Fatal(err)
		}
		h.Put("/proc/77/comm", "kube-apiserver\n", 0o444)
		h.Put("/proc/77/cmdline", "kube-apiserver\x00"+etcd+"\x00--token-auth-file=secret\x00"+port+"\x00", 0o444)
		if servers := check(t, h.Runner(), h.Put); servers != etcd+" "+port+" \n" {
			t.Errorf("API servers: %q", servers)
		}
	})
	for _, shell := range runnertest.Shells() {
		t.Run(shell, func(t *testing.T) {
			s := runnertest.NewSandbox(t, shell)
			s.Put("/programs/ip", ipProgram, 0o755)
			servers := check(t, s.Runner(), s.Put)
			if !strings.Contains(servers, etcd+" "+port+" \n") || strings.Contains(servers, "secret") { // there may be others on this machine
				t.Errorf("API servers: %q", servers)
			}
		})
	}
}

package testbed

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/kubexm/kubexm/test/testbed/host"
)

// real returns a testbed of the given name for nodes that really run; it goes
// down when the test ends.
func real(t *testing.T, name string) *Testbed {
	t.Helper()
	if os.Getenv("KUBEXM_TESTBED_E2E") == "" {
		t.Skip("boots machines, as root: set KUBEXM_TESTBED_E2E=1 to run it")
	}
	tb, err := Open(name, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tb.Down(context.Background()); err != nil {
			t.Error(err)
		}
		if left := remains(tb); left != "" {
			t.Errorf("left behind:\n%s", left)
		}
	})
	return tb
}

// remains describes everything on this machine that carries the testbed's name.
func remains(tb *Testbed) string {
	var left strings.Builder
	for what, args := range map[string][]string{
		"link": {"ip", "-br", "link"}, "namespace": {"ip", "netns"}, "rule": {"iptables-save"}, "IPv6 rule": {"ip6tables-save"}, "routing": {"ip", "-6", "rule"}, "process": {"ps", "-eo", "pid,args"},
	} {
		out, err := host.Run(context.Background(), args[0], args[1:]...)
		if err != nil {
			fmt.Fprintln(&left, err)
		}
		for line := range strings.Lines(out) {
			for _, mark := range []string{tb.own("node"), tb.bridge(), tb.chain(), tb.Dir + "/"} {
				if strings.Contains(line, mark) {
					fmt.Fprint(&left, what, ": ", line)
				}
			}
		}
	}
	for _, m := range mountsBelow(tb.Dir) {
		fmt.Fprintln(&left, "mount:", m)
	}
	for _, n := range tb.grouped() {
		fmt.Fprintln(&left, "cgroup:", n)
	}
	for _, pattern := range []string{tb.Dir + "*", "/run/systemd/nspawn/*/" + tb.own("*"), "/run/netns/" + tb.own("*")} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			fmt.Fprintln(&left, "file:", f)
		}
	}
	return left.String()
}

// must runs a command on a node and returns what it prints.
func must(t *testing.T, tb *Testbed, n Node, command string) string {
	t.Helper()
	out, err := tb.SSH(t.Context(), n, command)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func TestMachines(t *testing.T) {
	tb := real(t, "tbm")
	nodes, err := tb.Up(t.Context(), Options{Nodes: 3, OS: "mixed", User: "kube"})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		release := map[string]string{"debian12": "bookworm", "debian13": "trixie"}[n.OS]
		if got := must(t, tb, n, ". /etc/os-release; echo $VERSION_CODENAME; hostname; systemctl is-system-running"); got != release+"\n"+n.Name+"\nrunning" {
			t.Errorf("%s: %s", n.Name, got)
		}
		for _, user := range []string{"root", "kube"} {
			if err := login(tb, n, user); err != nil {
				t.Errorf("%s as %s with password: %v", n.Name, user, err)
			}
		}
	}
	same := must(t, tb, nodes[0], "cat /etc/machine-id") == must(t, tb, nodes[1], "cat /etc/machine-id")
	if same {
		t.Error("two nodes have one machine-id")
	}
	t.Run("packages", func(t *testing.T) {
		out := must(t, tb, nodes[2], "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update && apt-get -qq install -y ipvsadm bash-completion >&2 && dpkg -l ipvsadm | tail -1")
		if !strings.HasPrefix(out, "ii  ipvsadm") {
			t.Error(out)
		}
	})
	t.Run("network", func(t *testing.T) { testNetwork(t, tb, nodes[0], nodes[1]) })
	t.Run("isolated", func(t *testing.T) { testIsolated(t, tb, nodes[0], nodes[1]) })
	t.Run("power", func(t *testing.T) { testPower(t, tb, nodes[1]) })
	t.Run("snapshot", func(t *testing.T) { testSnapshot(t, tb, nodes[0]) })
}

// login opens a session with the password, and checks sudo where the account has it.
func login(tb *Testbed, n Node, user string) error {
	known, err := os.ReadFile(tb.KnownHosts())
	if err != nil {
		return err
	}
	check := func(name string, _ net.Addr, key ssh.PublicKey) error {
		if line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))); !bytes.Contains(known, []byte(line)) {
			return fmt.Errorf("%s has another key than noted", name)
		}
		return nil
	}
	client, err := ssh.Dial("tcp", n.Address+":22", &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.Password(Password)},
		HostKeyCallback: check, HostKeyAlgorithms: []string{ssh.KeyAlgoED25519}, Timeout: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		return err
	}
	session.Stdin = strings.NewReader(Password + "\n")
	out, err := session.CombinedOutput("sudo -S -p '' whoami")
	if err != nil || !strings.HasSuffix(string(out), "root\n") {
		return fmt.Errorf("sudo: %s: %w", out, err)
	}
	return nil
}

// testNetwork cuts and slows n, seen from another node.
func testNetwork(t *testing.T, tb *Testbed, from, n Node) {
	ping := func() int { // fastest round trip in ms, -1 when there is no answer
		out := must(t, tb, from, "ping -c 3 -i 0.2 -W 1 -q "+n.Address+" | awk -F'[=/ ]+' 'BEGIN {ms = -1} /^rtt/ {ms = int($6)} END {print ms}'")
		ms, err := strconv.Atoi(out)
		if err != nil {
			t.Fatal(err)
		}
		return ms
	}
	if err := tb.Cut(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if ms := ping(); ms != -1 || tb.State(n) != "running, network cut" {
		t.Errorf("cut off, it answers in %d ms; state %s", ms, tb.State(n))
	}
	if err := tb.Heal(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if ping() == -1 {
		t.Error("healed, it does not answer")
	}
	ctx, cancel := context.WithCancel(t.Context())
	wait, err := tb.Slow(ctx, n, 60*time.Millisecond, 20e6)
	if err != nil {
		t.Fatal(err)
	}
	if ms := ping(); ms < 60 || tb.State(n) != "running, network slow" {
		t.Errorf("slow, it answers in %d ms; state %s", ms, tb.State(n))
	}
	if out := must(t, tb, n, "head -c 1000000 /dev/zero | base64 -w0"); len(out) != 1333336 || strings.Trim(out, "A=") != "" {
		t.Errorf("%d characters came over the slow network", len(out))
	}
	cancel()
	if err := wait(); err != nil {
		t.Error(err)
	}
	if ms := ping(); ms < 0 || ms >= 60 || tb.State(n) != "running" {
		t.Errorf("no longer slow, it answers in %d ms; state %s", ms, tb.State(n))
	}
}

// testIsolated counts what wants out, from a node and from beside it, and lets in what is called from here.
func testIsolated(t *testing.T, tb *Testbed, n, other Node) {
	if err := tb.Isolate(t.Context()); err != nil {
		t.Fatal(err)
	}
	inside := func(address string) string { // one packet, as by ping, which this machine may not have
		out, err := host.Run(t.Context(), "ip", append(tb.Inside()[1:], "bash", "-c", "timeout 0.8 bash -c '</dev/tcp/"+address+"/22' && echo found || echo lost")...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	const ping = "ping -c 1 -W 1 -q >/dev/null "
	if out := must(t, tb, n, ping+other.Address+" && echo found"); out != "found" {
		t.Errorf("among nodes: %s", out)
	}
	if out := inside(n.Address); out != "found" {
		t.Errorf("from beside them: %s", out)
	}
	tried := func() int64 {
		count, err := tb.Tried(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	if count := tried(); count != 0 {
		t.Errorf("%d packets wanted out where none did", count)
	}
	outside := map[bool]string{true: "192.0.2.1", false: "2001:db8::1"}[tb.Family() == IPv4]
	for i, way := range []func() string{
		func() string { return must(t, tb, n, ping+outside+" || echo lost") },
		func() string { return must(t, tb, n, ping+tb.Gateway()+" || echo lost") },
		func() string { return inside(outside) },
	} {
		out := way()
		if count := tried(); out != "lost" || count != int64(i+1) {
			t.Errorf("way %d: %q, %d packets", i, out, count)
		}
	}
	if err := tb.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := must(t, tb, n, ping+tb.Gateway()+" && echo found"); out != "found" {
		t.Errorf("released: %s", out)
	}
}

// testPower ends a node and boots it again: files are kept, network and memory are not.
func testPower(t *testing.T, tb *Testbed, n Node) {
	must(t, tb, n, "echo kept > /var/lib/kept; echo kept > /root/kept; touch /run/lost; ip link add lost type bridge; sync")
	if err := tb.Poweroff(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if s := tb.State(n); s != "off" {
		t.Errorf("powered off it is %s", s)
	}
	if err := tb.Start(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if out := must(t, tb, n, "cat /var/lib/kept /root/kept; ls /run/lost /sys/class/net/lost 2>/dev/null; true"); out != "kept\nkept" {
		t.Errorf("after the boot: %s", out)
	}
	boot := must(t, tb, n, "cat /proc/sys/kernel/random/boot_id; touch /run/lost; systemd-run --quiet sh -c 'sleep 1; exec systemctl reboot'")
	for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		if is, err := tb.SSH(t.Context(), n, "cat /proc/sys/kernel/random/boot_id"); err == nil && strings.TrimSpace(is) != boot {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatal("a node that restarts itself does not come back")
		}
	}
	if out := must(t, tb, n, "cat /var/lib/kept; ls /run/lost 2>/dev/null; true"); out != "kept" {
		t.Errorf("after its own restart: %s", out)
	}
	const who = "cat /etc/machine-id /etc/ssh/ssh_host_ed25519_key.pub"
	before := must(t, tb, n, who)
	if err := tb.Burn(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if s := tb.State(n); s != "off" {
		t.Errorf("a new machine is %s", s)
	}
	if err := tb.Start(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if out := must(t, tb, n, "ls /var/lib/kept /root/kept 2>/dev/null; true"); out != "" {
		t.Errorf("a new machine has %s", out)
	}
	for i, is := range strings.Split(must(t, tb, n, who), "\n") {
		if is == strings.Split(before, "\n")[i] {
			t.Errorf("a new machine has %s, as the one before", is)
		}
	}
}

// testSnapshot looks twice at a node that nobody touches, then at one somebody did.
func testSnapshot(t *testing.T, tb *Testbed, n Node) {
	look := func() string {
		text, err := tb.Snapshot(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := look()
	if after := look(); after != before {
		t.Errorf("it differs from itself:\n%s\n---\n%s", before, after)
	}
	must(t, tb, n, "mkdir -p /etc/kubernetes; echo x > /etc/kubernetes/f; chmod 600 /etc/kubernetes/f; nft add table ip left; ip link add left type bridge")
	after := look()
	const sum = "73cb3858a687a8494ca3323053016282f3dad39d42cf62ca4e79dda2aac7d9ac"
	for _, want := range []string{"\n/etc/kubernetes/f f 600 0:0 2\n", sum + "  /etc/kubernetes/f\n", "table ip left\n", "\nleft\n"} {
		if strings.Contains(before, want) || !strings.Contains(after, want) {
			t.Errorf("no %q in what changed", want)
		}
	}
}

// TestUpHelper is no test: TestKilled runs it as a process of its own to kill.
func TestUpHelper(t *testing.T) {
	name := os.Getenv("KUBEXM_TESTBED_HELPER")
	if name == "" {
		t.Skip("runs only inside TestKilled")
	}
	tb, err := Open(name, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tb.Up(t.Context(), Options{Nodes: 2}); err != nil {
		t.Fatal(err)
	}
}

// However far it got: when the testbed is killed, down leaves nothing.
func TestKilled(t *testing.T) {
	for n, reached := range []struct {
		what string
		when func(*Testbed) bool
	}{
		{"state on disk", func(tb *Testbed) bool { return exists(tb.KeyFile()) }},
		{"a bridge", func(tb *Testbed) bool { return exists("/sys/class/net/" + tb.bridge()) }},
		{"a node on disk", func(tb *Testbed) bool { return exists(tb.dir("node1", "lib")) }},
		{"a namespace", func(tb *Testbed) bool { return len(tb.plugged()) > 0 }},
		{"cgroups", func(tb *Testbed) bool { return len(tb.grouped()) > 0 }},
		{"a booting node", func(tb *Testbed) bool { return len(tb.processes("node2")) > 3 }},
	} {
		t.Run(reached.what, func(t *testing.T) {
			tb := real(t, fmt.Sprintf("ek%d", n))
			cmd := exec.Command(os.Args[0], "-test.run=^TestUpHelper$")
			cmd.Env = append(os.Environ(), "KUBEXM_TESTBED_HELPER="+tb.Name)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for ended := false; !ended && !reached.when(tb); {
				ended = syscall.Kill(cmd.Process.Pid, 0) != nil
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			cmd.Wait()
			if remains(tb) == "" {
				t.Error("it was killed before it had done anything")
			}
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

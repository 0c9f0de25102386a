package testbed

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/kubexm/kubexm/test/testbed/host"
)

// Accounts are the users of every node: root with key and password, kube with
// key and password and sudo that asks for it, nopass with key and sudo that does not ask.
var Accounts = []string{"root", "kube", "nopass"}

// create makes a node's disk: a writable layer on the base, and a plain
// directory as /var/lib, since overlay file systems (which container runtimes
// make there) do not lie on overlay file systems.
func (t *Testbed) create(ctx context.Context, n Node) error {
	for _, d := range []string{"upper", "work", "root", "lib"} {
		if err := os.MkdirAll(t.dir(n.Name, d), 0o755); err != nil {
			return fmt.Errorf("making node %s: %w", n.Name, err)
		}
	}
	if _, err := host.Run(ctx, "cp", "-a", n.Base+"/var/lib/.", t.dir(n.Name, "lib")); err != nil {
		return fmt.Errorf("making node %s: %w", n.Name, err)
	}
	if err := t.mount(n); err != nil {
		return err
	}
	if err := t.personalize(n); err != nil {
		return fmt.Errorf("making node %s: %w", n.Name, err)
	}
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return os.WriteFile(t.dir(n.Name, "node.json"), b, 0o644)
}

// mount puts the node's root together, unless it is.
func (t *Testbed) mount(n Node) error {
	root := t.dir(n.Name, "root")
	if len(mountsBelow(root)) > 0 {
		return nil
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", n.Base, t.dir(n.Name, "upper"), t.dir(n.Name, "work"))
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		return fmt.Errorf("mounting the root of %s: %w", n.Name, err)
	}
	return nil
}

// personalize writes what differs from machine to machine.
func (t *Testbed) personalize(n Node) error {
	root := t.dir(n.Name, "root")
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	files, err := t.networkFiles(n)
	if err != nil {
		return err
	}
	files["etc/hostname"], files["etc/machine-id"] = n.Name+"\n", hex.EncodeToString(id)+"\n"
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	public, err := os.ReadFile(t.KeyFile() + ".pub")
	if err != nil {
		return err
	}
	for _, u := range Accounts {
		dir := filepath.Join(root, "home", u, ".ssh")
		if u == "root" {
			dir = filepath.Join(root, "root/.ssh")
		}
		if err := writeAs(dir, "authorized_keys", public); err != nil {
			return err
		}
	}
	return makeKey(filepath.Join(root, "etc/ssh/ssh_host_ed25519_key"), "root@"+n.Name)
}

// networkFiles are those by which a node finds names, and what has them. One that has IPv6 alone asks the gateway, for packages too: see Serve.
func (t *Testbed) networkFiles(n Node) (map[string]string, error) {
	servers, err := resolvers()
	if err != nil {
		return nil, err
	}
	files := map[string]string{"etc/hosts": "127.0.0.1\tlocalhost\n127.0.1.1\t" + n.Name + "\n"}
	if t.Family() != IPv4 {
		files["etc/hosts"] += "::1\tlocalhost ip6-localhost ip6-loopback\n"
	}
	if t.Family() == IPv6 {
		servers = []string{t.Gateway()}
		files["etc/apt/apt.conf.d/99testbed"] = `Acquire::http::Proxy "http://` + t.FilesAddress() + "/\";\n"
	}
	files["etc/resolv.conf"] = "nameserver " + strings.Join(servers, "\nnameserver ") + "\n"
	return files, nil
}

// writeAs writes a file that belongs to whom its directory belongs to.
func writeAs(dir, name string, content []byte) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return fmt.Errorf("looking at %s: %w", dir, err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	return os.Chown(path, int(st.Uid), int(st.Gid))
}

// makeKey writes a new SSH key pair, unless there is one.
func makeKey(path, comment string) error {
	if _, err := os.Stat(path + ".pub"); err == nil {
		return nil
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, comment)
	if err != nil {
		return err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		return err
	}
	line := strings.TrimSuffix(string(ssh.MarshalAuthorizedKey(key)), "\n") + " " + comment + "\n"
	return os.WriteFile(path+".pub", []byte(line), 0o644)
}

// resolvers returns this machine's name servers, without those that only it can reach.
func resolvers() ([]string, error) {
	for _, path := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		b, err := os.ReadFile(path)
		if err != nil && !gone(err) {
			return nil, fmt.Errorf("reading the name servers: %w", err)
		}
		var all []string
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) == 2 && f[0] == "nameserver" && !net.ParseIP(f[1]).IsLoopback() {
				all = append(all, f[1])
			}
		}
		if all != nil {
			return all, nil
		}
	}
	return nil, fmt.Errorf("reading the name servers: this machine has none that a node could reach")
}

//go:embed scripts/launch.sh
var launchScript string

// Start boots a node that exists and waits until it is up. It does nothing
// when the node runs.
func (t *Testbed) Start(ctx context.Context, n Node) error {
	if t.Running(n) {
		return t.ready(ctx, n, nil)
	}
	begin := time.Now()
	if err := t.mount(n); err != nil {
		return err
	}
	if err := t.plugIn(ctx, n); err != nil {
		return err
	}
	groups, err := cgroups()
	if err != nil {
		return err
	}
	dirs, err := groups.create(t.own(n.Name))
	if err != nil {
		return err
	}
	args := append([]string{"-c", launchScript, "launch", t.dir(n.Name, "log"), strings.Join(dirs, " ")}, t.container(n, groups.v2)...)
	cmd := exec.Command("sh", args...) // outlives ctx: a node is a machine, not a child
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", n.Name, err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	if err := t.ready(ctx, n, ended); err != nil {
		return err
	}
	t.logf("%s: up at %s after %.1f s", n.Name, strings.Join(n.Addresses(), " and "), time.Since(begin).Seconds())
	return nil
}

// container is the command line of a node's container manager.
func (t *Testbed) container(n Node, v2 bool) []string {
	unified, legacy := "0", "1"
	if v2 {
		unified, legacy = "1", "0"
	}
	line := []string{
		"env", "SYSTEMD_NSPAWN_API_VFS_WRITABLE=1", "SYSTEMD_NSPAWN_TMPFS_TMP=0", "SYSTEMD_NSPAWN_LOCK=0",
		"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=" + unified,
		"systemd-nspawn", "--directory=" + t.dir(n.Name, "root"), "--boot", "--quiet", "--settings=no",
		"--register=no", "--keep-unit", "--link-journal=no", "--resolv-conf=off", "--timezone=off", "--console=read-only",
		"--machine=" + t.own(n.Name), "--hostname=" + n.Name, "--network-namespace-path=/run/netns/" + t.own(n.Name),
		"--capability=all", "--drop-capability=CAP_SYS_TIME", "--system-call-filter=@known", "--bind=" + t.dir(n.Name, "lib") + ":/var/lib",
	}
	for _, dev := range []string{"/dev/kmsg", "/dev/fuse", "/dev/net/tun"} {
		if _, err := os.Stat(dev); err == nil {
			line = append(line, "--bind="+dev)
		}
	}
	if _, err := os.Stat("/lib/modules"); err == nil {
		line = append(line, "--bind-ro=/lib/modules")
	}
	// What systemd 256 and 257 want to hear before they boot with cgroup v1.
	return append(line, "systemd.unified_cgroup_hierarchy="+unified, "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE="+legacy)
}

// ready waits until sshd answers and systemd has started all it will. It gives
// up early when ended closes.
func (t *Testbed) ready(ctx context.Context, n Node, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	dead := false
	err := waitFor(ctx, n.Name+" to answer on port 22", func() bool {
		select {
		case <-ended:
			dead = true
		default:
		}
		return dead || answers(n.Port("22"))
	})
	if err != nil || dead {
		return fmt.Errorf("booting %s: it does not come up (%w); its console: %s", n.Name, err, t.console(n))
	}
	var state string
	for range 3 { // a machine that is busy with its boot may be slow to answer
		if state, err = t.SSH(ctx, n, "systemctl is-system-running --wait"); strings.TrimSpace(state) != "" {
			break
		}
	}
	if s := strings.TrimSpace(state); s != "running" && s != "degraded" {
		return fmt.Errorf("booting %s: systemd is %q: %w", n.Name, s, err)
	}
	return nil
}

func answers(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(time.Second))
	banner := make([]byte, 4)
	_, err = conn.Read(banner)
	return err == nil && string(banner) == "SSH-"
}

func (t *Testbed) console(n Node) string {
	b, _ := os.ReadFile(t.dir(n.Name, "log"))
	return string(b[max(0, len(b)-2000):])
}

// Poweroff ends a node at once, as a power cut would: nothing is told, nothing
// is written back by its programs, and its network is gone until Start.
func (t *Testbed) Poweroff(ctx context.Context, n Node) error {
	if err := t.kill(ctx, n.Name); err != nil {
		return err
	}
	if err := endDetached(ctx, t.dir(n.Name, "cable")); err != nil {
		return err
	}
	return t.unplug(ctx, n.Name)
}

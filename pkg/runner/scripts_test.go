package runner_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// machine is a host in memory, or a real shell in a directory of its own.
type machine interface {
	connector.Connector
	Runner() *runner.Runner
	Put(path, text string, mode fs.FileMode)
}

// onEach runs a test on the host in memory and on real shells, which must agree.
func onEach(t *testing.T, test func(t *testing.T, m machine, r *runner.Runner)) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		h := runnertest.Debian12("node1")
		test(t, h, h.Runner())
	})
	for _, shell := range runnertest.Shells() {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := runnertest.NewSandbox(t, shell)
			test(t, s, s.Runner())
		})
	}
}

// look describes paths: type, permissions, owner; content of files, target of links.
func look(t *testing.T, r *runner.Runner, paths ...string) string {
	t.Helper()
	globs := strings.ReplaceAll(runner.Quote(paths...), "*", "'*'")
	out, err := r.Sh(t.Context(), `for f in `+globs+`; do
if [ -L "$f" ]; then echo "$f link $(readlink "$f")"
elif [ -f "$f" ]; then echo "$f file $(stat -c '%a %U:%G' "$f") $(cat "$f")"
elif [ -e "$f" ]; then echo "$f $(stat -c '%F %a %U:%G' "$f")"
else echo "$f missing"; fi; done`)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func expect(t *testing.T, r *runner.Runner, want ...string) {
	t.Helper()
	var paths []string
	for _, w := range want {
		p, _, _ := strings.Cut(w, " ")
		paths = append(paths, p)
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), look(t, r, paths...)); diff != "" {
		t.Errorf("want (-), have (+):\n%s", diff)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func status(err error) int {
	var exit *connector.ExitError
	if errors.As(err, &exit) {
		return exit.Code
	}
	return -1
}

func TestWriteFiles(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		m.Put("/etc/old", "was\n", 0o640)
		odd := "/etc/a b/it's \"$HOME\" \\n"
		binary := bytes.Repeat([]byte{0, 1, '\n', 255}, 30_000)
		files := []runner.File{
			{Path: "/etc/new/deep/file", Data: []byte("one\n"), Mode: 0o600},
			{Path: "/etc/old", Data: []byte("now"), Mode: 0o644, Owner: "nobody:nogroup"},
			{Path: "/etc/empty", Mode: 0o644},
			{Path: odd, Data: binary, Mode: 0o755},
		}
		must(t, r.WriteFiles(t.Context(), files...))
		expect(t, r, "/etc/new directory 755 root:root", "/etc/new/deep directory 755 root:root", "/etc/new/deep/file file 600 root:root one",
			"/etc/old file 644 nobody:nogroup now", "/etc/.old.kubexm.* missing", "/var/lib/kubexm/before directory 700 root:root", "/var/lib/kubexm/before/etc/old file 640 root:root was")
		got, err := r.ReadFiles(t.Context(), "/etc/new/deep/file", "/etc/none", "/etc/old", "/etc/empty", odd)
		must(t, err)
		files[0].Owner, files[2].Owner, files[3].Owner = "root:root", "root:root", "root:root"
		files[2].Data = []byte{}
		want := map[string]runner.File{}
		for _, f := range files {
			want[f.Path] = f
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); diff != "" {
			t.Error(diff)
		}
		must(t, r.WriteFiles(t.Context(), runner.File{Path: "/etc/old", Data: []byte("later"), Mode: 0o600}))
		expect(t, r, "/etc/old file 600 root:root later", "/var/lib/kubexm/before/etc/old file 640 root:root was")
	})
}

// cut is a connection that breaks in the middle of standard input.
type cut struct {
	connector.Connector
	keep int64
}

func (c cut) Exec(ctx context.Context, cmd connector.Cmd) error {
	if cmd.Stdin != nil {
		cmd.Stdin = io.LimitReader(cmd.Stdin, c.keep)
	}
	return c.Connector.Exec(ctx, cmd)
}

func TestWriteFilesCutShort(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		m.Put("/etc/two", "second\n", 0o644)
		err := runner.New("node1", cut{m, 8}).WriteFiles(t.Context(),
			runner.File{Path: "/etc/one", Data: []byte("12345"), Mode: 0o644}, runner.File{Path: "/etc/two", Data: []byte("67890"), Mode: 0o644})
		if status(err) != 65 || !strings.Contains(err.Error(), "content of /etc/two cut short") {
			t.Errorf("got %v", err)
		}
		expect(t, r, "/etc/one file 644 root:root 12345", "/etc/two file 644 root:root second", "/etc/.two.kubexm.* missing")
	})
}

func TestWriteFilesReplacesLinksNotDirectories(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		m.Put("/etc/real", "real\n", 0o644)
		m.Put("/etc/dir/inside", "x\n", 0o644)
		_, err := r.Sh(t.Context(), "ln -s real /etc/link; ln -s nowhere /etc/dangling")
		must(t, err)
		got, err := r.ReadFiles(t.Context(), "/etc/link", "/etc/dangling")
		must(t, err)
		if len(got) != 1 || string(got["/etc/link"].Data) != "real\n" {
			t.Errorf("through links: %v", got)
		}
		must(t, r.WriteFiles(t.Context(), runner.File{Path: "/etc/link", Data: []byte("mine"), Mode: 0o644}, runner.File{Path: "/etc/dangling", Data: []byte("mine"), Mode: 0o644}))
		expect(t, r, "/etc/real file 644 root:root real", "/etc/link file 644 root:root mine", "/etc/dangling file 644 root:root mine")
		if _, err := r.ReadFiles(t.Context(), "/etc/dir"); err == nil || !strings.Contains(err.Error(), "/etc/dir is not a regular file") {
			t.Errorf("reading a directory: %v", err)
		}
		if err := r.WriteFiles(t.Context(), runner.File{Path: "/etc/dir", Data: []byte("mine"), Mode: 0o644}); err == nil {
			t.Error("a file replaced a directory")
		}
		must(t, r.Restore(t.Context(), nil))
		expect(t, r, "/etc/link link real", "/etc/dangling link nowhere", "/etc/dir/inside file 644 root:root x", "/etc/real file 644 root:root real")
	})
}

func TestRemoveAndExists(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		m.Put("/opt/a/b", "x", 0o644)
		m.Put("/opt/-c d", "x", 0o644)
		_, err := r.Sh(t.Context(), "ln -s nowhere /opt/dangling")
		must(t, err)
		all := []string{"/opt/a", "/opt/-c d", "/opt/none", "/opt/dangling"}
		have, err := r.Exists(t.Context(), all...)
		must(t, err)
		if diff := cmp.Diff([]string{"/opt/a", "/opt/-c d", "/opt/dangling"}, have); diff != "" {
			t.Error(diff)
		}
		must(t, r.Remove(t.Context(), all...))
		have, err = r.Exists(t.Context(), all...)
		must(t, err)
		if len(have) > 0 {
			t.Errorf("still there: %v", have)
		}
	})
}

func sum(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

func upload(p, text string) runner.Upload {
	return runner.Upload{Path: p, Mode: 0o755, Size: int64(len(text)), SHA256: sum(text), Data: strings.NewReader(text)}
}

func TestUpload(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		text := strings.Repeat("0123456789", 50_000)
		m.Put("/opt/bin/old", "before", 0o755)
		m.Put("/opt/new/bin/.tool.kubexm.4711", "half, of a connection that was lost", 0o644)
		must(t, r.Upload(t.Context(), upload("/opt/new/bin/tool", text), upload("/opt/bin/old", text), upload("/opt/new/bin/empty", "")))
		must(t, r.Upload(t.Context(), upload("/top", text)))
		expect(t, r, "/opt/new/bin directory 755 root:root", "/opt/new/bin/empty file 755 root:root ", "/opt/new/bin/.tool.kubexm.4711 missing", "/var/lib/kubexm/before/opt/bin/old file 755 root:root before")
		want := map[string]runner.Sum{"/opt/new/bin/tool": {SHA256: sum(text), Mode: 0o755}, "/opt/bin/old": {SHA256: sum(text), Mode: 0o755}, "/top": {SHA256: sum(text), Mode: 0o755}}
		sums, err := r.Sums(t.Context(), "/opt/new/bin/tool", "/opt/none", "/opt/bin/old", "/top")
		must(t, err)
		if diff := cmp.Diff(want, sums); diff != "" {
			t.Error(diff)
		}
		// A checksum is remembered, until the file is changed in any way.
		trusted := maps.Clone(want)
		trusted["/top"] = runner.Sum{SHA256: "remembered", Mode: 0o755}
		_, err = r.Sh(t.Context(), `f=/var/lib/kubexm/sums/top; read -r _ id <$f; echo "remembered $id" >$f; printf x >>/opt/bin/old; chmod 700 /opt/new/bin/tool`)
		must(t, err)
		trusted["/opt/bin/old"] = runner.Sum{SHA256: sum(text + "x"), Mode: 0o755}
		trusted["/opt/new/bin/tool"] = runner.Sum{SHA256: sum(text), Mode: 0o700}
		sums, err = r.Sums(t.Context(), "/opt/new/bin/tool", "/opt/bin/old", "/top")
		must(t, err)
		if diff := cmp.Diff(trusted, sums); diff != "" {
			t.Error(diff)
		}
	})
}

func TestUploadFails(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		m.Put("/opt/bin/tool", "old", 0o755)
		for name, c := range map[string]struct {
			size   int64
			sum    string
			status int
			text   string
		}{
			"wrong checksum": {4, sum("good"), 65, "checksum of /opt/bin/tool on the host is " + sum("evil") + ", want " + sum("good")},
			"no space":       {1 << 60, sum("evil"), 28, "no space: /opt/bin has "},
		} {
			bad := upload("/opt/bin/tool", "evil")
			bad.Size, bad.SHA256 = c.size, c.sum
			err := r.Upload(t.Context(), upload("/opt/bin/before", "good"), bad)
			if status(err) != c.status || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: got %v", name, err)
			}
			before := "/opt/bin/before file 755 root:root good"
			if c.status == 28 { // told at the beginning
				before = "/opt/bin/before missing"
			}
			expect(t, r, before, "/opt/bin/tool file 755 root:root old", "/opt/bin/.tool.kubexm.* missing")
			must(t, r.Remove(t.Context(), "/opt/bin/before"))
		}
	})
}

func TestUploadGoesOn(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		text := strings.Repeat("0123456789", 20_000)
		m.Put("/opt/bin/old", "before", 0o755)
		err := runner.New("node1", cut{m, 64_000}).Upload(t.Context(), upload("/opt/bin/first", "1st"), upload("/opt/bin/old", text), upload("/opt/bin/last", text))
		if status(err) != 65 || !strings.Contains(err.Error(), "content of /opt/bin/old cut short") {
			t.Errorf("got %v", err)
		}
		m.Put("/opt/bin/.old.kubexm.99999999", "0123", 0o600) // of an earlier try
		m.Put("/opt/bin/.old.kubexm.bak", "no part", 0o600)
		sums, err := r.Sums(t.Context(), "/opt/bin/first", "/opt/bin/old", "/opt/bin/last")
		must(t, err)
		part := sums["/opt/bin/old"].Part
		if dir, name := path.Split(part.Path); dir != "/opt/bin/" || !strings.HasPrefix(name, ".old.kubexm.") {
			t.Errorf("the part is %q", part.Path)
		}
		want := map[string]runner.Sum{"/opt/bin/first": {SHA256: sum("1st"), Mode: 0o755}, "/opt/bin/old": {
			SHA256: sum("before"), Mode: 0o755, Part: runner.Part{Path: part.Path, Size: 63_997, SHA256: sum(text[:63_997])},
		}}
		if diff := cmp.Diff(want, sums); diff != "" {
			t.Error(diff)
		}
		rest := upload("/opt/bin/old", text)
		rest.Part, rest.Data = part, strings.NewReader(text[part.Size:])
		must(t, r.Upload(t.Context(), rest, upload("/opt/bin/last", text)))
		expect(t, r, "/opt/bin/old file 755 root:root "+text, "/opt/bin/last file 755 root:root "+text, "/opt/bin/.*.kubexm.* missing")

		m.Put("/opt/bin/.gone.kubexm.4711", text, 0o600)
		must(t, r.Remove(t.Context(), "/opt/bin/gone"))
		rest = upload("/opt/bin/gone", text)
		rest.Part = runner.Part{Path: "/opt/bin/.gone.kubexm.4711", Size: 9}
		if err := r.Upload(t.Context(), rest); !fault.IsTransient(err) || !strings.Contains(err.Error(), ".gone.kubexm.4711") {
			t.Errorf("of a part that is gone: %v", err)
		}
		expect(t, r, "/opt/bin/.gone.kubexm.* missing", "/opt/bin/gone missing")
	})
}

func TestChangeStopsAtTheFirstFailure(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		out, err := r.Change(t.Context(), "echo one; made /opt/x/y; false; made /opt/z")
		if status(err) != 1 || out != "one" {
			t.Errorf("got %q, %v", out, err)
		}
		_, err = r.Change(t.Context(), `made /opt/x/y; note "verb a  b"; note "verb a  b"; note "verb [a*"; keep /opt/none`)
		must(t, err)
		expect(t, r, "/opt/z missing", "/var/lib/kubexm/ledger file 644 root:root "+ledgerOf(m, "dir /opt/x\ndir /opt/x/y\nverb a  b\nverb [a*\npath /opt/none"))
	})
}

// ledgerOf adds the line of /opt where that has to be made.
func ledgerOf(m machine, text string) string {
	if _, ok := m.(*runnertest.Sandbox); ok {
		return "dir /opt\n" + text
	}
	return text
}

func TestRestore(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		m.Put("/etc/kept", "original\n", 0o640)
		m.Put("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456\n", 0o644)
		must(t, r.Restore(t.Context(), nil)) // nothing to undo
		must(t, r.WriteFiles(t.Context(),
			runner.File{Path: "/etc/kept", Data: []byte("changed"), Mode: 0o644},
			runner.File{Path: "/etc/ours/only", Data: []byte("x"), Mode: 0o644},
			runner.File{Path: "/etc/shared/ours", Data: []byte("x"), Mode: 0o644},
			runner.File{Path: "/etc/odd $x `y` \\", Data: []byte("x"), Mode: 0o644}))
		_, err := r.Change(t.Context(), `note "sysctl net/ipv4/tcp_rmem 4096 131072 6291456"; echo 1 2 3 >/proc/sys/net/ipv4/tcp_rmem; echo theirs >/etc/shared/theirs`)
		must(t, err)
		text := "tool"
		must(t, r.Upload(t.Context(), upload("/etc/bin/tool", text)))
		must(t, r.Restore(t.Context(), nil))
		expect(t, r, "/etc/kept file 640 root:root original", "/etc/ours missing", "/etc/shared directory 755 root:root", "/etc/shared/ours missing",
			"/etc/shared/theirs file 644 root:root theirs", "/etc/bin missing", "/var/lib/kubexm missing", "/proc/sys/net/ipv4/tcp_rmem file 644 root:root 4096 131072 6291456")
		have, err := r.Exists(t.Context(), "/etc/odd $x `y` \\")
		must(t, err)
		if len(have) > 0 {
			t.Errorf("still there: %v", have)
		}
	})
}

func TestFactsScript(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		m.Put("/proc/sys/kernel/hostname", "node7\n", 0o644)
		m.Put("/etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n", 0o644)
		m.Put("/etc/machine-id", "0123456789abcdef0123456789abcdef\n", 0o444)
		m.Put("/etc/kubernetes/admin.conf", "x", 0o600)
		m.Put("/etc/kubernetes/manifests/kube-vip.yaml", "x", 0o600)
		m.Put("/etc/kubernetes/manifests/.kube-vip.yaml.kubexm.1", "x", 0o600)
		m.Put("/usr/local/.keep", "", 0o644)
		m.Put("/var/lib/kubexm/env", "cluster=one\n", 0o644)
		m.Put("/etc/resolv.conf", "search example.com\nnameserver 192.0.2.53\n# nameserver 192.0.2.54\n", 0o644)
		m.Put("/etc/ufw/ufw.conf", "ENABLED=yes\nLOGLEVEL=low\n", 0o644)
		f, err := r.Facts(t.Context(), "/var/lib/none/at/all", "/etc/kubernetes")
		must(t, err)
		if !slices.Equal(f.NameServers, []string{"192.0.2.53"}) || !slices.Equal(f.Filled, []string{"/etc/kubernetes"}) || !slices.Equal(f.Firewalls, []string{"ufw"}) || f.Proxied {
			t.Errorf("got %+v", f)
		}
		type told struct {
			Host, OS, Version, Machine, Cluster string
			Left                                []string
		}
		want := told{"node7", "debian", "12", "0123456789abcdef0123456789abcdef", "one", []string{"/etc/kubernetes/admin.conf", "/etc/kubernetes/manifests/kube-vip.yaml"}}
		if diff := cmp.Diff(want, told{f.Hostname, f.OS, f.OSVersion, f.MachineID, f.Env["cluster"], f.Leftovers}); diff != "" {
			t.Error(diff)
		}
		if !f.Runs("kube-vip") || f.Runs("etcd") {
			t.Errorf("running: %v", f.Running)
		}
		if f.Kernel == "" || f.CPUs == 0 || f.MemoryMiB == 0 || f.Capabilities == 0 || len(f.Disks) != 4 || f.Disks[0].Path != "/var/lib/none/at/all" || f.Disks[0].FreeMiB == 0 || f.Disks[0].Mount == "" || f.Clock == 0 || f.CgroupVersion == 0 {
			t.Errorf("facts are missing: %+v", f)
		}
		again, err := r.Facts(t.Context())
		must(t, err)
		if again != f {
			t.Error("facts were read twice")
		}
	})
}

// filtered is a network of its own, whose packet filter drops what goes to port 1111, and rejects as firewalld does
// what goes to 2222.
type filtered struct{ connector.Connector }

func (filtered) Exec(ctx context.Context, c connector.Cmd) error {
	const rules = `ip link set lo up && nft -f - <<'END' || exit 99
table ip kubexm_test {
	chain input {
		type filter hook input priority 0
		tcp dport 1111 drop
		tcp dport 2222 reject with icmp type host-prohibited
	}
}
END
`
	cmd := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", rules+c.Line)
	cmd.Stdout = c.Stdout
	return cmd.Run()
}

// TestReachThroughFilters meets a real packet filter.
func TestReachThroughFilters(t *testing.T) {
	t.Parallel()
	if err := (filtered{}).Exec(t.Context(), connector.Cmd{Line: "bash -c true"}); err != nil {
		t.Skipf("this machine gives no network namespace with nftables: %v", err)
	}
	got, err := runner.New("node1", filtered{}).Reach(t.Context(), []string{"127.0.0.1:1111", "127.0.0.1:2222", "127.0.0.1:3333"})
	want := map[string]string{"127.0.0.1:1111": "no answer in 2 seconds", "127.0.0.1:2222": "no route to host", "127.0.0.1:3333": ""}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// TestReach tries ports for real: one that something listens on, and one that refuses.
func TestReach(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	onEach(t, func(t *testing.T, _ machine, r *runner.Runner) {
		got, err := r.Reach(t.Context(), []string{l.Addr().String(), "127.0.0.1:1"})
		if diff := cmp.Diff(map[string]string{l.Addr().String(): "", "127.0.0.1:1": ""}, got); diff != "" || err != nil || r.RoundTrips() != 1 {
			t.Error(diff, err)
		}
	})
}

package runnertest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sh(t *testing.T, h *runnertest.Host, script string) string {
	t.Helper()
	out, err := h.Runner().Sh(t.Context(), script)
	if err != nil {
		out += fmt.Sprintf(" (%v)", err)
	}
	return out
}

func TestUnknownIsLoud(t *testing.T) {
	for _, script := range []string{
		"frobnicate --all 2>/dev/null || true", "if frobnicate --all; then :; fi", "x=$(frobnicate --all); :", "echo x | frobnicate --all | cat",
		"systemctl list-jobs x || true", "grep --color x /etc/hosts || true", "/opt/none --all || true",
	} {
		h := runnertest.Rocky9("node1")
		told := 0
		h.Loud = func(string, []string) { told++ }
		_, err := h.Runner().Sh(t.Context(), script)
		var exit *connector.ExitError
		if !errors.As(err, &exit) || exit.Code != 127 || !strings.Contains(exit.Stderr, script) || told != 1 {
			t.Errorf("%s: told %d times, got %v", script, told, err)
		}
	}
}

func TestBashIsNoPOSIXShell(t *testing.T) {
	for _, script := range []string{"a=(1 2)", "if [[ a == a ]]; then echo x; fi", "cat <(echo x)", "echo 'open"} {
		if out, err := runnertest.Debian12("n").Runner().Sh(t.Context(), script); err == nil {
			t.Errorf("%q gave %q", script, out)
		}
	}
}

func TestPresets(t *testing.T) {
	for _, c := range []struct {
		h                 *runnertest.Host
		os, version, tool string
		like              string
	}{
		{runnertest.Debian12("d"), "debian", "12", "apt", "debian"}, {runnertest.Rocky9("r"), "rocky", "9.6", "dnf", "rhel"},
	} {
		f, err := c.h.Runner().Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := runner.Facts{
			Hostname: c.h.Name, OS: c.os, OSVersion: c.version, PackageManager: c.tool, Arch: "amd64", Systemd: true, CgroupVersion: 2, CPUs: 4, MemoryMiB: 7941,
			Swaps: []string{"/dev/vda2"}, Listening: map[int]string{22: "sshd"},
			Interfaces: []runner.Interface{{Name: "eth0", MAC: f.Interfaces[0].MAC, Addresses: []string{"10.0.0.11/24"}}, {Name: "lo", MAC: "00:00:00:00:00:00", Addresses: []string{"127.0.0.1/8"}}},
			Routes:     []runner.Route{{To: "default", Dev: "eth0"}, {To: "10.0.0.0/24", Dev: "eth0"}}, NameServers: []string{"10.0.0.2"},
			Features: map[string]bool{"overlay": true, "br_netfilter": true, "nf_tables": true, "ip_vs": true, "vxlan": true, "ip_set": true},
		}
		got := runner.Facts{
			Hostname: f.Hostname, OS: f.OS, OSVersion: f.OSVersion, PackageManager: f.PackageManager, Arch: f.Arch, Systemd: f.Systemd, CgroupVersion: f.CgroupVersion,
			CPUs: f.CPUs, MemoryMiB: f.MemoryMiB, Swaps: f.Swaps, Listening: f.Listening, Interfaces: f.Interfaces, Features: f.Features,
			Routes: f.Routes, NameServers: f.NameServers,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if !f.Is(c.like) || !f.CanRaiseLimits() || len(f.Disks) != 2 || f.MachineID == "" || len(f.ProductUUID) != 36 || len(f.Interfaces[0].MAC) != 17 {
			t.Errorf("got %+v", f)
		}
	}
	if a, b := runnertest.Debian12("a"), runnertest.Debian12("b"); a.Snapshot() == b.Snapshot() {
		t.Error("two hosts have one machine id")
	}
}

func TestSystemd(t *testing.T) {
	const unit = "printf '[Service]\\nExecStart=/opt/x\\nEnvironment=A=1 \"B=2 3\"\\n[Install]\\nWantedBy=multi-user.target\\n' >/etc/systemd/system/x.service\n"
	const show = "systemctl show x -p ActiveState,UnitFileState,NeedDaemonReload,LoadState --value | tr '\\n' ' '"
	for script, want := range map[string]string{
		show:                                 "inactive not-found no  ",
		unit + show:                          "inactive loaded no disabled ",
		unit + "systemctl enable x; " + show: "inactive loaded no enabled ",
		unit + "systemctl enable --now x; " + show:                                                                                           "active loaded no enabled ",
		unit + "systemctl start x; echo >>/etc/systemd/system/x.service; " + show:                                                            "active loaded yes disabled ",
		unit + "systemctl start x; echo >>/etc/systemd/system/x.service; systemctl daemon-reload; " + show:                                   "active loaded no disabled ",
		unit + "systemctl enable --now x; rm /etc/systemd/system/x.service; systemctl disable x || " + show:                                  "active loaded yes enabled ",
		unit + "systemctl enable --now x; systemctl disable --now x; " + show:                                                                "inactive loaded no disabled ",
		unit + "systemctl mask x || systemctl is-active x || echo $?":                                                                        "inactive\n3",
		unit + "rm /opt/x; systemctl start x || " + show:                                                                                     "failed loaded no disabled ",
		unit + "rm /opt/x; systemctl start x || systemctl reset-failed x; " + show:                                                           "inactive loaded no disabled ",
		unit + "systemctl try-restart x; systemctl is-active -q x || echo no; systemctl restart x; systemctl is-active x":                    "no\nactive",
		unit + `systemctl start x; sleep 0.1; p=$(systemctl show x -p MainPID); tr '\0' '\n' </proc/${p#*=}/environ; cat /proc/${p#*=}/comm`: "A=1\nB=2 3\nx",
		unit + `mkdir /etc/systemd/system/x.service.d; printf '[Service]\nExecStart=\nExecStart=/opt/x -v\nEnvironment=\nEnvironment=C=4\n' >/etc/systemd/system/x.service.d/a.conf
systemctl start x; sleep 0.1; p=$(systemctl show x -p MainPID); tr '\0' '\n' </proc/${p#*=}/environ`: "C=4",
		unit + "printf 'Environment=X=1\\n' >/etc/systemd/system/x.service; systemctl start x || journalctl -q --no-pager -o cat -n 1 -u x": `assignment outside of section or without '=': "Environment=X=1"`,
		"systemctl start y 2>/dev/null || echo $?; systemctl stop y 2>/dev/null || echo $?; systemctl enable y 2>/dev/null || echo $?":      "5\n5\n1",
	} {
		h := runnertest.Debian12("node1")
		h.Put("/opt/x", "ELF", 0o755)
		if got := sh(t, h, script); got != want {
			t.Errorf("%s\ngot  %q\nwant %q", script, got, want)
		}
	}
}

// TestKernelParameter is read while it is written: it has the old value or the new, as the kernel's have.
func TestKernelParameter(t *testing.T) {
	const param = "/proc/sys/kernel/hostname"
	got := sh(t, runnertest.Debian12("node1"), `{ cat `+param+` >&2; echo a name; } 2>/tmp/seen >`+param+`; cat /tmp/seen `+param)
	if want := "node1\na name"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReboot(t *testing.T) {
	h := runnertest.Debian12("node1")
	h.Put("/opt/x", "ELF", 0o755)
	for _, u := range []string{"on", "off"} {
		h.Put("/etc/systemd/system/"+u+".service", "[Service]\nExecStart=/opt/x\n[Install]\nWantedBy=multi-user.target\n", 0o644)
	}
	fresh := h.Snapshot()
	h.TakePort(80, "x")
	h.Mount("tmpfs", "/var/lib/kubelet/x", "tmpfs")
	h.AddPod("pod")
	sh(t, h, `systemctl enable --now on; systemctl start off; touch /run/x /tmp/x; swapoff -a; modprobe overlay; echo 1 >/proc/sys/net/ipv4/ip_forward
echo vm.swappiness=1 >/etc/sysctl.d/x.conf; echo br_netfilter >/etc/modules-load.d/x.conf`)
	h.SetDown(true)
	h.Reboot()
	got := sh(t, h, `ls -A /run; ls -A /tmp; cat /proc/sys/net/ipv4/ip_forward /proc/sys/vm/swappiness; cut -d' ' -f1 /proc/modules; wc -l </proc/swaps; wc -l </proc/mounts; ss -ltnp | wc -l`)
	if want := "lock\nsystemd\n0\n1\nbr_netfilter\n2\n1\n2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if h.Unit("on") != "active enabled" || h.Unit("off") != "inactive disabled" {
		t.Errorf("on is %s, off is %s", h.Unit("on"), h.Unit("off"))
	}
	sh(t, h, "systemctl disable --now on; rm /etc/sysctl.d/x.conf /etc/modules-load.d/x.conf")
	h.Reboot()
	if diff := cmp.Diff(fresh, h.Snapshot()); diff != "" {
		t.Error(diff)
	}
}

func TestFaults(t *testing.T) {
	h := runnertest.Debian12("node1")
	h.Fail("mkdir /a", &connector.ExitError{Line: "mkdir", Code: 9})
	if got := sh(t, h, "mkdir /a"); !strings.Contains(got, "status 9") {
		t.Error(got)
	}
	if got := sh(t, h, "mkdir /b"); got != "" {
		t.Error(got)
	}
	h.SetFull(true)
	for _, script := range []string{"echo x >/b/c", "mkdir /c", "cp /etc/hosts /b/hosts", "ln -s a /b/l", "head -c 3 </etc/hosts >/b/h"} {
		if got := sh(t, h, script); !strings.Contains(got, "o space left on device") {
			t.Errorf("%s: %s", script, got)
		}
	}
	h.SetDown(true)
	if _, err := h.Runner().Sh(t.Context(), "true"); !fault.IsTransient(err) || !errors.Is(err, runnertest.ErrLost) {
		t.Errorf("got %v", err)
	}
	if _, err := h.Dial(t.Context(), "tcp", "10.0.0.11:6443"); !fault.IsTransient(err) {
		t.Errorf("got %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	h.SetDown(false)
	if err := h.Exec(gone, connector.Cmd{Line: "touch /never"}); !errors.Is(err, context.Canceled) || h.Mode("/never") != 0 {
		t.Errorf("got %v", err)
	}
}

func TestKill(t *testing.T) {
	a, b := runnertest.Debian12("a"), runnertest.Debian12("b")
	killed := 0
	kill := &runnertest.Kill{After: 2, Then: func() { killed++ }}
	a.Kill, b.Kill = kill, kill
	sh(t, a, "touch /1")
	sh(t, b, "touch /2")
	err := b.Exec(t.Context(), connector.Cmd{Line: "cat >/3", Stdin: strings.NewReader("0123456789")})
	if !errors.Is(err, runnertest.ErrLost) || !fault.IsTransient(err) || killed != 1 {
		t.Errorf("killed %d times: %v", killed, err)
	}
	if text, _ := b.Get("/3"); text != "01234" {
		t.Errorf("the script in flight got %q", text)
	}
	if err := a.Exec(t.Context(), connector.Cmd{Line: "touch /4"}); !errors.Is(err, runnertest.ErrLost) || a.Mode("/4") != 0 || kill.Count() != 4 {
		t.Errorf("after the kill: %v, %d scripts", err, kill.Count())
	}
}

func TestCut(t *testing.T) {
	h := runnertest.Debian12("a")
	h.Cut = &runnertest.Kill{After: 2}
	if err := h.Exec(t.Context(), connector.Cmd{Line: "touch /1; touch /2; touch /3; touch /4"}); !errors.Is(err, runnertest.ErrLost) {
		t.Errorf("got %v", err)
	}
	if have, want := sh(t, h, "true"), "no power"; h.Mode("/2") == 0 || h.Mode("/3") != 0 || !strings.Contains(have, want) {
		t.Errorf("got %q", have)
	}
	h.Reboot()
	if got := sh(t, h, "touch /3"); got != "" {
		t.Error(got)
	}
}

func TestDial(t *testing.T) {
	h := runnertest.Debian12("a")
	h.Serve("10.0.0.11:6443", func() (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			_, _ = io.WriteString(there, "hello")
			_ = there.Close()
		}()
		return here, nil
	})
	conn, err := h.Dial(t.Context(), "tcp", "10.0.0.11:6443")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(conn); string(text) != "hello" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	h.Serve("10.0.0.11:6443", nil)
	if _, err := h.Dial(t.Context(), "tcp", "10.0.0.11:6443"); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
}

func TestBlocked(t *testing.T) {
	h := runnertest.Debian12("a")
	h.Blocked = map[string]string{"10.0.0.12:10250": "No route to host", "10.0.0.13:2379": ""}
	h.Serve("10.0.0.14:6443", func() (net.Conn, error) { return nil, net.ErrClosed })
	got, err := h.Runner().Reach(t.Context(), []string{"10.0.0.12:10250", "10.0.0.13:2379", "10.0.0.14:6443", "10.0.0.14:2380"})
	want := map[string]string{"10.0.0.12:10250": "no route to host", "10.0.0.13:2379": "no answer in 2 seconds", "10.0.0.14:6443": "", "10.0.0.14:2380": ""}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// archive is an OCI archive with one image.
func archive(t *testing.T, name, digest string, blobs ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	files := map[string]string{"index.json": fmt.Sprintf(`{"manifests":[{"digest":%q,"annotations":{"io.containerd.image.name":%q}}]}`, digest, name)}
	for _, d := range blobs {
		files["blobs/"+strings.Replace(d, ":", "/", 1)] = "{}"
	}
	for n, text := range files {
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: n, Size: int64(len(text)), Mode: 0o644, Typeflag: tar.TypeReg}), copyTo(w, text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func copyTo(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

func TestImages(t *testing.T) {
	h := runnertest.Debian12("a")
	h.Put("/usr/local/bin/ctr", "ELF", 0o755)
	h.Put("/usr/local/bin/containerd", "ELF", 0o755)
	const load = "/usr/local/bin/ctr -n k8s.io images import --digests=false -"
	good := archive(t, "registry.k8s.io/pause:3.10", "sha256:aa", "sha256:aa")
	send := func(b []byte) error { return h.Runner().Exec(t.Context(), load, bytes.NewReader(b), nil) }
	if err := send(good); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("without containerd: %v", err)
	}
	h.Put("/etc/containerd/config.toml", "", 0o644)
	h.Put("/etc/systemd/system/containerd.service", "[Service]\nExecStart=/usr/local/bin/containerd\n", 0o644)
	if err := h.Start("containerd"); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"a blob is missing": archive(t, "x", "sha256:bb"), "cut short": good[:700], "no archive": []byte("x"), "empty": nil} {
		if err := send(b); err == nil {
			t.Errorf("%s: imported", name)
		}
	}
	if err := send(good); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"registry.k8s.io/pause:3.10": "sha256:aa"}, h.Images()); diff != "" {
		t.Error(diff)
	}
	if got := sh(t, h, "ctr -n k8s.io images ls -q"); got != "registry.k8s.io/pause:3.10" {
		t.Error(got)
	}
}

func TestUntar(t *testing.T) {
	h := runnertest.Debian12("a")
	b := archive(t, "x", "sha256:aa", "sha256:aa", "sha256:bb")
	if err := h.Runner().Exec(t.Context(), "mkdir /opt/x; tar -xf - -C /opt/x --strip-components=1 blobs/sha256/aa", bytes.NewReader(b), nil); err != nil {
		t.Fatal(err)
	}
	if h.Mode("/opt/x/sha256/aa") == 0 || h.Mode("/opt/x/sha256/bb") != 0 {
		t.Error(h.Snapshot())
	}
}

// TestConcurrent lets many runs work on one host.
func TestConcurrent(t *testing.T) {
	h := runnertest.Debian12("a")
	h.Put("/opt/x", "ELF", 0o755)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			p := fmt.Sprintf("/etc/shared/d%d/f", i%5)
			r := h.Runner()
			_, err := r.Facts(t.Context())
			err = errors.Join(err, r.WriteFiles(t.Context(), runner.File{Path: fmt.Sprintf("%s%d", p, i), Data: []byte("x"), Mode: 0o644}))
			_, err2 := r.Sh(t.Context(), fmt.Sprintf(`u=u%d; printf '[Service]\nExecStart=/opt/x\n[Install]\nWantedBy=multi-user.target\n' >/etc/systemd/system/$u.service
systemctl daemon-reload; systemctl enable --now $u; systemctl restart $u; echo %d >/proc/sys/vm/swappiness; cat /proc/swaps /proc/modules | grep -c . >/dev/null`, i, i))
			if err := errors.Join(err, err2); err != nil {
				t.Error(err)
			}
			_ = h.Snapshot()
			_ = h.Log()
		})
	}
	wg.Wait()
	for i := range 20 {
		if h.Mode(fmt.Sprintf("/etc/shared/d%d/f%d", i%5, i)) != 0o644 || h.Unit(fmt.Sprintf("u%d", i)) != "active enabled" {
			t.Errorf("%d is lost", i)
		}
	}
	if h.Execs() != 60 {
		t.Errorf("%d scripts", h.Execs())
	}
	if err := h.Runner().Restore(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if h.Mode("/etc/shared") != 0 {
		t.Error("something was not noted")
	}
}

func BenchmarkReadFiles(b *testing.B) {
	r := runnertest.Debian12("node1").Runner()
	for b.Loop() {
		if _, err := r.ReadFiles(b.Context(), "/etc/hosts", "/etc/fstab", "/nope"); err != nil {
			b.Fatal(err)
		}
	}
}

package host_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/host"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

const clocks = "  system: {ntpServers: [192.0.2.1, ntp.example.com], timezone: Europe/Berlin}\n"

// recorded are the facts of machines of several distributions, as runner's tests have recorded them, and of
// those distributions that differ only in what they are called.
func recorded(t *testing.T) map[string]*runner.Facts {
	t.Helper()
	const clock = 1 << 25 // CAP_SYS_TIME
	all := map[string]*runner.Facts{
		"alma8":                               {OS: "almalinux", OSLike: []string{"rhel", "centos", "fedora"}, OSVersion: "8.10", PackageManager: "dnf", Capabilities: clock},
		"anolis8":                             {OS: "anolis", OSLike: []string{"rhel", "fedora", "centos"}, OSVersion: "8.9", PackageManager: "dnf", Capabilities: clock},
		"rhel7":                               {OS: "rhel", OSLike: []string{"fedora"}, OSVersion: "7.9", PackageManager: "yum", Capabilities: clock},
		"other":                               {OS: "uos", PackageManager: "apt", Capabilities: clock},
		"debian13":                            {OS: "debian", OSVersion: "13", PackageManager: "apt", Capabilities: clock},
		"debian13 without a clock of its own": {OS: "debian", OSVersion: "13", PackageManager: "apt"},
		"rhel9 without a clock of its own":    {OS: "rhel", OSLike: []string{"fedora"}, OSVersion: "9.6", PackageManager: "dnf"},
	}
	files, err := filepath.Glob("../../runner/testdata/TestFacts/*.json")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d recorded facts: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var f runner.Facts
		if err := json.Unmarshal(text, &f); err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = &f
	}
	return all
}

// TestFamilies shows what each distribution gets when all is configured that brings packages.
func TestFamilies(t *testing.T) {
	for name, facts := range recorded(t) {
		t.Run(name, func(t *testing.T) {
			const spec = "  system: {ntpServers: [192.0.2.1], timezone: UTC, debs: [vim-tiny], rpms: [vim-minimal]}\n"
			c := clustertest.New(t, spec, func(_ string, f *runner.Facts) { *f = *facts })
			c.Spec.Storage = &v1alpha1.Storage{Longhorn: &v1alpha1.ChartStorage{}}
			golden.Equal(t, clustertest.Text(append(host.Clock(c, "node2"), host.Packages(c, "node2"))...))
		})
	}
}

// TestPrepared shows the steps that there are only where they are configured, and those without a choice.
func TestPrepared(t *testing.T) {
	for name, spec := range map[string]string{
		"defaults": "", "servers": clocks + "  extra: {resolves: [{address: 192.0.2.53}, {address: \"2001:db8::53\"}]}\n",
		"own server": "  system: {ntpServers: [node1]}\n", "own server by address": "  system: {ntpServers: [10.0.0.11]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(t, spec, nil)
			golden.Equal(t, clustertest.Text(slices.Concat([]step.Step{host.System("node1")},
				host.NameServers(c), host.Zone(c), host.Clock(c, "node1"), host.Clock(c, "node2"))...))
		})
	}
}

// set runs steps on a host, each twice: the second time there is nothing to do.
func set(t *testing.T, h interface{ Runner() *runner.Runner }, steps ...step.Step) {
	t.Helper()
	for _, s := range steps {
		s = step.Unwrap(s)
		c, err := s.Precheck(t.Context(), h.Runner())
		if err != nil || c == nil {
			t.Fatalf("%s: %+v, %v", s, c, err)
		}
		if err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := step.Verify(t.Context(), h.Runner(), s, c); err != nil {
			t.Fatal(err)
		}
	}
}

// changed lets steps run and Restore put all back, and returns what a script printed between.
func changed(t *testing.T, h *runnertest.Host, script string, steps ...step.Step) string {
	t.Helper()
	before := h.Snapshot()
	set(t, h, steps...)
	out, err := h.Runner().Sh(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Runner().Restore(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(h.Snapshot(), "\n")); diff != "" {
		t.Errorf("after Restore:\n%s", diff)
	}
	return out
}

func equal(t *testing.T, got, want string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// nothing wants none of the steps to find anything to do.
func nothing(t *testing.T, h *runnertest.Host, steps ...step.Step) {
	t.Helper()
	for _, s := range steps {
		if c, err := s.Precheck(t.Context(), h.Runner()); err != nil || c != nil {
			t.Errorf("%s: %+v, %v", s, c, err)
		}
	}
}

func service(h *runnertest.Host, name string) {
	h.Put("/usr/sbin/"+name, "ELF", 0o755)
	h.Put("/usr/lib/systemd/system/"+name+".service", "[Service]\nType=notify\nExecStart=/usr/sbin/"+name+"\n[Install]\nWantedBy=multi-user.target\n", 0o644)
}

func TestName(t *testing.T) {
	h := runnertest.Debian12("other")
	equal(t, changed(t, h, "hostname; cat /etc/hostname", host.Name("node1")), "node1\nnode1")
}

func TestSELinux(t *testing.T) {
	h := runnertest.Rocky9("node1")
	nothing(t, h, host.SELinux())
	const look = "cat /sys/fs/selinux/enforce; grep SELINUX= /etc/selinux/config"
	for _, c := range []struct{ now, boot, want string }{
		{"1", "enforcing", "0\nSELINUX=disabled"}, {"1", "permissive", "0\nSELINUX=permissive"}, {"0", "enforcing", "0\nSELINUX=disabled"},
	} {
		h.Put("/sys/fs/selinux/enforce", c.now+"\n", 0o644)
		h.Put("/etc/selinux/config", "# SELINUX= can be one of these\nSELINUX="+c.boot+"\nSELINUXTYPE=targeted\n", 0o644)
		equal(t, changed(t, h, look+" | grep -v '^#'", host.SELinux()), c.want)
	}
}

func TestFirewall(t *testing.T) {
	h := runnertest.Debian12("node1")
	nothing(t, h, host.Firewall())
	service(h, "firewalld")
	service(h, "ufw")
	loaded := false // ufw's rules
	h.Programs["iptables"] = func(c *runnertest.Call) int {
		if !loaded {
			return c.Failf(1, "No chain/target/match by that name.")
		}
		return 0
	}
	h.OnStop["ufw.service"] = func(*runnertest.Host) { loaded = false }
	nothing(t, h, host.Firewall())
	const look = "systemctl is-active firewalld ufw || true; systemctl is-enabled firewalld ufw || true"
	for _, c := range []struct{ prep, want string }{
		{"systemctl enable --now firewalld", "inactive\ninactive\ndisabled\ndisabled"},
		{"systemctl disable --now firewalld; systemctl start firewalld", "inactive\ninactive\ndisabled\ndisabled"},
		{"systemctl stop firewalld; systemctl enable firewalld", "inactive\ninactive\ndisabled\ndisabled"},
		{"systemctl enable --now ufw", "inactive\nactive\ndisabled\nenabled"}, // not in use
		{"mkdir -p /etc/ufw; echo ENABLED=yes >/etc/ufw/ufw.conf", "inactive\ninactive\ndisabled\ndisabled"},
	} {
		if _, err := h.Runner().Sh(t.Context(), c.prep); err != nil {
			t.Fatal(err)
		}
		equal(t, changed(t, h, look, host.Firewall()), c.want)
	}
	loaded = true // by "ufw enable", while its service neither runs nor starts at boot
	equal(t, changed(t, h, look, host.Firewall()), "inactive\ninactive\ndisabled\ndisabled")
	if loaded {
		t.Error("the rules of ufw stay")
	}
}

// TestFirewallThatIsGone has a firewall that its owner has removed meanwhile, and one that starts no more.
func TestFirewallThatIsGone(t *testing.T) {
	h := runnertest.Rocky9("node1")
	service(h, "firewalld")
	if _, err := h.Runner().Sh(t.Context(), "systemctl enable --now firewalld"); err != nil {
		t.Fatal(err)
	}
	set(t, h, host.Firewall())
	h.Remove("/usr/sbin/firewalld")
	if err := h.Runner().Restore(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "not started again: firewalld") {
		t.Errorf("got %v", err)
	}
	h.Remove("/usr/lib/systemd/system/firewalld.service")
	if _, err := h.Runner().Sh(t.Context(), "systemctl stop firewalld; systemctl daemon-reload"); err != nil {
		t.Fatal(err)
	}
	if err := h.Runner().Restore(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestNameServers(t *testing.T) {
	c := clustertest.New(t, "  extra: {resolves: [{address: 192.0.2.53}, {address: 192.0.2.54}]}\n", nil)
	const block, look = "# BEGIN kubexm\nnameserver 192.0.2.53\nnameserver 192.0.2.54\n# END kubexm\n", "cat /etc/resolv.conf"
	h := runnertest.Debian12("node1")
	equal(t, changed(t, h, look, host.NameServers(c)...)+"\n", block+"nameserver 10.0.0.2\n")

	h.Put("/run/NetworkManager/resolv.conf", "search example.com\nnameserver 10.0.0.3\n", 0o644)
	link(t, h, "/run/NetworkManager/resolv.conf")
	equal(t, changed(t, h, look, host.NameServers(c)...)+"\n", block+"search example.com\nnameserver 10.0.0.3\n")

	service(h, "systemd-resolved")
	if _, err := h.Runner().Sh(t.Context(), "systemctl enable --now systemd-resolved"); err != nil {
		t.Fatal(err)
	}
	const dropIn = "[Resolve]\nDNS=192.0.2.53 192.0.2.54\nDomains=~.\n"
	for _, keeps := range []func(){
		func() { link(t, h, "../run/systemd/resolve/stub-resolv.conf") },
		func() { link(t, h, "../run/systemd/resolve/resolv.conf") },
		func() {
			h.Remove("/etc/resolv.conf")
			h.Put("/etc/resolv.conf", "nameserver 127.0.0.53\noptions edns0\n", 0o644)
		},
	} {
		keeps()
		equal(t, changed(t, h, "cat /etc/systemd/resolved.conf.d/kubexm.conf", host.NameServers(c)...)+"\n", dropIn)
	}
}

func link(t *testing.T, h *runnertest.Host, to string) {
	t.Helper()
	if _, err := h.Runner().Sh(t.Context(), "ln -sf "+to+" /etc/resolv.conf"); err != nil {
		t.Fatal(err)
	}
}

func TestZone(t *testing.T) {
	c := clustertest.New(t, clocks, nil)
	h := runnertest.Debian12("node1")
	s := host.Zone(c)[0]
	change, err := s.Precheck(t.Context(), h.Runner())
	if err != nil || change == nil {
		t.Fatalf("%v, %v", change, err)
	}
	if err := change.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no time zone Europe/Berlin") {
		t.Errorf("got %v", err)
	}
	for _, zone := range []string{"Etc/UTC", "Europe/Berlin"} {
		h.Put("/usr/share/zoneinfo/"+zone, "TZif2", 0o644)
	}
	const look = "readlink /etc/localtime; cat /etc/timezone 2>/dev/null || true"
	equal(t, changed(t, h, look, s), "../usr/share/zoneinfo/Europe/Berlin") // there was none
	h.Put("/etc/localtime", "TZif2", 0o644)
	h.Put("/etc/timezone", "Etc/UTC\n", 0o644)
	equal(t, changed(t, h, look, s), "../usr/share/zoneinfo/Europe/Berlin\nEurope/Berlin")
	if _, err := h.Runner().Sh(t.Context(), "ln -sf /usr/share/zoneinfo/Europe/Berlin /etc/localtime; echo Europe/Berlin >/etc/timezone"); err != nil {
		t.Fatal(err)
	}
	nothing(t, h, s)
}

// TestClock has a family in which chrony pushes another time service out, one in which it is there already, and
// one in which ntpd runs.
func TestClock(t *testing.T) {
	fit := func(h *runnertest.Host) *cluster.Cluster {
		f, err := h.Runner().Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return clustertest.New(t, clocks, func(_ string, have *runner.Facts) { *have = *f })
	}
	clock := func(c *cluster.Cluster) []step.Step { return slices.Delete(host.Clock(c, "node1"), 1, 2) } // there is no former configuration
	const conf = "# Made by kubexm.\nserver 192.0.2.1 iburst\npool ntp.example.com iburst\ndriftfile /var/lib/chrony/drift\nmakestep 1.0 3\nrtcsync"

	h := runnertest.Debian12("node1")
	c := fit(h)
	set(t, h, host.Packages(c, "node1")) // package lists stay
	if err := h.Runner().Restore(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	steps := append([]step.Step{host.Packages(c, "node1")}, clock(c)[1:]...)
	equal(t, changed(t, h, "cat /etc/chrony/chrony.conf; systemctl is-active chrony systemd-timesyncd || true", steps...), conf+"\nactive\ninactive")

	h = runnertest.Rocky9("node1")
	c = fit(h)
	const look = "cat /etc/chrony.conf; systemctl is-active chronyd ntpd || true"
	nothing(t, h, clock(c)[0])
	equal(t, changed(t, h, look, clock(c)[1:]...), conf+"\nactive\ninactive")
	service(h, "ntpd")
	if _, err := h.Runner().Sh(t.Context(), "systemctl enable --now ntpd"); err != nil {
		t.Fatal(err)
	}
	equal(t, changed(t, h, look, clock(c)...), conf+"\nactive\ninactive")
}

// TestNoWayBack has no repository from which to install again what chrony pushed out.
func TestNoWayBack(t *testing.T) {
	h := runnertest.Debian12("node1")
	before := h.Snapshot()
	set(t, h, host.Packages(clustertest.New(t, clocks, nil), "node1"))
	h.Offline = true
	gone := h.Repo["systemd-timesyncd"]
	delete(h.Repo, "systemd-timesyncd")
	if err := h.Runner().Restore(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "cannot be installed again: systemd-timesyncd; ") {
		t.Errorf("got %v", err)
	}
	h.Repo["systemd-timesyncd"] = gone
	if err := h.Runner().Restore(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(h.Snapshot(), "\n")); diff != "" {
		t.Errorf("after Restore:\n%s", diff)
	}
}

// stub keeps the states of services in files.
const stub = `#!/bin/sh
verb=; now=; for a in "$@"; do case "$a" in --now) now=y;; -*) ;; *) if [ -n "$verb" ]; then u=$a; else verb=$a; fi;; esac; done
case $verb in
is-enabled) if [ -e "/services/$u/enabled" ]; then echo enabled; else echo disabled; exit 1; fi;;
is-active) [ -e "/services/$u/active" ];;
enable) echo >"/services/$u/enabled";;
start) echo >"/services/$u/active";;
disable) rm -f "/services/$u/enabled"; if [ -n "$now" ]; then rm -f "/services/$u/active"; fi;;
*) echo "systemctl $*" >&2; exit 1;;
esac
`

// TestOnRealShells runs the scripts on real shells, with a systemctl that does no more than they ask for.
func TestOnRealShells(t *testing.T) {
	c := clustertest.New(t, clocks+"  extra: {resolves: [{address: 192.0.2.53}]}\n", nil)
	steps := slices.Concat([]step.Step{host.Name("node1"), host.SELinux(), host.Firewall()}, host.NameServers(c), host.Clock(c, "node1")[:1])
	if _, err := os.Stat("/usr/share/zoneinfo/Europe/Berlin"); err == nil {
		steps = append(steps, host.Zone(c)...)
	}
	for _, shell := range runnertest.Shells() {
		t.Run(shell, func(t *testing.T) {
			s := runnertest.NewSandbox(t, shell)
			for p, text := range map[string]string{
				"/etc/hostname": "other\n", "/proc/sys/kernel/hostname": "other\n", "/etc/resolv.conf": "nameserver 10.0.0.2\n",
				"/etc/timezone": "Etc/UTC\n", "/etc/localtime": "TZif2\n", "/sys/fs/selinux/enforce": "1\n",
				"/etc/selinux/config": "# as it was\nSELINUX=enforcing\nSELINUXTYPE=targeted\n",
			} {
				s.Put(p, text, 0o644)
			}
			s.Put("/programs/systemctl", stub, 0o755)
			for _, p := range []string{"firewalld/enabled", "firewalld/active", "ufw/enabled", "ufw/active", "ntpd/active", "systemd-timesyncd/enabled"} {
				s.Put("/services/"+p, "\n", 0o644)
			}
			look := func() string {
				const all = `find /etc /sys /services /var/lib/kubexm -type f -o -type l 2>/dev/null | sort | while read -r f; do echo "$f $(stat -c '%a %F' "$f")"; readlink "$f" || cat "$f"; done; cat /proc/sys/kernel/hostname`
				out, err := s.Runner().Sh(t.Context(), all)
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			before := look()
			set(t, s, steps...)
			if now := look(); !strings.HasSuffix(now, "\nnode1") || !strings.Contains(now, "SELINUX=disabled") || !strings.Contains(now, "192.0.2.53") ||
				strings.Contains(now, "\n/services/ntpd") || strings.Contains(now, "\n/services/firewalld") || !strings.Contains(now, "\n/services/ufw/active") {
				t.Errorf("got\n%s", now)
			}
			if err := s.Runner().Restore(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			equal(t, look(), before)
		})
	}
}

// TestForward shows what leads from port to port while that of API servers is changed twice, the first time cut off: on a host that listens
// at the first one still, and when it listens at the last.
func TestForward(t *testing.T) {
	c := clustertest.Parse(t, clustertest.Masters+"  - {name: node4, address: 10.0.0.14, roles: [worker]}\n  - {name: lb1, address: 10.0.0.21, roles: [loadbalancer]}\n"+
		"  loadBalancer: {port: 9443, mode: external, vip: 10.0.0.100}\n", func(_ string, f *runner.Facts) {
		f.Servers, f.Inventory = []string{"lb.kubexm.local:6443"}, []string{"unit kubexm-port-8443"}
	})
	for _, h := range []string{"node2", "node4", "lb1"} {
		t.Run(h, func(t *testing.T) {
			golden.Equal(t, clustertest.Text(slices.Concat(host.Forward(c, h, 6443), []step.Step{host.CanForward(), host.PortFree(c)}, host.Forward(c, h, 9443))...))
		})
	}
}

package cleanup_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/cleanup"
)

// apply lets a step do what there is to do, and reports whether there was anything.
func apply(t *testing.T, r *runner.Runner, s step.Step) bool {
	t.Helper()
	s = step.Unwrap(s)
	c, err := s.Precheck(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		return false
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := step.Verify(t.Context(), r, s, c); err != nil {
		t.Fatal(err)
	}
	return true
}

// TestNetworkOfOthers has rules of an administrator between those of the cluster, which has IPv4, or, with IPVS, both families.
func TestNetworkOfOthers(t *testing.T) {
	theirs := []string{
		`-A INPUT -p udp --dport 8472 -m comment --comment "flannel" -j ACCEPT`, `-A INPUT -m comment --comment "not in KUBE-FIREWALL" -j ACCEPT`,
		`-A INPUT -m comment --comment CNI-x -j ACCEPT`, `:MY-KUBE-CHAIN - [0:0]`,
	}
	ours := []string{
		`:KUBE-SERVICES - [0:0]`, `:CNI-HOSTPORT-DNAT - [0:0]`, `:FLANNEL-FWD - [0:0]`, `-A KUBE-FORWARD -j ACCEPT`, `-A OUTPUT -m comment --comment "x" -j KUBE-SERVICES`,
		`-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT`, `-A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD`,
		`-A FORWARD -s 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT`, `-A POSTROUTING -m comment --comment "flanneld masq" -g FLANNEL-POSTRTG`,
	}
	for ipvs, c := range map[bool]*cluster.Cluster{false: clustertest.New(t, "", nil), true: clustertest.Parse(t, clustertest.DualStack, nil)} {
		h := runnertest.Debian12("node1")
		for _, p := range strings.Fields("iptables-save iptables-restore ip6tables-save ip6tables-restore nft ipvsadm") {
			h.Put("/usr/sbin/"+p, "ELF", 0o755)
		}
		h.AddRules("iptables", theirs...)
		h.AddRules("ip6tables", theirs...)
		h.AddRules("inet flannel-guard", "chain x {", "}")
		h.AddRules("ip kube-proxy", "chain services {", "}")
		h.AddRules("ip6 flannel-ipv6", "chain postrtg {", "}")
		before := h.Snapshot()
		h.AddRules("iptables", ours...)
		h.AddRules("ip6tables", ours...)
		h.SetAddr("flannel.1", "10.244.0.0/32")
		h.SetAddr("cali0123456789a", "10.244.0.1/32")
		left := "ip route replace 10.233.64.64/26 via 10.0.0.12 proto 80"
		if ipvs {
			left += "; ip -6 route replace fd69:10:233:1::/64 via fd00::12 proto 80; " + runner.CacheMark.Add("fd69:254:25::10")
			h.SetAddr("kube-ipvs0", "10.96.0.1/32")
		}
		if _, err := h.Runner().Sh(t.Context(), left); err != nil {
			t.Fatal(err)
		}
		if !apply(t, h.Runner(), cleanup.Network(c)) {
			t.Error("nothing to do")
		}
		before = strings.Replace(before, "rules ip kube-proxy\n    chain services {\n    }\n", "", 1)
		before = strings.Replace(before, "rules ip6 flannel-ipv6\n    chain postrtg {\n    }\n", "", 1)
		if diff := cmp.Diff(before, h.Snapshot()); diff != "" {
			t.Errorf("what others have differs:\n%s", diff)
		}
		if cleared := strings.Contains(strings.Join(h.Log(), "\n"), "ipvsadm -C"); cleared != ipvs {
			t.Errorf("with IPVS %t, virtual servers cleared: %t", ipvs, cleared)
		}
	}
}

// TestServicesLeaveNoShims has a containerd that stopped, or crashed before, and left processes.
func TestServicesLeaveNoShims(t *testing.T) {
	for _, group := range []string{"/sys/fs/cgroup/system.slice/containerd.service", "/sys/fs/cgroup/systemd/system.slice/containerd.service"} {
		h := runnertest.Debian12("node1")
		h.Put(group+"/cgroup.procs", "4711\n4712\n", 0o644)
		h.Put("/sys/fs/cgroup/lxc.payload.other/system.slice/containerd.service/cgroup.procs", "4713\n", 0o644)
		if !apply(t, h.Runner(), cleanup.Services(clustertest.New(t, "", nil), "node1")) || !strings.Contains(strings.Join(h.Log(), "\n"), "kill 4711 4712") {
			t.Errorf("left running: %q", h.Log())
		}
		if text, _ := h.Get("/sys/fs/cgroup/lxc.payload.other/system.slice/containerd.service/cgroup.procs"); text != "4713\n" {
			t.Error("ended what runs in a container of others")
		}
	}
}

// TestGroupsInUse has a process in a pod's control group that a real shell must end.
func TestGroupsInUse(t *testing.T) {
	for _, shell := range []string{"dash", "bash"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			m := runnertest.NewSandbox(t, shell)
			m.Put("/programs/rmdir", `#!/bin/sh
if kill -0 $(cat "$1/cgroup.procs"); then exit 1; fi
rm -f "$1/cgroup.procs"
exec /bin/rmdir "$1"
`, 0o755)
			_, err := m.Runner().Sh(t.Context(), `g=/sys/fs/cgroup/cpu/kubepods.slice; mkdir -p $g/pod1; (sleep 100 >/dev/null 2>&1 & echo $! >$g/pod1/cgroup.procs); : >$g/cgroup.procs
`+cleanup.Groups().(step.Command).Run+`
if [ -d $g ]; then exit 9; fi`)
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestExternalEtcdStays has an etcd that is not kubexm's on a machine of the cluster.
func TestExternalEtcdStays(t *testing.T) {
	const data = "/var/lib/etcd/member/snap/db"
	for external, c := range map[bool]*cluster.Cluster{
		false: clustertest.New(t, "", nil),
		true:  clustertest.Parse(t, clustertest.Alone+clustertest.ExternalEtcd(t, &pki.Store{Dir: t.TempDir()}), nil),
	} {
		h := runnertest.Debian12("node1")
		h.Put("/usr/bin/etcd", "ELF", 0o755)
		h.Put("/etc/systemd/system/etcd.service", "[Service]\nType=notify\nExecStart=/usr/bin/etcd\n[Install]\nWantedBy=multi-user.target\n", 0o644)
		h.Put(data, "objects", 0o600)
		h.Put("/etc/kubernetes/kubelet.conf", "x", 0o600)
		if _, err := h.Runner().Sh(t.Context(), "systemctl enable --now etcd"); err != nil {
			t.Fatal(err)
		}
		stopped, emptied := apply(t, h.Runner(), cleanup.Services(c, "node1")), apply(t, h.Runner(), cleanup.Data(c, "node1"))
		_, left := h.Get(data)
		if runs := h.Unit("etcd") == "active enabled"; runs != external || left != external || stopped == external || !emptied {
			t.Errorf("external %t: etcd runs: %t, its data is left: %t; changed: %t, %t", external, runs, left, stopped, emptied)
		}
	}
}

// TestDataOfOthers has other file systems in the directories of the cluster, on real shells;
// and such that are links or the root of a file system.
func TestDataOfOthers(t *testing.T) {
	c := clustertest.New(t, "  etcd: {dataDir: /data/etcd}\n", nil)
	for _, shell := range []string{"memory", "dash", "bash"} {
		t.Run(shell, func(t *testing.T) {
			var m interface {
				connector.Connector
				Runner() *runner.Runner
			} = runnertest.Debian12("node1")
			mount := ""
			if shell != "memory" {
				m = runnertest.NewSandbox(t, shell)
				mount = "mount -t tmpfs x /var/lib/kubelet/nfs; mount -t tmpfs x /data/etcd; echo x >/var/lib/kubelet/nfs/theirs; "
			}
			script := func(s step.Command, after string) string {
				return "set -e; mkdir -p /var/lib/kubelet/nfs /data/etcd /disk/containerd; ln -s /disk/containerd /var/lib/containerd; " + mount +
					"mkdir -p /data/etcd/lost+found /data/etcd/member /var/lib/kubelet/pods; touch '/disk/containerd/a  b' /disk/containerd/.c /disk/containerd/..d; mkdir -p /etc/kubernetes/pki\n" +
					"if (" + s.Unless + "\n); then exit 9; fi; (" + s.Run + "\n); (" + s.Unless + "\n); " + after
			}
			after := `for f in /data/etcd/* /var/lib/kubelet /var/lib/kubelet/nfs/* /etc/kubernetes /disk/containerd; do if [ -e "$f" ]; then echo "$f"; fi; done; ls -A /disk/containerd; readlink /var/lib/containerd`
			out, err := m.Runner().Sh(t.Context(), script(cleanup.Data(c, "node1").(step.Command), after))
			want := "/data/etcd/lost+found\n/var/lib/kubelet\n/var/lib/kubelet/nfs/theirs\n/disk/containerd\n/disk/containerd"
			if shell == "memory" { // it has one file system
				want = "/data/etcd/lost+found\n/disk/containerd\n/disk/containerd"
			}
			if diff := cmp.Diff(want, out); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

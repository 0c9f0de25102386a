package testbed

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/test/testbed/build"
)

func TestOpen(t *testing.T) {
	t.Setenv("KUBEXM_TESTBED_STATE", "/state")
	t.Setenv("KUBEXM_TESTBED", "env")
	for _, c := range []struct{ name, want string }{
		{"kx", "kx"}, {"", "env"}, {"a1b2c", "a1b2c"}, {"toolong", ""}, {"Kx", ""}, {"1x", ""}, {"a-b", ""},
	} {
		tb, err := Open(c.name, io.Discard)
		if err != nil && c.want != "" || err == nil && tb.Name != c.want {
			t.Errorf("Open(%q) = %v, %v; want name %q", c.name, tb, err, c.want)
		}
	}
	one, _ := Open("kx", io.Discard)
	two, _ := Open("other", io.Discard)
	if one.Gateway() != "10.77.0.1" || one.Subnet() == two.Subnet() || one.Dir == two.Dir {
		t.Errorf("%s and %s must not share anything: %s %s", one.Name, two.Name, one.Subnet(), two.Subnet())
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		options Options
		err     string
		second  string // system of node2
	}{
		{Options{Nodes: 3}, "", "debian12"},
		{Options{Nodes: 2, OS: "mixed", User: "kube"}, "", "debian13"},
		{Options{Nodes: 244, OS: "debian13"}, "", "debian13"},
		{Options{Nodes: 0}, "0 nodes", ""},
		{Options{Nodes: 245}, "245 nodes", ""},
		{Options{Nodes: 1, OS: "plan9"}, `"plan9"`, ""},
		{Options{Nodes: 1, User: "nobody"}, `"nobody"`, ""},
		{Options{Nodes: 1, Family: Dual}, "", "debian12"},
		{Options{Nodes: 1, Family: "ipv5"}, `"ipv5"`, ""},
	} {
		o := c.options
		err := o.check()
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%+v: error %v, want %q", c.options, err, c.err)
		}
		if err == nil && o.system(2) != c.second {
			t.Errorf("%+v: node2 has %s, want %s", c.options, o.system(2), c.second)
		}
	}
}

func TestParseCgroups(t *testing.T) {
	const (
		cpu     = "33 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
		unified = "41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n"
		v2      = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		other   = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n42 31 0:39 / /mnt/cgroup rw - cgroup2 x rw\n"
	)
	for _, c := range []struct {
		name, mountinfo string
		dirs            []string
		v2              bool
	}{
		{"v1", other + cpu, []string{"/sys/fs/cgroup/cpu"}, false},
		{"hybrid", other + cpu + unified, []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"}, false},
		{"v2", v2, []string{"/sys/fs/cgroup"}, true},
		{"none", other, nil, true},
	} {
		h, err := parseCgroups(strings.NewReader(c.mountinfo))
		if diff := cmp.Diff(c.dirs, h.dirs); diff != "" || h.v2 != c.v2 || (err != nil) != (c.dirs == nil) {
			t.Errorf("%s: v2 %v, error %v, %s", c.name, h.v2, err, diff)
		}
	}
}

func TestRate(t *testing.T) {
	for in, want := range map[string]int64{"100mbit": 100e6, "1gbit": 1e9, "64kbit": 64e3, "7bit": 7, "": 0, "mbit": 0, "-1mbit": 0, "5": 0} {
		got, err := Rate(in)
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("Rate(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
}

// fake is a testbed with nodes on disk but not in the kernel.
func fake(t *testing.T, nodes int, user string) *Testbed {
	t.Helper()
	return fakeOf(t, nodes, settings{User: user})
}

func fakeOf(t *testing.T, nodes int, s settings) *Testbed {
	t.Helper()
	t.Setenv("KUBEXM_TESTBED_STATE", t.TempDir())
	tb, err := Open("kx", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	writeJSON(t, filepath.Join(tb.Dir, "settings.json"), s)
	for i := range nodes {
		n := tb.node(nodes-i, "debian12", "/base") // any order
		writeJSON(t, tb.dir(n.Name, "node.json"), n)
	}
	if err := os.MkdirAll(tb.dir("node99"), 0o755); err != nil { // half made
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(tb.KeyFile()), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := makeKey(tb.KeyFile(), "test"); err != nil {
		t.Fatal(err)
	}
	return tb
}

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestNodes(t *testing.T) {
	tb := fake(t, 11, "root")
	nodes, err := tb.Nodes()
	if err != nil || len(nodes) != 11 || nodes[1].Name != "node2" || nodes[10].Address != "10.77.0.21" {
		t.Fatalf("%v %v", nodes, err)
	}
	if _, err := tb.Node("node12"); err == nil || !strings.Contains(err.Error(), "it has: node1 node2") {
		t.Errorf("asking for node12: %v", err)
	}
	if n, err := tb.Node("node3"); err != nil || tb.State(n) != "off" {
		t.Errorf("node3: %v, %s", err, tb.State(n))
	}
	for _, name := range []string{"..", "../../x", "", "node", "node1/lib"} {
		if os.Geteuid() == 0 && tb.Down(t.Context(), name) == nil {
			t.Errorf("removed %q", name)
		}
	}
	if traces := tb.traces(); len(traces) < 12 {
		t.Errorf("a half made node leaves a trace: %v", traces)
	}
}

// The configurations must be what kubexm accepts.
func TestConfig(t *testing.T) {
	b := &build.Builder{Sets: "components"}
	for _, c := range []struct {
		name    string
		user    string
		options ConfigOptions
		wants   []string
	}{
		{"single", "root", ConfigOptions{Nodes: 1, Row: 1}, []string{"roles: [master, etcd, worker]", "type: kubeadm", "version: v1.37."}},
		{"binaries", "kube", ConfigOptions{Nodes: 3, Row: 2}, []string{"roles: [master, etcd]\n", "roles: [worker]", "type: kubexm", "sudoPassword: " + Password}},
		{"older", "nopass", ConfigOptions{Nodes: 2, Row: 1, Kubernetes: "1.35"}, []string{"version: v1.35.", "user: nopass", "http://10.77.0.1:8099/dl.k8s.io/"}},
		{"external etcd", "root", ConfigOptions{Nodes: 5, Row: 22}, []string{"roles: [master]\n", "name: node4\n", `endpoints: ["https://10.77.0.15:2379"]`, "/certs/etcd/client.key\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := fake(t, max(3, c.options.Nodes), c.user).Config(&out, b, c.options); err != nil {
				t.Fatal(err)
			}
			for _, want := range c.wants {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, out.String())
				}
			}
			if _, _, err := config.Parse("cluster.yaml", out.Bytes()); err != nil {
				t.Errorf("kubexm refuses it: %v\n%s", err, out.String())
			}
		})
	}
	var out bytes.Buffer
	if err := ConfigAnywhere(&out, b, "127.0.0.1:1", "127.0.0.1:2"); err != nil || strings.Contains(out.String(), "arch:") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if _, _, err := config.Parse("cluster.yaml", out.Bytes()); err != nil {
		t.Errorf("kubexm refuses it: %v\n%s", err, out.String())
	}
	for _, o := range []ConfigOptions{{Nodes: 4, Row: 1}, {Nodes: 0, Row: 1}, {Nodes: 1, Row: 4}, {Nodes: 1, Row: 1, Kubernetes: "1.2"}} {
		if err := fake(t, 3, "root").Config(io.Discard, b, o); err == nil {
			t.Errorf("%+v: want an error", o)
		}
	}
}

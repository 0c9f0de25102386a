package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// variants are clusters that differ in what the kubelet and kube-proxy are told.
var variants = map[string]struct {
	spec string
	edit func(string, *runner.Facts)
}{
	"defaults":                {},
	"cgroup v1 on 1.34":       {spec: "  kubernetes: {version: v1.34.11}\n", edit: cgroup1},
	"cgroup v1 on 1.35":       {spec: "  kubernetes: {version: v1.35.8}\n", edit: cgroup1},
	"cgroup v1 on 1.37":       {spec: "  kubernetes: {version: v1.37.1}\n", edit: cgroup1},
	"systemd-resolved":        {edit: func(_ string, f *runner.Facts) { f.Features[runner.FeatureResolved] = true }},
	"no CAP_SYS_RESOURCE":     {edit: func(_ string, f *runner.Facts) { f.Capabilities = 0 }},
	"fixed conntrack table":   {edit: func(_ string, f *runner.Facts) { f.Features[runner.FeatureConntrackFixed] = true }},
	"one without nf_tables":   {edit: func(h string, f *runner.Facts) { f.Features[runner.FeatureNFTables] = h == "node1" }},
	"one with another kernel": {edit: func(h string, f *runner.Facts) { f.CgroupVersion = map[string]int{"node1": 2, "node2": 1}[h] }},
	"configured": {spec: `  kubernetes:
    maxPods: 50
    podPidsLimit: 500
    dnsDomain: k8s.example
    proxyMode: ipvs
    featureGates: {NodeSwap: true, AllAlpha: false}
    kubelet: {config: {evictionHard: {memory.available: 500Mi}, authentication: {anonymous: {enabled: true}}, shutdownGracePeriod: 30s}}
    kubeProxy: {config: {ipvs: {strictARP: true}, conntrack: {min: 1}}}
`},
}

func cgroup1(_ string, f *runner.Facts) { f.CgroupVersion = 1 }

func TestKubeletAndProxyConfig(t *testing.T) {
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(t, v.spec, v.edit)
			var b strings.Builder
			for _, doc := range []struct {
				title string
				doc   map[string]any
			}{{"kubelet of node2", c.KubeletConfig("node2")}, {"kubelets in common", c.KubeletConfig("")}, {"kube-proxy", c.ProxyConfig()}} {
				fmt.Fprintf(&b, "---- %s\n%s", doc.title, c.YAML(doc.doc))
			}
			golden.Equal(t, b.String())
		})
	}
}

// unfit are hosts with which something is wrong, one for each check at least.
var unfit = map[string]func(*runner.Facts){
	"other distribution":       func(f *runner.Facts) { f.OS, f.OSName = "slackware", "Slackware 15.0" },
	"other version":            func(f *runner.Facts) { f.OSVersion, f.OSName = "10", "Debian GNU/Linux 10 (buster)" },
	"longer version":           func(f *runner.Facts) { f.OS, f.OSVersion = "rocky", "9.6" },
	"no systemd":               func(f *runner.Facts) { f.Systemd = false },
	"architecture":             func(f *runner.Facts) { f.Arch = "riscv64" },
	"one CPU":                  func(f *runner.Facts) { f.CPUs = 1 },
	"memory for a worker only": func(f *runner.Facts) { f.MemoryMiB = 1900 },
	"little memory":            func(f *runner.Facts) { f.MemoryMiB = 900 },
	"full disk":                func(f *runner.Facts) { f.Disks = []runner.Disk{{Path: "/"}, {Path: "/var/lib", FreeMiB: 300}} },
	"no kernel modules":        func(f *runner.Facts) { f.Features = map[string]bool{}; f.Kernel = "5.0-tiny" },
	"no package manager":       func(f *runner.Facts) { f.PackageManager = "" },
	"leftovers":                func(f *runner.Facts) { f.Leftovers = []string{"/etc/kubernetes/admin.conf", "/var/lib/etcd/member"} },
	"of another cluster":       func(f *runner.Facts) { f.Env = map[string]string{"cluster": "other"} },
	"of this cluster": func(f *runner.Facts) {
		f.Env = map[string]string{"cluster": "demo"}
		f.Leftovers = []string{"/etc/kubernetes/admin.conf"}
		f.Listening[6443] = "kube-apiserver"
	},
	"of another cluster of that name": func(f *runner.Facts) { f.Env = map[string]string{"cluster": "demo", "id": "sha256:0"} },
	"data of others":                  func(f *runner.Facts) { f.Filled = []string{"/var/lib/containerd"} },
	"clock a bit ahead":               func(f *runner.Facts) { f.Skew = 6 * time.Second },
	"clock hours behind":              func(f *runner.Facts) { f.Skew = -8 * time.Hour },
	"ports of a worker":               func(f *runner.Facts) { f.Listening[10250], f.Listening[10256] = "kubelet", "kube-proxy" },
	"ports of a master": func(f *runner.Facts) {
		for p, by := range map[int]string{6443: "nginx", 10257: "java", 10259: "", 2379: "etcd", 2380: "etcd"} {
			f.Listening[p] = by
		}
	},
	"swap": func(f *runner.Facts) { f.Swaps = []string{"/dev/sda2", "/swap.img"} },
}

// TestPreflight shows what each check finds, on a master and on a worker, and
// that each can be skipped.
func TestPreflight(t *testing.T) {
	found := map[string]bool{}
	for name, spoil := range unfit {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(t, "  kubernetes: {proxyMode: nftables}\n", func(_ string, f *runner.Facts) { f.Swaps = nil; spoil(f) })
			pin := c.CA(pki.Kubernetes).Hash()
			for _, f := range c.Facts {
				if f.Env["cluster"] == "demo" && f.Env["id"] == "" {
					f.Env["id"] = pin
				}
			}
			var b strings.Builder
			for _, f := range c.Preflight(nil) {
				text, err := yaml.Marshal(f)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "---\n%s", strings.ReplaceAll(string(text), c.Certs.Dir, "CERTS"))
				found[f.Check] = true
				if f.Check == "owner" {
					continue // whose a machine is cannot be skipped
				}
				for _, left := range c.Preflight([]string{f.Check}) {
					if left.Check == f.Check {
						t.Errorf("%s is not skipped", f.Check)
					}
				}
			}
			golden.Equal(t, b.String())
		})
	}
	for _, name := range cluster.CheckNames() {
		if !found[name] {
			t.Errorf("no host is unfit for %s", name)
		}
	}
}

// TestParts shows what each row of the deployment matrix puts where.
func TestParts(t *testing.T) {
	for name, spec := range map[string]string{
		"kubeadm":                   "  kubernetes: {type: kubeadm}\n  etcd: {type: kubeadm}\n",
		"kubeadm with etcd binary":  "  kubernetes: {type: kubeadm}\n  etcd: {type: kubexm}\n",
		"binaries":                  "  kubernetes: {type: kubexm}\n  etcd: {type: kubexm}\n",
		"oldest, with certificates": "  kubernetes: {version: v1.34.11, apiServer: {certSANs: [api.example.com, 192.0.2.7]}}\n  loadBalancer: {domain: lb.example.com, port: 7443}\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(t, spec, nil)
			var b strings.Builder
			fmt.Fprintf(&b, "endpoint: %s, port of the API server: %d, DNS: %s\n", c.Endpoint(), c.APIPort(), c.DNSIP())
			for _, h := range c.All() {
				fmt.Fprintf(&b, "%s resolves the endpoint to %s, labels %v, taints %v\n", h, c.EndpointIP(h), c.Labels(h), c.Taints(h))
				for _, name := range c.Components(h) {
					fmt.Fprintf(&b, "  %s\n", c.Artifact(name, h))
				}
				for _, image := range c.Images(h) {
					fmt.Fprintf(&b, "  %s\n", image)
				}
			}
			sans := c.APIServerCert("node1").SANs
			slices.Sort(sans)
			fmt.Fprintf(&b, "names of the API server: %s\n", strings.Join(sans, " "))
			golden.Equal(t, b.String())
		})
	}
}

// TestErrors shows that what cannot be planned is told, once.
func TestErrors(t *testing.T) {
	conf, _, err := config.Parse("cluster.yaml", []byte(`apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  hosts: [{name: node1, address: 10.0.0.11, roles: [master, etcd, worker]}]
  network: {plugin: flannel}
`))
	if err != nil {
		t.Fatal(err)
	}
	store, err := resource.Open(t.TempDir(), resource.Source{})
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.New(conf, t.TempDir(), store, map[string]*runner.Facts{"node1": {Arch: "riscv64"}})
	c.Artifact("kubelet", "node1")
	c.Artifact("kubelet", "node1")
	if err := c.Err(); err == nil || err.Error() != `kubelet: architecture "riscv64" is neither amd64 nor arm64` {
		t.Errorf("got %v", err)
	}
}

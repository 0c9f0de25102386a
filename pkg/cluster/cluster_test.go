package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/resource/source"
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
	text := func(c *cluster.Cluster) string {
		var b strings.Builder
		for _, doc := range []struct {
			title string
			doc   map[string]any
		}{{"kubelet of node2", c.KubeletConfig("node2")}, {"kubelets in common", c.KubeletConfig("")}, {"kube-proxy", c.ProxyConfig()}} {
			fmt.Fprintf(&b, "---- %s\n%s", doc.title, c.YAML(doc.doc))
		}
		return b.String()
	}
	for name, v := range variants {
		t.Run(name, func(t *testing.T) { golden.Equal(t, text(clustertest.New(t, v.spec, v.edit))) })
	}
	t.Run("families", func(t *testing.T) { golden.Equal(t, clustertest.Families(t, "", text)) })
}

// TestBrokenKey has an authority that cannot be loaded, and many who ask for it at the same time.
func TestBrokenKey(t *testing.T) {
	whole := clustertest.New(t, "", func(_ string, f *runner.Facts) { f.Env = map[string]string{"cluster": "demo", "id": "sha256:1"} })
	whole.CA(pki.Kubernetes)
	if err := whole.Certs.Flush(); err != nil {
		t.Fatal(err)
	}
	conf := &v1alpha1.Cluster{Spec: *whole.Spec}
	conf.Metadata.Name = whole.Name
	c := cluster.New(conf, whole.Dir, whole.Store, whole.Facts)
	if err := os.WriteFile(filepath.Join(c.Certs.Dir, "kubernetes", "ca.key"), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if ca, leaf := c.CA(pki.Kubernetes), c.Leaf(pki.Admin()); ca.Hash() != "" || leaf.Hash() != "" {
				t.Error("made all the same")
			}
		})
	}
	all.Wait()
	if err := c.Err(); err == nil || strings.Count(err.Error(), "ca.key: ") != 1 {
		t.Errorf("told: %v", err)
	}
	if _, err := c.AdminConfig(); err == nil {
		t.Error("the administrator has a kubeconfig without a certificate")
	}
	if why := c.Stranger("node1"); !strings.Contains(why, "ca.key: ") {
		t.Errorf("node1 is %q", why)
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
			golden.Equal(t, parts(clustertest.New(t, spec, nil)))
		})
	}
	t.Run("families", func(t *testing.T) { golden.Equal(t, clustertest.Families(t, "", parts)) })
}

func parts(c *cluster.Cluster) string {
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
	return b.String()
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
	store, err := resource.Open(t.TempDir(), source.Config{})
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

// TestAtATime rounds shares down, and drains at least one node.
func TestAtATime(t *testing.T) {
	for most, want := range map[string]int{"1": 1, "5": 5, "10%": 2, "1%": 1, "100%": 25} {
		c := clustertest.New(t, "  upgrade: {maxUnavailable: "+most+"}\n", nil)
		if got := c.AtATime(25); got != want {
			t.Errorf("%s of 25 are %d, not %d", most, got, want)
		}
	}
}

package kubeadm_test

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/controlplane"
	"github.com/kubexm/kubexm/pkg/step/etcd"
	"github.com/kubexm/kubexm/pkg/step/kubeadm"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

const configured = `    nodeCidrMaskSize: 25
    dnsDomain: k8s.example
    featureGates: {NodeSwap: true, AllAlpha: false}
    apiServer:
      certSANs: [api.example.com, 192.0.2.7]
      extraArgs: {max-requests-inflight: "800", authorization-mode: "Node,RBAC"}
      extraVolumes: [{name: policy, hostPath: /etc/policy, mountPath: /etc/policy, readOnly: true, pathType: DirectoryOrCreate}]
    controllerManager: {extraArgs: {node-monitor-period: 2s}}
    scheduler: {extraArgs: {v: "4"}}
    kubelet: {extraArgs: {v: "4"}, config: {evictionHard: {memory.available: 500Mi}}}
    kubeProxy: {config: {nodePortAddresses: [primary]}}
`

// documents are what a cluster's kubeadm is given, on the master and on a worker.
func documents(t *testing.T, version, etcdType, more string) (initDoc, joinDoc []byte) {
	t.Helper()
	c := clustertest.New(t, "  etcd: {type: "+etcdType+", extraArgs: {log-level: warn}}\n  kubernetes:\n    version: "+version+"\n    type: kubeadm\n"+more, nil)
	c.Host("node2").Taints = []v1alpha1.Taint{{Key: "dedicated", Value: "db", Effect: "NoSchedule"}}
	return documentsOf(c)
}

func documentsOf(c *cluster.Cluster) (initDoc, joinDoc []byte) {
	i := kubeadm.Config(c, "node1", etcdOf(c), readsOf(c)).(step.Files)
	j := step.Unwrap(kubeadm.NewJoin(c, "node2")).(kubeadm.Join)
	return i.List[0].Content, j.Config
}

func readsOf(c *cluster.Cluster) kubeadm.Reads {
	return kubeadm.Reads{Certs: []step.Step{controlplane.PKI(c, "node1")}, Kubeconfigs: controlplane.Kubeconfigs(c, "node1")}
}

func etcdOf(c *cluster.Cluster) kubeadm.Etcd {
	if c.Spec.Etcd.Type == "kubeadm" {
		return kubeadm.LocalEtcd(c)
	}
	return kubeadm.ExternalEtcd(etcd.Endpoint(c, "node1"))
}

var cases = map[string]struct{ etcdType, more string }{
	"row 1":            {"kubeadm", ""},
	"row 3":            {"kubexm", ""},
	"row 1 configured": {"kubeadm", configured},
	"row 3 configured": {"kubexm", configured},
}

func TestConfig(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			initDoc, joinDoc := documents(t, "v1.37.1", c.etcdType, c.more)
			golden.Equal(t, string(initDoc)+"==== join\n"+string(joinDoc))
		})
	}
	for _, etcdType := range []string{"kubeadm", "kubexm"} {
		t.Run("families, etcd "+etcdType, func(t *testing.T) {
			golden.Equal(t, clustertest.Families(t, "  etcd: {type: "+etcdType+"}\n", func(c *cluster.Cluster) string {
				initDoc, joinDoc := documentsOf(c)
				return string(initDoc) + string(joinDoc)
			}))
		})
	}
}

// machine is what a program is for.
func machine(t *testing.T, program string) elf.Machine {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.Machine
}

// TestRealKubeadm asks each kubeadm that the testbed has built whether it
// understands every field.
func TestRealKubeadm(t *testing.T) {
	cache := os.Getenv("KUBEXM_TESTBED_CACHE")
	if dir, err := os.UserCacheDir(); cache == "" && err == nil {
		cache = filepath.Join(dir, "kubexm-testbed")
	}
	programs, err := filepath.Glob(filepath.Join(cache, "components", "kubernetes-v*", "bin", "kubeadm"))
	programs = slices.DeleteFunc(programs, func(p string) bool { return machine(t, p) != machine(t, "/proc/self/exe") })
	if err != nil || len(programs) == 0 {
		t.Skipf("the testbed has built no kubeadm: there is none in %s (%v)", cache, err)
	}
	for _, program := range programs {
		version := strings.Split(filepath.Base(filepath.Dir(filepath.Dir(program))), "-")[1]
		for name, c := range cases {
			t.Run(version+" "+name, func(t *testing.T) {
				t.Parallel()
				initDoc, joinDoc := documents(t, version, c.etcdType, c.more)
				discovery := filepath.Join(t.TempDir(), "discovery.conf")
				if err := os.WriteFile(discovery, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				joinDoc = bytes.ReplaceAll(joinDoc, []byte("/etc/kubernetes/discovery.conf"), []byte(discovery))
				validate(t, program, initDoc)
				validate(t, program, joinDoc)
			})
		}
	}
}

// told are kubeadm's warnings of what was asked for: certificates that last long, and a DNS cache before the cluster's DNS server.
var told = regexp.MustCompile(`(?m)^W.* (certificateValidityPeriod: |The recommended value for "clusterDNS" ).*\n`)

func validate(t *testing.T, program string, config []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "config", "validate", "--config", file).CombinedOutput()
	said := told.ReplaceAllString(string(out), "")
	if err != nil || strings.TrimSpace(said) != "ok" {
		t.Errorf("%v\n%s\nof:\n%s", err, out, config)
	}
}

// TestTwoTrusted has the controller manager sign with one certificate while two are trusted.
func TestTwoTrusted(t *testing.T) {
	c := clustertest.New(t, "", nil)
	c.CA(pki.Kubernetes)
	if err := c.Certs.Flush(); err != nil {
		t.Fatal(err)
	}
	clustertest.TrustAnother(t, c, pki.Kubernetes)
	files, err := kubeadm.Config(c, "node1", kubeadm.LocalEtcd(c), readsOf(c)).(step.Files).Writes()
	if err != nil {
		t.Fatal(err)
	}
	if text := string(files[0].Content); !strings.Contains(text, "- name: cluster-signing-cert-file\n    value: "+cluster.SignerFile) {
		t.Errorf("the controller manager signs with what kubeadm says:\n%s", text)
	}
}

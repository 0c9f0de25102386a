package controlplane_test

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/controlplane"
	"github.com/kubexm/kubexm/pkg/step/etcd"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestRendered(t *testing.T) {
	text := func(c *cluster.Cluster) string {
		return clustertest.Text(
			controlplane.PKI(c, "node1"), controlplane.Kubeconfigs(c, "node1"),
			controlplane.APIServer(c, "node1", etcd.Endpoint(c, "node1"), etcd.ClientCerts(c, "node1")),
			controlplane.ControllerManager(c, "node1"), controlplane.Scheduler(c, "node1"), controlplane.RBAC(c),
			controlplane.ProxyConfig(c, "node2"), controlplane.Proxy(c, "node2"),
		)
	}
	for name, spec := range map[string]string{
		"defaults": "  kubernetes: {type: kubexm}\n",
		"configured": `  kubernetes:
    type: kubexm
    nodeCidrMaskSize: 25
    dnsDomain: k8s.example
    featureGates: {NodeSwap: true, AllAlpha: false}
    apiServer: {certSANs: [api.example.com], extraArgs: {max-requests-inflight: "800", audit-log-path: "-", authorization_config: /etc/authorization.yaml}}
    controllerManager: {extraArgs: {node-monitor-period: 2s}}
    scheduler: {extraArgs: {v: "4", leader-elect: "false"}}
    kubeProxy: {config: {nodePortAddresses: [primary]}}
  network: {plugin: flannel, podCIDR: 10.100.0.0/16, serviceCIDR: 10.101.0.0/16}
  loadBalancer: {port: 7443}
`,
	} {
		t.Run(name, func(t *testing.T) {
			golden.Equal(t, text(clustertest.New(t, spec+"  etcd: {type: kubexm}\n", nil)))
		})
	}
	t.Run("families", func(t *testing.T) {
		golden.Equal(t, clustertest.Families(t, "  kubernetes: {type: kubexm}\n  etcd: {type: kubexm}\n", text))
	})
}

// TestTwoTrusted has everything on a master trust both certificates, and the controller manager sign with one.
func TestTwoTrusted(t *testing.T) {
	c := clustertest.New(t, "  kubernetes: {type: kubexm}\n  etcd: {type: kubexm}\n", nil)
	c.CA(pki.Kubernetes)
	if err := c.Certs.Flush(); err != nil {
		t.Fatal(err)
	}
	clustertest.TrustAnother(t, c, pki.Kubernetes)
	signer, trust := string(c.CA(pki.Kubernetes).Cert), string(c.Trust(pki.Kubernetes))
	if trust == signer || !strings.HasPrefix(trust, signer) {
		t.Fatalf("trusted are %s", trust)
	}
	got := map[string]string{}
	for _, f := range slices.Concat(controlplane.PKI(c, "node1").(step.Files).List, controlplane.Kubeconfigs(c, "node1").(step.Files).List) {
		got[f.Path] = string(f.Content)
	}
	if got["/etc/kubernetes/pki/ca.crt"] != trust || got[cluster.SignerFile] != signer || got["/etc/kubernetes/pki/ca.key"] != c.CA(pki.Kubernetes).Key.Reveal() {
		t.Errorf("files: %s", slices.Sorted(maps.Keys(got)))
	}
	if data := base64.StdEncoding.EncodeToString([]byte(trust)); !strings.Contains(got["/etc/kubernetes/scheduler.conf"], data) {
		t.Error("the scheduler does not trust both")
	}
	if unit := clustertest.Text(controlplane.ControllerManager(c, "node1")); !strings.Contains(unit, "--cluster-signing-cert-file="+cluster.SignerFile) {
		t.Errorf("the controller manager signs with\n%s", unit)
	}
}

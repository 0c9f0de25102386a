package controlplane_test

import (
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/step/controlplane"
	"github.com/kubexm/kubexm/pkg/step/etcd"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestRendered(t *testing.T) {
	for name, spec := range map[string]string{
		"defaults": "  kubernetes: {type: kubexm}\n",
		"configured": `  kubernetes:
    type: kubexm
    nodeCidrMaskSize: 25
    dnsDomain: k8s.example
    featureGates: {NodeSwap: true, AllAlpha: false}
    apiServer: {certSANs: [api.example.com], extraArgs: {max-requests-inflight: "800", audit-log-path: "-"}}
    controllerManager: {extraArgs: {node-monitor-period: 2s}}
    scheduler: {extraArgs: {v: "4", leader-elect: "false"}}
    kubeProxy: {config: {nodePortAddresses: [primary]}}
  network: {plugin: flannel, podCIDR: 10.100.0.0/16, serviceCIDR: 10.101.0.0/16}
  loadBalancer: {port: 7443}
`,
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(t, spec+"  etcd: {type: kubexm}\n", nil)
			golden.Equal(t, clustertest.Text(
				controlplane.PKI(c, "node1"), controlplane.Kubeconfigs(c),
				controlplane.APIServer(c, "node1", etcd.URLs(c), etcd.CAFile, etcd.CertFile(c, "node1"), etcd.KeyFile(c, "node1"), etcd.ClientCerts(c, "node1")),
				controlplane.ControllerManager(c, "node1"), controlplane.Scheduler(c, "node1"), controlplane.RBAC(c, "node1"),
				controlplane.ProxyConfig(c, "node2"), controlplane.Proxy(c, "node2"),
			))
		})
	}
}

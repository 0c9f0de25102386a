package cilium_test

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/cilium"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestFamilies shows which values of the chart IPv6 changes.
func TestFamilies(t *testing.T) {
	golden.Equal(t, clustertest.Families(t, "  network: {plugin: cilium}\n", func(c *cluster.Cluster) string {
		return strings.ReplaceAll(string(cilium.Steps(c)[0].(step.ApplyChart).Values), ",", "\n") + "\n"
	}))
}

// TestAddresses has a node at its address of each family, and one whose primary one is another now.
func TestAddresses(t *testing.T) {
	c := clustertest.Parse(t, clustertest.DualStack+"  network: {plugin: cilium}\n", nil)
	api, h := kubetest.New(), runnertest.Debian12("node1")
	dial := api.Dialer(&tls.Config{Certificates: []tls.Certificate{*c.Leaf(c.APIServerCert("node1")).TLS()}})
	h.Serve("10.0.0.11:6443", func() (net.Conn, error) { return dial(t.Context(), "", "") })
	put := func(apiVersion, kind, name, field string, addresses ...string) {
		var all []any
		for _, ip := range addresses {
			all = append(all, map[string]any{"type": "InternalIP", map[string]string{"spec": "ip", "status": "address"}[field]: ip})
		}
		api.Put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}, field: map[string]any{"addresses": all},
		}})
	}
	for name, ips := range map[string][]string{"node1": {"10.0.0.11", "fd00::11"}, "node2": {"10.0.0.12", "fd00::12"}} {
		put("v1", "Node", name, "status", ips...)
	}
	api.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "ciliumnodes.cilium.io"},
		"spec": map[string]any{
			"group": "cilium.io", "scope": "Cluster", "names": map[string]any{"plural": "ciliumnodes", "kind": "CiliumNode"}, "versions": []any{map[string]any{"name": "v2", "served": true}},
		},
	}})
	put("cilium.io/v2", "CiliumNode", "node1", "spec", "10.0.0.11", "fd00::11")
	put("cilium.io/v2", "CiliumNode", "node2", "spec", "10.0.0.77", "fd00::12")
	change, err := cilium.Addresses(c).Precheck(t.Context(), h.Runner())
	if err != nil || change == nil || change.Diff != "node2: 10.0.0.77, fd00::12 -> 10.0.0.12, fd00::12\n" {
		t.Fatalf("%+v, %v", change, err)
	}
}

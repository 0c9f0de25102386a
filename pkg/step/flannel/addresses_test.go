package flannel_test

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step/flannel"
)

// TestAddresses has nodes at their addresses, one that moved, one whose address somebody has chosen, and one on which flannel has not begun.
func TestAddresses(t *testing.T) {
	addresses(t, "flannel.alpha.coreos.com/public-ip", func(text string) string { return text })
	addresses(t, "flannel.alpha.coreos.com/public-ipv6", clustertest.ToIPv6)
}

// addresses has hosts whose addresses, with IPv4 here, are of a family; key is what nodes note them under.
func addresses(t *testing.T, key string, of func(string) string) {
	t.Helper()
	c := clustertest.Parse(t, of(`apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: one}
spec:
  hosts:
  - {name: node1, address: 10.0.0.11, roles: [master, etcd]}
  - {name: node2, address: 10.0.0.12, roles: [worker]}
  - {name: node3, address: 10.0.0.13, roles: [worker]}
  - {name: node4, address: 10.0.0.14, roles: [worker]}
`), nil)
	api, h := kubetest.New(), runnertest.Debian12("node1")
	dial := api.Dialer(&tls.Config{Certificates: []tls.Certificate{*c.Leaf(c.APIServerCert("node1")).TLS()}})
	h.Serve(net.JoinHostPort(of("10.0.0.11"), "6443"), func() (net.Conn, error) { return dial(t.Context(), "", "") })
	put := func(kind, name, namespace string, with map[string]any) {
		with["apiVersion"], with["kind"] = "v1", kind
		meta := map[string]any{"name": name}
		if namespace != "" {
			meta["namespace"] = namespace
		}
		for k, v := range with["metadata"].(map[string]any) {
			meta[k] = v
		}
		with["metadata"] = meta
		api.Put(&unstructured.Unstructured{Object: with})
	}
	node := func(name, ip string, noted map[string]any) {
		put("Node", name, "", map[string]any{
			"metadata": map[string]any{"annotations": noted}, "status": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": of(ip)}}},
		})
	}
	node("node1", "10.0.0.11", map[string]any{key: of("10.0.0.11")})
	node("node2", "10.0.0.12", map[string]any{key: "192.0.2.12"})
	node("node3", "10.0.0.13", map[string]any{key: "192.0.2.13", key + "-overwrite": "192.0.2.13"})
	node("node4", "10.0.0.14", nil)
	for _, n := range []string{"node1", "node2"} {
		put("Pod", "flannel-"+n, "kube-flannel", map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "flannel"}, "uid": n}, "spec": map[string]any{"nodeName": n},
		})
	}
	change, err := flannel.Addresses(c).Precheck(t.Context(), h.Runner())
	if err != nil || change == nil || change.Diff != "node2: 192.0.2.12 -> "+of("10.0.0.12")+"\n" {
		t.Fatalf("%+v, %v", change, err)
	}
	done := make(chan error, 1)
	go func() { done <- change.Run(t.Context()) }()
	left := func() (names string) {
		for _, o := range api.Objects() {
			if o.GetKind() == "Pod" {
				names += o.GetName() + " "
			}
		}
		return names
	}
	for strings.Contains(left(), "flannel-node2") {
		select {
		case err := <-done:
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	node("node2", "10.0.0.12", map[string]any{key: of("10.0.0.12")}) // as the next pod does
	if err := <-done; err != nil || left() != "flannel-node1 " {
		t.Errorf("%v; left are %s", err, left())
	}
}

package loadbalancer_test

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/loadbalancer"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestHandOver has a master with the virtual address, a second one whose kube-vip is not ready, and a third one that takes over.
func TestHandOver(t *testing.T) {
	c := clustertest.Parse(t, frame+"  loadBalancer: {mode: kube-vip, vip: 10.0.0.100, kubeVip: {interface: eth0}}\n", nil)
	api, h := kubetest.New(), runnertest.Debian12("node1")
	dial := api.Dialer(&tls.Config{Certificates: []tls.Certificate{*c.Leaf(c.APIServerCert("node1")).TLS()}})
	serve := func() (net.Conn, error) { return dial(t.Context(), "", "") }
	h.Serve("10.0.0.11:6443", serve)
	s := loadbalancer.HandOver(c, "node1", []string{"node2", "node3"})
	nothing := func(why string) {
		t.Helper()
		if change, err := s.Precheck(t.Context(), h.Runner()); err != nil || change != nil {
			t.Errorf("%s: %v, %v", why, change, err)
		}
	}
	nothing("without kube-vip")
	manifest := loadbalancer.KubeVIP(c, "node1").(step.File)
	h.Put(manifest.Path, string(manifest.Content), 0o600)
	nothing("without the address")
	h.SetAddr("dummy0", "10.0.0.100/32")
	nothing("without a lease")
	h.Serve("10.0.0.11:6443", func() (net.Conn, error) { return nil, fault.Transient(errors.New("connection refused")) })
	nothing("without an API server")
	h.Serve("10.0.0.11:6443", serve)

	client, err := step.Kube(h.Runner(), c.API("node1"))
	if err != nil {
		t.Fatal(err)
	}
	leads, lost := kubetest.Candidate(t, client.Typed, "plndr-cp-lock", "node1")
	<-leads
	go func() { <-lost; h.SetAddr("dummy0", "") }()
	for node, ready := range map[string]string{"node2": "False", "node3": "True"} {
		api.Put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": "kube-vip-" + node, "namespace": "kube-system", "labels": map[string]any{"app.kubernetes.io/name": "kube-vip"}},
			"spec":     map[string]any{"nodeName": node},
			"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": ready}}},
		}})
	}
	change, err := s.Precheck(t.Context(), h.Runner())
	if err != nil || change == nil || !strings.HasSuffix(change.Diff, "from node1 to node2, or node3") {
		t.Fatalf("%+v, %v", change, err)
	}
	other, _ := kubetest.Candidate(t, client.Typed, "plndr-cp-lock", "node3")
	if err := change.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-other
	nothing("afterwards")
}

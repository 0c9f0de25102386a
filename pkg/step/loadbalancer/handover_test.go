package loadbalancer_test

import (
	"crypto/tls"
	"errors"
	"net"
	"regexp"
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

// TestHandOver has a master with the virtual address, a second one whose kube-vip is about to be replaced, a third one whose is not ready, and a fourth one that takes over.
func TestHandOver(t *testing.T) {
	c := clustertest.Parse(t, frame+"  loadBalancer: {mode: kube-vip, vip: 10.0.0.100, kubeVip: {interface: eth0}}\n", nil)
	api, h := kubetest.New(), runnertest.Debian12("node1")
	dial := api.Dialer(&tls.Config{Certificates: []tls.Certificate{*c.Leaf(c.APIServerCert("node1")).TLS()}})
	serve := func() (net.Conn, error) { return dial(t.Context(), "", "") }
	h.Serve("10.0.0.11:6443", serve)
	s := loadbalancer.HandOver(c, "node1", []string{"node2", "node3", "node4"})
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
	kubeconfig := regexp.MustCompile(`kubexm.io/kubeconfig: "(.+)"`).FindSubmatch(manifest.Content)
	for _, pod := range []struct{ node, ready, kubeconfig string }{ // one whose manifest was replaced, one that has crashed, and one that is well
		{"node2", "True", "of before"}, {"node3", "False", string(kubeconfig[1])}, {"node4", "True", string(kubeconfig[1])},
	} {
		api.Put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{
				"name": "kube-vip-" + pod.node, "namespace": "kube-system", "labels": map[string]any{"app.kubernetes.io/name": "kube-vip"},
				"annotations": map[string]any{"kubexm.io/kubeconfig": pod.kubeconfig},
			},
			"spec":   map[string]any{"nodeName": pod.node},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": pod.ready}}},
		}})
	}
	change, err := s.Precheck(t.Context(), h.Runner())
	if err != nil || change == nil || !strings.HasSuffix(change.Diff, "from node1 to node2, or node3, or node4") {
		t.Fatalf("%+v, %v", change, err)
	}
	other, _ := kubetest.Candidate(t, client.Typed, "plndr-cp-lock", "node4")
	if err := change.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-other
	nothing("afterwards")
}

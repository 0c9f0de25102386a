package step_test

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
)

// served returns a host at which an API server answers, and the access to it.
func served(t *testing.T, api *kubetest.Server) (*runnertest.Host, kube.Access) {
	t.Helper()
	certs := &pki.Store{Dir: t.TempDir()}
	ca, err := certs.CA(pki.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := certs.Leaf(pki.APIServer("node1", []string{"10.0.0.11"}, "cluster.local", nil, "lb.kubexm.local", "10.0.0.100"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(leaf.Cert, []byte(leaf.Key.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	dial := api.Dialer(&tls.Config{Certificates: []tls.Certificate{pair}})
	h := runnertest.Debian12("node1")
	h.Serve("10.0.0.11:6443", func() (net.Conn, error) { return dial(t.Context(), "tcp", "10.0.0.11:6443") })
	return h, kube.Access{
		Address: "10.0.0.11:6443", CA: ca.Cert, Patience: time.Millisecond,
		Client: func() (*pki.Pair, error) { return certs.Leaf(pki.Admin()) },
	}
}

const objects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: kube-system}
data: {key: value}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: kube-system}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: "agent:1"}]}
`

func TestKubernetesKinds(t *testing.T) {
	api := kubetest.New()
	api.AddNode("node1", true)
	h, access := served(t, api)
	marks := kube.Marks{Labels: map[string]string{"role": "worker"}, Taints: []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}}
	for _, c := range []struct {
		step step.Step
		diff string // empty: there is nothing to do
	}{
		{step.APIReady{API: access}, ""},
		{step.Apply{What: "agent", API: access, Objects: step.Content(objects)}, "agent:1"},
		{step.RolledOut{What: "agent", API: access, Objects: step.Content(objects)}, ""},
		{step.NodeReady{Node: "node1", API: access}, ""},
		{step.Marked{Node: "node1", Marks: marks, API: access}, "role"},
	} {
		change := check(t, h, c.step)
		if c.diff == "" != (change == nil) || change != nil && !strings.Contains(change.Diff, c.diff) {
			t.Errorf("%s: got %+v", c.step, change)
		}
		if err := apply(t, h, c.step); err != nil {
			t.Errorf("%s: %v", c.step, err)
		}
		if change := check(t, h, c.step); change != nil {
			t.Errorf("%s: there is something to do:\n%s", c.step, change.Diff)
		}
	}
}

// TestApplyFile applies what is in the store, once that was fetched.
func TestApplyFile(t *testing.T) {
	store, file := published(t, objects)
	h, access := served(t, kubetest.New())
	definitions := step.ApplyFile{What: "definitions", File: file, Store: store, API: access}
	if _, err := definitions.Precheck(t.Context(), h.Runner()); err == nil {
		t.Error("it is applied before it is there")
	}
	if err := apply(t, h, step.Fetch{Artifact: file, Store: store}); err != nil {
		t.Fatal(err)
	}
	if change := check(t, h, definitions); change == nil || !strings.Contains(change.Diff, "agent:1") {
		t.Errorf("got %+v", change)
	}
	if err := apply(t, h, definitions); err != nil {
		t.Fatal(err)
	}
	if change := check(t, h, definitions); change != nil {
		t.Errorf("there is something to do:\n%s", change.Diff)
	}
}

// TestApplyPrunes takes an object out of what a step applies, and has the next step show and remove it.
func TestApplyPrunes(t *testing.T) {
	h, access := served(t, kubetest.New())
	agent, one := step.Content(objects), step.Content(strings.Split(objects, "---")[0])
	if err := apply(t, h, step.Apply{What: "agent", API: access, Objects: agent}); err != nil {
		t.Fatal(err)
	}
	other := step.Apply{What: "other", API: access, Objects: one} // that never had it
	if err := apply(t, h, other); err != nil {
		t.Fatal(err)
	}
	if change := check(t, h, other); change != nil {
		t.Errorf("another step has something to do: %s", change.Diff)
	}
	less := step.Apply{What: "agent", API: access, Objects: one}
	if change := check(t, h, less); change == nil || change.Diff != "- DaemonSet kube-system/agent\n" {
		t.Fatalf("got %+v", change)
	}
	if err := apply(t, h, less); err != nil {
		t.Fatal(err)
	}
	if change := check(t, h, step.Apply{What: "agent", API: access, Objects: agent}); change == nil || !strings.Contains(change.Diff, "agent:1") {
		t.Errorf("the DaemonSet is still there: %+v", change)
	}
}

// TestUnapplied takes a step out of the plan: the next plan removes what it has applied, and nothing else.
func TestUnapplied(t *testing.T) {
	h, access := served(t, kubetest.New())
	parts := strings.Split(objects, "---")
	agent, other := step.Apply{What: "the agent", API: access, Objects: step.Content(parts[1])}, step.Apply{What: "other", API: access, Objects: step.Content(parts[0])}
	for _, s := range []step.Step{agent, other} {
		if err := apply(t, h, s); err != nil {
			t.Fatal(err)
		}
	}
	if change := check(t, h, step.Unapplied{Wanted: []string{"the agent", "other"}, API: access}); change != nil {
		t.Errorf("all is wanted: %s", change.Diff)
	}
	less := step.Unapplied{Wanted: []string{"other"}, API: access}
	if change := check(t, h, less); change == nil || change.Diff != "- DaemonSet kube-system/agent\n" {
		t.Fatalf("got %+v", change)
	}
	if err := apply(t, h, less); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		step step.Step
		left bool
	}{{less, false}, {agent, true}, {other, false}} {
		if change := check(t, h, c.step); (change != nil) != c.left {
			t.Errorf("%s, afterwards: %+v", c.step, change)
		}
	}
}

func TestWaitForNode(t *testing.T) {
	api := kubetest.New()
	api.AddNode("node1", false)
	h, access := served(t, api)
	s := step.NodeReady{Node: "node1", API: access}
	c := check(t, h, s)
	if c == nil || !strings.HasPrefix(c.Diff, "wait: ") {
		t.Fatalf("got %+v", c)
	}
	go api.AddNode("node1", true)
	if err := c.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAPIReadySaysWhatFails(t *testing.T) {
	api := kubetest.New()
	api.Failing = func() []string { return []string{"etcd"} }
	h, access := served(t, api)
	s := step.APIReady{API: access}
	c := check(t, h, s)
	if c == nil || !strings.Contains(c.Diff, "etcd") {
		t.Fatalf("got %+v", c)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := c.Run(ctx); err == nil || !strings.Contains(err.Error(), "etcd") {
		t.Errorf("got %v", err)
	}
}

func TestBadObjects(t *testing.T) {
	h, access := served(t, kubetest.New())
	for _, s := range []step.Step{step.Apply{What: "x", API: access, Objects: step.Content("{a")}, step.RolledOut{What: "x", API: access, Objects: step.Content("{a")}} {
		if _, err := s.Precheck(t.Context(), h.Runner()); err == nil || !strings.Contains(err.Error(), "reading the objects of x: ") {
			t.Errorf("got %v", err)
		}
	}
}

// TestClientOfEachTrust has what is trusted change while a client is kept.
func TestClientOfEachTrust(t *testing.T) {
	h, access := served(t, kubetest.New())
	r := h.Runner()
	other, err := (&pki.Store{Dir: t.TempDir()}).CA(pki.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	client := func(trust []byte) *kube.Client {
		t.Helper()
		access.CA = trust
		c, err := step.Kube(r, access)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := access.CA
	one, two := client(first), client(slices.Concat(first, other.Cert))
	if one == two || client(first) != one {
		t.Error("clients do not go by what they trust")
	}
	if err := two.APIReady(t.Context()); err != nil {
		t.Error(err)
	}
}

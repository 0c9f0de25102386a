package kubelet_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/kubelet"
)

// TestDrain drains a node and lets pods back; one that somebody else has cordoned stays so.
func TestDrain(t *testing.T) {
	c := clustertest.Parse(t, clustertest.Masters, nil)
	c.Spec.Kubernetes.Kubelet.Config = map[string]any{"cpuManagerPolicy": "static"}
	api, h := kubetest.New(), runnertest.Debian12("node1")
	api.AddNode("node1", true)
	dial := api.Dialer(&tls.Config{Certificates: []tls.Certificate{*c.Leaf(c.APIServerCert("node1")).TLS()}})
	h.Serve("10.0.0.11:6443", func() (net.Conn, error) { return dial(t.Context(), "", "") })
	client, err := step.Kube(h.Runner(), c.API("node1"))
	if err != nil {
		t.Fatal(err)
	}
	run := func(s step.Step, wanted bool) {
		t.Helper()
		change, err := s.Precheck(t.Context(), h.Runner())
		if err != nil || (change != nil) != wanted {
			t.Fatalf("%s: %+v, %v", s, change, err)
		}
		if change != nil {
			if err := change.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	cordoned := func(want bool) {
		t.Helper()
		if is, err := client.Cordoned(t.Context(), "node1"); err != nil || is != want {
			t.Errorf("cordoned: %t, %v", is, err)
		}
	}
	drain, back := kubelet.Drain(c, "node1"), kubelet.Uncordon(c, "node1")[0]
	run(back, false)
	run(drain[0], true)
	cordoned(true)
	run(drain[0], false)
	h.Put("/var/lib/kubelet/cpu_manager_state", "{}", 0o600)
	h.Put("/etc/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/local/bin/kubelet\n", 0o644)
	run(drain[1], true)
	run(drain[1], false)
	if _, is := h.Get("/var/lib/kubelet/cpu_manager_state"); is {
		t.Error("the kubelet still knows the old way")
	}
	run(back, true)
	cordoned(false)
	run(back, false)

	early := kubelet.LetBack(c, "node1")[0]
	run(early, false)
	run(drain[0], true)
	run(early, false) // its kubelet does not run
	h.Put("/usr/local/bin/kubelet", "ELF", 0o755)
	h.Put("/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n", 0o600)
	h.Put("/etc/kubernetes/kubelet.conf", "kind: Config\n", 0o600)
	if _, err := h.Runner().Sh(t.Context(), "systemctl daemon-reload; systemctl start kubelet"); err != nil {
		t.Fatal(err)
	}
	h.Programs["readlink"] = func(c *runnertest.Call) int { c.Printf("/usr/local/bin/kubelet (deleted)\n"); return 0 }
	run(early, false)
	delete(h.Programs, "readlink")
	run(early, true)
	cordoned(false)
	run(early, false)

	if err := client.Cordon(t.Context(), "node1", true); err != nil {
		t.Fatal(err)
	}
	run(drain[0], false)
	run(back, false)
	cordoned(true)
}

// TestEmptied does not drain a node that leaves while data would be lost: the look before the run may not have been answered.
func TestEmptied(t *testing.T) {
	c := clustertest.Parse(t, clustertest.Masters, nil)
	api, h := kubetest.New(), runnertest.Debian12("node1")
	dial := api.Dialer(&tls.Config{Certificates: []tls.Certificate{*c.Leaf(c.APIServerCert("node1")).TLS()}})
	h.Serve("10.0.0.11:6443", func() (net.Conn, error) { return dial(t.Context(), "", "") })
	api.AddNode("node1", true)
	volume, err := kube.ReadObjects([]byte(`apiVersion: v1
kind: PersistentVolume
metadata: {name: pv1}
spec: {claimRef: {namespace: default, name: data}, nodeAffinity: {required: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [node1]}]}]}}}
status: {phase: Bound}
`))
	if err != nil {
		t.Fatal(err)
	}
	api.Put(volume[0])
	if _, err := kubelet.Emptied(c, "node1")[0].Precheck(t.Context(), h.Runner()); err == nil || !strings.Contains(err.Error(), "node node1 cannot leave: no node that stays can use these volumes: pv1 (default/data)") {
		t.Errorf("data is lost: %v", err)
	}
	c.Forced = true
	if change, err := kubelet.Emptied(c, "node1")[0].Precheck(t.Context(), h.Runner()); err != nil || change == nil {
		t.Errorf("by force: %+v, %v", change, err)
	}
}

// TestForced deletes pods that a budget never lets go, while there is time left for that, and waits until they have ended.
func TestForced(t *testing.T) {
	c := clustertest.Parse(t, clustertest.Masters, nil)
	c.Spec.Upgrade.Drain.Force = true
	api, h := kubetest.New(), runnertest.Debian12("node1")
	api.AddNode("node1", true)
	api.Budget = func(string) bool { return false }
	dial := api.Dialer(&tls.Config{Certificates: []tls.Certificate{*c.Leaf(c.APIServerCert("node1")).TLS()}})
	h.Serve("10.0.0.11:6443", func() (net.Conn, error) { return dial(t.Context(), "", "") })
	pod, err := kube.ReadObjects([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: default, uid: x}\nspec: {nodeName: node1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	api.Put(pod[0])
	change, err := kubelet.Drain(c, "node1")[0].Precheck(t.Context(), h.Runner())
	if err != nil || change == nil {
		t.Fatalf("%+v, %v", change, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := change.Run(ctx); err != nil {
		t.Error(err)
	}
	for _, o := range api.Objects() {
		if o.GetKind() == "Pod" {
			t.Errorf("%s is left", o.GetName())
		}
	}
}

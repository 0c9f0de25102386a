package kubelet_test

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/kubelet"
)

// TestDrain drains a node and lets pods back; one that somebody else has cordoned stays so.
func TestDrain(t *testing.T) {
	c := clustertest.Parse(t, clustertest.Masters, nil)
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
	drain, back := kubelet.Drain(c, "node1"), kubelet.Uncordon(c, "node1")
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

	if err := client.Cordon(t.Context(), "node1", true); err != nil {
		t.Fatal(err)
	}
	run(drain[0], false)
	run(back, false)
	cordoned(true)
}

package addon_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/addon"
	"github.com/kubexm/kubexm/pkg/step/flannel"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

var clusters = map[string]struct {
	spec string
	edit func(string, *runner.Facts)
}{
	"defaults": {},
	"configured": {spec: `  network: {plugin: flannel, podCIDR: 10.100.0.0/16, serviceCIDR: 10.101.0.0/16, flannel: {backend: host-gw}}
  dns: {coredns: {replicas: 3, upstream: [192.0.2.53, 192.0.2.54], externalZones: [{zones: [corp.example, example.net], nameservers: [192.0.2.1], cache: 5}]}}
  kubernetes: {dnsDomain: k8s.example}
`},
	"without nf_tables": {edit: func(_ string, f *runner.Facts) { f.Features[runner.FeatureNFTables] = false }},
}

func TestRendered(t *testing.T) {
	for name, v := range clusters {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(t, v.spec, v.edit)
			golden.Equal(t, clustertest.Text(append(flannel.Steps(c), addon.CoreDNS(c))...))
		})
	}
}

// TestDigest shows that pods restart when what they read changes, and not otherwise.
func TestDigest(t *testing.T) {
	text := func(spec string) string { return clustertest.Text(addon.CoreDNS(clustertest.New(t, spec, nil))) }
	if first, second := text(""), text(""); first != second {
		t.Error("the same configuration gives other objects")
	}
	if text("") == text("  dns: {coredns: {upstream: [192.0.2.53]}}\n") {
		t.Error("another configuration gives the same objects")
	}
}

// TestApply applies the addons to an API server in memory: the second time there
// is nothing to do.
func TestApply(t *testing.T) {
	for name, v := range clusters {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(t, v.spec, v.edit)
			access, h := inMemory(t, c)
			apply(t, h, access, append(flannel.Steps(c), addon.CoreDNS(c))...)
			for _, s := range []step.Step{addon.NetworkReady(c), addon.CoreDNSReady(c)} {
				ready := step.Unwrap(s).(step.RolledOut)
				ready.API = access
				if change, err := ready.Precheck(t.Context(), h); err != nil || change != nil {
					t.Errorf("%s: %+v, %v", s, change, err)
				}
			}
		})
	}
}

// TestApplyReal does the same to a real API server, which knows every field, and
// changes what is there.
func TestApplyReal(t *testing.T) {
	assets := os.Getenv(kubetest.Assets)
	if assets == "" {
		t.Skip(kubetest.Assets + " names no directory with a real control plane's programs")
	}
	p, err := kubetest.Start(assets, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	ca, err := p.Store.CA(pki.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	access := kube.Access{Address: p.Address, CA: ca.Cert, Client: p.Store.Operator, Patience: time.Minute}
	h := runner.New("local", dialer{})
	client, err := step.Kube(h, access)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.WaitAPIReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	const network = "  network: {plugin: flannel, serviceCIDR: 10.233.0.0/18, flannel: {backend: %s}}\n" // the server's own
	for _, backend := range []string{"vxlan", "host-gw"} {
		c := clustertest.New(t, fmt.Sprintf(network, backend)+"  dns: {coredns: {upstream: [192.0.2.53]}}\n", nil)
		apply(t, h, access, flannel.Steps(c)...)
		if backend == "vxlan" {
			apply(t, h, access, addon.CoreDNS(c))
		}
	}
}

// dialer is a connection to this machine.
type dialer struct{ *runnertest.Host }

func (dialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, address)
}

func (dialer) Close() error { return nil }

// inMemory returns the way to an API server in memory, through a host.
func inMemory(t *testing.T, c *cluster.Cluster) (kube.Access, *runner.Runner) {
	t.Helper()
	config := &tls.Config{Certificates: []tls.Certificate{*c.Leaf(c.APIServerCert("node1")).TLS()}}
	dial := kubetest.New().Dialer(config)
	h := runnertest.Debian12("node1")
	h.Serve("10.0.0.11:6443", func() (net.Conn, error) { return dial(context.Background(), "tcp", "") })
	access := c.API("node1")
	r := h.Runner()
	client, err := step.Kube(r, access)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return access, r
}

func apply(t *testing.T, h *runner.Runner, access kube.Access, steps ...step.Step) {
	t.Helper()
	for _, s := range steps {
		a := s.(step.Apply)
		a.API = access
		change, err := a.Precheck(t.Context(), h)
		if err != nil || change == nil {
			t.Fatalf("%s: %v, %v", s, change, err)
		}
		if err := change.Run(t.Context()); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if change, err = a.Precheck(t.Context(), h); err != nil || change != nil {
			t.Errorf("%s, the second time: %+v, %v", s, change, err)
		}
	}
}

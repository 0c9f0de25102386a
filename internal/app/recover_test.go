package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/connector/sshtest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// recovering asks the machine at an address, from a control machine that knows nothing.
func (w *world) recovering(t *testing.T, name, address string) (*app.Recovered, error) {
	a := w.attempt(t.Context())
	a.Workdir, a.File, a.Name = t.TempDir(), "", name
	a.Dial = func(ctx context.Context, h *v1alpha1.Host, knownHosts string) (connector.Connector, error) {
		for name := range w.hosts {
			if w.at(name) == h.Address {
				return a.dial(ctx, &v1alpha1.Host{Name: name}, knownHosts)
			}
		}
		return nil, fault.Transient(errors.New("no route to host"))
	}
	is, err := a.App.Recover(a.ctx, a.Request, a.Observer, v1alpha1.Host{Address: address})
	if left, _ := os.ReadDir(a.Workdir); len(left) > 0 {
		t.Errorf("%s was written", left[0])
	}
	return is, err
}

const hidden = "spec:\n  registry: {auth: {docker.io: {username: me, password: hunter2}, quay.io: {username: me, passwordFrom: {env: QUAY}}}}\n  global: {user: ops, password: hunter2}    # hunter2\n"

// TestRecover makes clusters, changes them, and has them tell their configuration to somebody who knows nothing but a master's address.
func TestRecover(t *testing.T) {
	t.Setenv("QUAY", "hunter2")
	for _, name := range []string{"row1", "row21"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, with("spec:\n", hidden)(row(t, name)), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				if name == "row1" { // kubeadm's is none here
					certs := &pki.Store{Dir: filepath.Join(w.dir, name, "certs")}
					ca, err1 := certs.CA(pki.Kubernetes)
					pair, err2 := certs.Leaf(pki.Admin())
					w.must(errors.Join(err1, err2))
					conf, err := pki.Kubeconfig(name, "https://lb.kubexm.local:6443", ca.Cert, "kubernetes-admin", pair)
					w.must(err)
					w.hosts["node1"].Put("/etc/kubernetes/admin.conf", conf.Reveal(), 0o600)
				}
				id, err := (&pki.Store{Dir: filepath.Join(w.dir, name, "certs")}).RecordedID()
				w.must(err)

				is, err := w.recovering(t, name, "10.0.0.11")
				w.must(err)
				first := is.Config
				if strings.Contains(fmt.Sprint(is), "hunter2") || is.Cluster != name || is.ID != id {
					t.Errorf("got %+v", is)
				}
				if want := []string{"spec.global.password", "spec.registry.auth[docker.io].password"}; !slices.Equal(is.Secrets, want) {
					t.Errorf("secrets are %q", is.Secrets)
				}
				if want := []string{"spec.registry.auth[quay.io].passwordFrom: the environment variable QUAY"}; !slices.Equal(is.Outside, want) {
					t.Errorf("outside are %q", is.Outside)
				}
				if _, _, err := config.Parse("cluster.yaml", []byte(first)); err != nil && !strings.Contains(err.Error(), "password") {
					t.Errorf("it cannot be used: %v", err)
				}

				w.configure(with("spec:\n", hidden+"  extra: {hosts: [{domain: db.example.com, address: 192.0.2.80}]}\n")(row(t, name)))
				a := w.attempt(t.Context())
				p, err := a.App.PlanApply(a.ctx, a.Request, a.Observer)
				w.must(err)
				last := p.Steps[len(p.Steps)-1]
				if last.What != "apply configuration" || last.Why != app.WhyFile || strings.Count(last.Diff, "\n") > 15 || !strings.Contains(last.Diff, "(hidden, other value)") {
					t.Errorf("the last step is %+v", last)
				}
				_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
				w.must(err)
				is, err = w.recovering(t, name, "10.0.0.11")
				w.must(err)
				if !strings.Contains(is.Config, "domain: db.example.com") || strings.Contains(first, "domain: db.example.com") {
					t.Errorf("it is not what was applied last:\n%s", is.Config)
				}
			})
		})
	}
}

// TestRecoverByWhatWasRecovered applies what a cluster has told: there is nothing to do.
func TestRecoverByWhatWasRecovered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row2"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		is, err := w.recovering(t, "", "10.0.0.11")
		w.must(err)
		w.configure(is.Config)
		a := w.attempt(t.Context())
		p, err := a.App.PlanApply(a.ctx, a.Request, a.Observer)
		w.must(err)
		if !p.Empty() || len(p.Changes) > 0 {
			t.Errorf("there is something to do: %+v", p)
		}
	})
}

// TestCannotRecover asks machines that have nothing to tell.
func TestCannotRecover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row21"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		remove := func(kind, name string) {
			for _, o := range w.api.Objects() {
				if o.GetKind() == kind && o.GetName() == name && o.GetNamespace() == "kube-system" {
					w.api.Delete(o)
				}
			}
		}
		for _, c := range []struct {
			what, name, address string
			before              func()
			want                string
		}{
			{"nobody there", "", "192.0.2.1", nil, "host 192.0.2.1: no route to host"},
			{"another cluster", "prod", "10.0.0.11", nil, "10.0.0.11 is a master of cluster row21, --name says prod"},
			{"a worker", "", "10.0.0.14", nil, "host 10.0.0.14: it is no master: there is no /etc/kubernetes/admin.conf"},
			{"made by an earlier kubexm", "", "10.0.0.11", func() { remove("Secret", config.KeptSecret) }, "has not kept its configuration: there is no Secret kube-system/kubexm-config"},
			{"another's cluster", "", "10.0.0.11", func() { remove("ConfigMap", "kubexm") }, "the cluster does not say who it is: it has no ConfigMap kube-system/kubexm"},
			{"API servers are down", "", "10.0.0.11", func() {
				for _, h := range w.hosts {
					w.down(h)
				}
			}, "host 10.0.0.11: asking the API server with /etc/kubernetes/admin.conf"},
			{"no kubeconfig", "", "10.0.0.11", func() { w.hosts["node1"].Put("/etc/kubernetes/admin.conf", "kind: Config\n", 0o600) }, "/etc/kubernetes/admin.conf: reading a kubeconfig: it holds no server"},
		} {
			if c.before != nil {
				c.before()
			}
			_, err := w.recovering(t, c.name, c.address)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v", c.what, err)
			}
		}
	})
}

// TestRecoverAsksForTheHostKey meets a master that nobody knows.
func TestRecoverAsksForTheHostKey(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	server := sshtest.Start(t, sshtest.Config{Password: "x", Handler: func(string, io.Reader, io.Writer, io.Writer) int { return 1 }})
	master := v1alpha1.Host{Address: "127.0.0.1", Connection: v1alpha1.Connection{Credentials: v1alpha1.Credentials{Port: server.Port, Password: secret.New("x")}}}
	for policy, want := range map[string]string{"strict": "is not known", "accept-new": "reading files"} {
		a := app.App{Workdir: filepath.Join(t.TempDir(), "work")}
		_, err := a.Recover(t.Context(), app.Request{HostKeys: policy}, app.Observer{}, master)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", policy, err)
		}
		if keys, _ := os.ReadFile(filepath.Join(a.Workdir, "known_hosts")); (len(keys) > 0) != (policy == "accept-new") {
			t.Errorf("%s: known_hosts has %q", policy, keys)
		}
	}
}

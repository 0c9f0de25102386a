package observe_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/etcd/etcdtest"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/observe"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// running is a cluster of three masters and a worker that runs.
type running struct {
	*cluster.Cluster
	hosts     map[string]*runnertest.Host
	unreached map[string]error
	etcd      *etcdtest.Cluster
	members   map[string]*etcdtest.Member
	api       *kubetest.Server
}

func newRunning(t *testing.T) *running {
	t.Helper()
	c := &running{
		Cluster: clustertest.Parse(t, clustertest.Masters+"  - {name: node4, address: 10.0.0.14, roles: [worker]}\n", nil),
		hosts:   map[string]*runnertest.Host{}, unreached: map[string]error{}, etcd: etcdtest.New(), members: map[string]*etcdtest.Member{}, api: kubetest.New(),
	}
	for _, h := range c.All() {
		c.hosts[h] = runnertest.Debian12(h)
		c.api.AddNode(h, true)
	}
	for _, h := range c.Masters() {
		member := c.etcd.Add(h, c.EtcdAccess(h).Endpoint)
		c.members[h] = member
		peer, server := c.conf(pki.EtcdMember(h, c.Addresses(h))), c.api.Dialer(c.conf(c.APIServerCert(h)))
		for _, from := range c.hosts {
			from.Serve(c.IP(h)+":2379", func() (net.Conn, error) { return member.Dial(peer) })
			from.Serve(c.IP(h)+":6443", func() (net.Conn, error) { return server(context.Background(), "", "") })
		}
		alone := c.api.Dialer(&tls.Config{Certificates: []tls.Certificate{*c.Leaf(pki.Admin()).TLS()}})
		for _, port := range []string{"10257", "10259"} {
			c.hosts[h].Serve("127.0.0.1:"+port, func() (net.Conn, error) { return alone(context.Background(), "", "") })
		}
		c.hosts["node4"].Serve("lb.kubexm.local:6443", func() (net.Conn, error) { return server(context.Background(), "", "") })
		c.hosts[h].Put("/etc/kubernetes/pki/apiserver.crt", string(c.Leaf(c.APIServerCert(h)).Cert), 0o644)
	}
	return c
}

func (c *running) conf(spec pki.Spec) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA(spec.CA).Cert)
	return &tls.Config{Certificates: []tls.Certificate{*c.Leaf(spec).TLS()}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
}

// unreach takes a host away from kubexm, and from the others.
func (c *running) unreach(host string) {
	delete(c.hosts, host)
	c.unreached[host] = errors.New("no route to host")
}

// silent lets nothing answer at an address.
func (c *running) silent(t *testing.T, address string) {
	for _, from := range c.hosts {
		from.Serve(address, func() (net.Conn, error) {
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			t.Cleanup(func() { near.Close() })
			return near, nil
		})
	}
}

func TestLook(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, c *running){
		"well": func(*testing.T, *running) {},
		"master lost": func(_ *testing.T, c *running) {
			c.unreach("node1")
			c.etcd.Set(c.members["node1"], func(m *etcdtest.Member) { m.Down = true })
		},
		"only kubexm is cut off": func(_ *testing.T, c *running) { c.unreach("node1") },
		"machines hang": func(t *testing.T, c *running) {
			for _, h := range []string{"10.0.0.11", "10.0.0.12"} {
				c.silent(t, h+":2379")
				c.silent(t, h+":6443")
			}
		},
		"etcd": func(_ *testing.T, c *running) {
			c.etcd.Set(c.members["node2"], func(m *etcdtest.Member) { m.Behind = 5000 })
			c.etcd.Set(c.members["node3"], func(m *etcdtest.Member) { m.Learner = true })
			c.etcd.Add("stranger", "https://10.0.0.99:2379")
		},
		"escapes": func(_ *testing.T, c *running) {
			c.etcd.Set(c.members["node2"], func(m *etcdtest.Member) { m.Version = "\x1b[2J3.6.4\r\n" })
			c.api.Version = "\x1b]0;owned\x07v1.37.0"
			c.api.Failing = func() []string { return []string{"\x1b[31metcd"} }
		},
		"etcd is stopped": func(_ *testing.T, c *running) {
			for _, m := range c.members {
				c.etcd.Set(m, func(m *etcdtest.Member) { m.Down = true })
			}
		},
		"nothing": func(_ *testing.T, c *running) {
			for _, h := range c.All() {
				c.unreach(h)
			}
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newRunning(t)
				spoil(t, c)
				hosts := map[string]*runner.Runner{}
				for name, h := range c.hosts {
					hosts[name] = h.Runner()
				}
				start := time.Now()
				is := observe.Look(t.Context(), c.Cluster, hosts, c.unreached)
				if took := time.Since(start); took > 15*time.Second {
					t.Errorf("took %v", took)
				}
				text := describe(is)
				if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }) {
					t.Errorf("a terminal escape is among it: %q", text)
				}
				golden.Equal(t, text)
				time.Sleep(time.Minute) // the ends of a connection wait for one another's last words
			})
		})
	}
}

func describe(is cluster.Observed) string {
	var b strings.Builder
	healthy, total := is.Quorum()
	fmt.Fprintf(&b, "server %s, leader %q, quorum %d of %d, not working %q, ready %q, not ready %q\n",
		is.Server, is.EtcdLeader(), healthy, total, is.BrokenEtcd(), is.AnyAPI(), is.BrokenAPI())
	for _, m := range is.Members {
		fmt.Fprintf(&b, "member %+v\n", m)
	}
	for _, a := range is.API {
		fmt.Fprintf(&b, "api %+v\n", a)
	}
	for _, h := range slices.Sorted(maps.Keys(is.Endpoint)) {
		fmt.Fprintf(&b, "endpoint from %s: %s\n", h, is.Endpoint[h])
	}
	for _, n := range slices.Sorted(maps.Keys(is.Nodes)) {
		fmt.Fprintf(&b, "node %s %+v\n", n, is.Nodes[n])
	}
	for _, c := range is.Components {
		fmt.Fprintf(&b, "%s on %s %t %s\n", c.Name, c.Host, c.Healthy, c.Version)
	}
	for _, c := range is.Certificates {
		fmt.Fprintf(&b, "%s on %s %s\n", c.Path, c.Host, c.Expires.Format(time.DateOnly))
	}
	for _, p := range is.Problems {
		fmt.Fprintf(&b, "problem: %s\n", p)
	}
	return b.String()
}

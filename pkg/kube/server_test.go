package kube

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/pki"
)

// onEach runs a test against the API server in memory and against a real one.
func onEach(t *testing.T, test func(t *testing.T, c *Client)) {
	t.Run("memory", func(t *testing.T) {
		c, _ := inMemory(t, kubetest.New())
		test(t, c)
	})
	t.Run("real", func(t *testing.T) { test(t, realServer(t)) })
}

// inMemory returns a client of server, and its access for changes.
func inMemory(t *testing.T, server *kubetest.Server) (*Client, Access) {
	t.Helper()
	store := &pki.Store{Dir: t.TempDir()}
	leaf, err := store.Leaf(pki.APIServer("node1", nil, "cluster.local", nil))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := store.CA(pki.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.X509)
	config := &tls.Config{Certificates: []tls.Certificate{*leaf.TLS()}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
	access := Access{Address: "127.0.0.1:6443", CA: ca.Cert, Client: store.Operator, Dial: server.Dialer(config), Patience: 2 * time.Second}
	return client(t, access), access
}

func client(t *testing.T, access Access) *Client {
	t.Helper()
	c, err := New(access)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// realServer returns a client of the kube-apiserver that runs while these tests run.
func realServer(t *testing.T) *Client {
	t.Helper()
	if shared.skip != "" {
		t.Skip(shared.skip)
	}
	c := client(t, shared.access)
	if err := c.WaitAPIReady(within(t)); err != nil {
		t.Fatal(err)
	}
	return c
}

var shared struct {
	skip   string
	access Access
}

func TestMain(m *testing.M) { os.Exit(withRealServer(m)) }

func withRealServer(m *testing.M) int {
	assets := os.Getenv(kubetest.Assets)
	if assets == "" {
		shared.skip = kubetest.Assets + " names no directory with a real control plane's programs"
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "kube-test-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	plane, err := kubetest.Start(assets, dir)
	if err != nil {
		panic(err)
	}
	defer plane.Stop()
	ca, err := plane.Store.CA(pki.Kubernetes)
	if err != nil {
		panic(err)
	}
	shared.access = Access{Address: plane.Address, CA: ca.Cert, Client: plane.Store.Operator, Dial: (&net.Dialer{}).DialContext, Patience: 10 * time.Second}
	return m.Run()
}

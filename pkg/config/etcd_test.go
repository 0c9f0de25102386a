package config

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/pki"
)

const withExternalEtcd = `apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  hosts: [{name: node1, address: 192.0.2.11, roles: [master, worker]}]
  etcd:
    type: external
    external: {endpoints: ["https://192.0.2.21:2379"], caFile: %s, certFile: %s, keyFile: %s}
`

// TestExternalEtcd reads files that go together, and such that do not.
func TestExternalEtcd(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	store := func(name string, now func() time.Time) *pki.Store {
		return &pki.Store{Dir: filepath.Join(home, name), Now: now}
	}
	mine, old := store("mine", nil), store("old", func() time.Time { return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) })
	for _, s := range []*pki.Store{mine, store("other", nil), old} {
		for _, spec := range []pki.Spec{pki.EtcdClient("node1"), {CA: pki.Etcd, Name: "server", CN: "etcd", Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}} {
			if _, err := s.Leaf(spec); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	const ca, cert, key = "~/mine/etcd/ca.crt", "~/mine/etcd/node-node1.crt", "~/mine/etcd/node-node1.key"
	for name, c := range map[string]struct{ ca, cert, key, said string }{
		"well":                {ca, cert, key, ""},
		"another's authority": {"~/other/etcd/ca.crt", cert, key, ""}, // servers may have one of their own
		"another's key":       {ca, cert, "~/other/etcd/node-node1.key", `keyFile: "HOME/other/etcd/node-node1.key": is not the key of certFile`},
		"no client's":         {ca, "~/other/etcd/server.crt", "~/other/etcd/server.key", `certFile: "HOME/other/etcd/server.crt": is not a client's certificate`},
		"mixed up":            {key, cert, ca, `caFile: "HOME/mine/etcd/node-node1.key": holds no certificate (PEM)`},
		"key for certificate": {ca, key, key, `certFile: "HOME/mine/etcd/node-node1.key": does not begin with a certificate (PEM)`},
		"missing":             {ca, "~/nowhere.crt", key, `certFile: "HOME/nowhere.crt": cannot be read: no such file or directory`},
		"expired":             {"~/old/etcd/ca.crt", "~/old/etcd/node-node1.crt", "~/old/etcd/node-node1.key", `certFile: "HOME/old/etcd/node-node1.crt": x509: certificate has expired or is not yet valid`},
	} {
		t.Run(name, func(t *testing.T) {
			parsed, warnings, err := Parse("cluster.yaml", fmt.Appendf(nil, withExternalEtcd, c.ca, c.cert, c.key))
			said := strings.ReplaceAll(fmt.Sprint(warnings, err), home, "HOME")
			if refused := c.said != "" && name != "expired"; (err != nil) != refused || !strings.Contains(said, c.said) {
				t.Errorf("said %q, want %q", said, c.said)
			}
			if text, _ := os.ReadFile(filepath.Join(home, "mine/etcd/node-node1.key")); strings.Contains(said, strings.Split(string(text), "\n")[1]) {
				t.Error("the key is shown")
			}
			if e := parsed.Spec.Etcd; e.DataDir != "" || e.Version != "" {
				t.Errorf("defaults of an etcd that kubexm does not run: %+v", e)
			}
		})
	}
}

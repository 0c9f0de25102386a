package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/connector/sshtest"
)

// TestHostKeys meets a machine and one behind a bastion that nobody knows, under each policy.
func TestHostKeys(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	var fingerprints []string
	start := func() *sshtest.Server {
		s := sshtest.Start(t, sshtest.Config{Password: "x", Handler: func(string, io.Reader, io.Writer, io.Writer) int { return 1 }})
		fingerprints = append(fingerprints, ssh.FingerprintSHA256(s.HostKey))
		return s
	}
	node1, node2, bastion := start(), start(), start()
	config := func(node2Key, global string) string {
		return fmt.Sprintf(`apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: met}
spec:
  global: {user: root, password: x%s}
  hosts:
  - {name: node1, address: 127.0.0.1, port: %d, internalAddress: 10.0.0.1, roles: [master, etcd]}
  - {name: node2, address: 127.0.0.1, port: %d, internalAddress: 10.0.0.2, roles: [worker], hostKey: "%s", bastion: {address: 127.0.0.1, port: %d, password: x}}
`, global, node1.Port, node2.Port, node2Key, bastion.Port)
	}
	no := func(context.Context, []connector.HostKey) error { return errors.New("no") }
	for _, c := range []struct {
		name, config, policy string
		may                  func(context.Context, []connector.HostKey) error
		asked, told          int // machines
		refused              bool
	}{
		{"nobody to ask", config("", ""), "", nil, 0, 3, false},
		{"yes", config("", ""), "", func(context.Context, []connector.HostKey) error { return nil }, 3, 0, false},
		{"no", config("", ""), "", no, 2, 0, true}, // who is behind a bastion is not asked
		{"strict", config("", ""), "strict", no, 0, 0, true},
		{"configured to be strict", config("", ", hostKeyPolicy: strict"), "", no, 0, 0, true},
		{"asked to be less strict", config("", ", hostKeyPolicy: strict"), "accept-new", nil, 0, 3, false},
		{"configured key", config(fingerprints[1], ""), "", nil, 0, 2, false},
		{"configured, another key", config(fingerprints[0], ""), "", nil, 0, 2, true},
		{"nobody to ask, who should be", config("", ""), "ask", nil, 0, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "cluster.yaml")
			if err := os.WriteFile(file, []byte(c.config), 0o600); err != nil {
				t.Fatal(err)
			}
			var asked []connector.HostKey
			var told string
			o := app.Observer{Notice: func(text string) {
				if strings.Contains(text, "seen for the first time") {
					told += text
				}
			}}
			if c.may != nil {
				o.MayTrust = func(ctx context.Context, shown []connector.HostKey) error {
					asked = append(asked, shown...)
					return c.may(ctx, shown)
				}
			}
			a := &app.App{Workdir: filepath.Join(dir, "work")}
			for again := range 2 {
				_, err := a.Unlock(t.Context(), app.Request{File: file, HostKeys: c.policy}, o)
				if c.refused != errors.Is(err, connector.ErrHostKey) {
					t.Errorf("got %v", err)
				}
				if n := strings.Count(told, "SHA256:"); n != c.told {
					t.Errorf("told of %d keys: %s", n, told)
				}
				if want := c.asked; len(asked) != want && (again == 0 || !c.refused) {
					t.Errorf("asked about %v", asked)
				}
			}
		})
	}
}

// TestTrustHosts records the keys of machines that agree with what somebody saw.
func TestTrustHosts(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	node1, server := sshtest.Start(t, sshtest.Config{Password: "secret"}), sshtest.Start(t, sshtest.Config{Password: "secret"})
	authority := "@cert-authority * " + string(ssh.MarshalAuthorizedKey(sshtest.Start(t, sshtest.Config{}).HostKey)) // of other machines
	if err := errors.Join(os.Mkdir(filepath.Join(dir, ".ssh"), 0o700), os.WriteFile(filepath.Join(dir, ".ssh/known_hosts"), []byte(authority), 0o600)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "cluster.yaml")
	config := fmt.Sprintf(`apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: met}
spec:
  hosts:
  - {name: node1, address: 127.0.0.1, port: %d, internalAddress: 10.0.0.1, roles: [master, etcd, worker]}
  - {name: node2, address: 127.0.0.1, port: 1, internalAddress: 10.0.0.2, roles: [worker]}
`, node1.Port)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app.App{Workdir: filepath.Join(dir, "work")}
	for _, yes := range []bool{false, true, true} {
		asked := 0
		known, err := a.TrustHosts(t.Context(), app.Request{File: file}, app.Observer{MayTrust: func(_ context.Context, shown []connector.HostKey) error {
			asked++
			if len(shown) != 1 || shown[0].Fingerprint != ssh.FingerprintSHA256(node1.HostKey) {
				t.Errorf("shown: %v", shown)
			}
			if !yes {
				return errors.New("no")
			}
			return nil
		}})
		silent := err != nil && strings.Contains(err.Error(), "host node2: connecting to node2 (root@127.0.0.1:1): not reachable")
		if !silent || len(known) != 2 || (len(known[0].Keys) == 1) != yes || len(known[1].Keys) > 0 || len(known[0].Keys) == 0 && asked == 0 {
			t.Errorf("known %v, asked %d times: %v", known, asked, err)
		}
	}
	revoked := "@revoked * " + string(ssh.MarshalAuthorizedKey(node1.HostKey))
	if err := os.WriteFile(filepath.Join(dir, "work/met/known_hosts"), []byte(revoked), 0o600); err != nil {
		t.Fatal(err)
	}
	agree := app.Observer{MayTrust: func(context.Context, []connector.HostKey) error { return nil }}
	if _, err := a.TrustHosts(t.Context(), app.Request{File: file}, agree); err == nil || !strings.Contains(err.Error(), "recording the host key of node1") {
		t.Errorf("a key that cannot be recorded: %v", err)
	}
	config += fmt.Sprintf("  backup: {targets: [{sftp: {address: 127.0.0.1, port: %d, path: /backups}}]}\n", server.Port)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _ = a.TrustHosts(t.Context(), app.Request{File: file}, agree) // as before
	if known, err := os.ReadFile(filepath.Join(dir, "work/met/known_hosts")); !strings.Contains(string(known), string(ssh.MarshalAuthorizedKey(server.HostKey))) {
		t.Errorf("%v; the server with the backups is not known:\n%s", err, known)
	}
}

package app_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/connector/sshtest"
)

// TestExec runs a command on hosts of which one is down and one does not like it.
func TestExec(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	start := func(code int) *sshtest.Server {
		return sshtest.Start(t, sshtest.Config{Password: "x", Handler: func(line string, in io.Reader, out, errs io.Writer) int {
			text, _ := io.ReadAll(in)
			fmt.Fprintf(out, "%s %s\n", line, text)
			fmt.Fprintln(errs, "warning")
			return code
		}})
	}
	node1, node2 := start(0), start(7)
	dir := t.TempDir()
	file := filepath.Join(dir, "cluster.yaml")
	config := fmt.Sprintf(`apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: met}
spec:
  global: {password: x}
  hosts:
  - {name: node1, address: 127.0.0.1, port: %d, internalAddress: 10.0.0.1, roles: [master, etcd, worker]}
  - {name: node2, address: 127.0.0.1, port: %d, internalAddress: 10.0.0.2, roles: [worker]}
  - {name: node3, address: 127.0.0.1, port: 1, internalAddress: 10.0.0.3, roles: [worker]}
`, node1.Port, node2.Port)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app.App{Workdir: filepath.Join(dir, "work")}
	for _, c := range []struct {
		name, in     string
		hosts, roles []string
		want, err    string
	}{
		{"all", "", nil, nil, "node1 0 out: uname  | node2 7 out: uname  | node3 not reached | ", ""},
		{"one with input", "text", []string{"node2"}, nil, "node2 7 out: uname text | ", ""},
		{"by role", "", nil, []string{"master", "loadbalancer"}, "node1 0 out: uname  | ", ""},
		{"by name and role", "", []string{"node2"}, []string{"master"}, "node1 0 out: uname  | node2 7 out: uname  | ", ""},
		{"input for two", "text", []string{"node1", "node2"}, nil, "", "standard input is for one host"},
		{"no such host", "", []string{"node9"}, nil, "", "the cluster has no host node9"},
		{"no such role", "", nil, []string{"registry"}, "", "no host with the role registry"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			outs := map[string]*bytes.Buffer{}
			what := app.Command{Line: "uname", Hosts: c.hosts, Roles: c.roles, Streams: func(host string) (stdout, stderr io.Writer) {
				mu.Lock()
				defer mu.Unlock()
				outs[host] = &bytes.Buffer{}
				return outs[host], io.Discard
			}}
			if c.in != "" {
				what.In = strings.NewReader(c.in)
			}
			all, err := a.Exec(t.Context(), app.Request{File: file, HostKeys: "accept-new"}, app.Observer{}, what)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v", err)
				}
				return
			}
			var got strings.Builder
			for _, e := range all {
				switch {
				case errors.Is(e.Err, connector.ErrUnreachable):
					fmt.Fprintf(&got, "%s not reached | ", e.Host)
				default:
					fmt.Fprintf(&got, "%s %d out: %s | ", e.Host, e.Code, strings.TrimSuffix(outs[e.Host].String(), "\n"))
				}
			}
			if err != nil || got.String() != c.want {
				t.Errorf("got %s, %v", &got, err)
			}
		})
	}
}

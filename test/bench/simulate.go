package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/connector/sshtest"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// simulate is another process of this program: hosts in memory, each behind an SSH
// server of its own, an API server that comes up with the first of them, and an
// upstream whose every file is a few bytes long. It writes cluster.yaml, says that it
// is ready, and ends with its standard input.
func simulate(args []string) error {
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	hosts := flags.Int("hosts", 1000, "")
	latency := flags.Duration("latency", 5*time.Millisecond, "of each direction")
	dir := flags.String("dir", "", "where cluster.yaml goes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s := &simulation{api: kubetest.New(), latency: *latency}
	var conf strings.Builder
	conf.WriteString(`apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: ` + cluster + `}
spec:
  global: {user: root, password: simulated, port: 2022}
  kubernetes: {type: kubexm}
  etcd: {type: kubexm}
  network: {plugin: flannel, podCIDR: 10.64.0.0/12}
  loadBalancer: {enabled: false}
` + resourcetest.New().Mirrors() + "  hosts:\n")
	for i := range *hosts {
		name, roles := fmt.Sprintf("node%d", i+1), "[worker]"
		if i == 0 {
			roles = "[master, etcd]"
		}
		address, internal := fmt.Sprintf("127.1.%d.%d", i/250, i%250+1), fmt.Sprintf("172.16.%d.%d", i/250, i%250+1)
		fmt.Fprintf(&conf, "  - {name: %s, address: %s, internalAddress: %s, arch: amd64, roles: %s}\n", name, address, internal, roles)
		s.host(name, net.JoinHostPort(address, "2022"), internal, i == 0)
	}
	if err := os.WriteFile(filepath.Join(*dir, "simulated.yaml"), []byte(conf.String()), 0o600); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, bufio.NewReader(os.Stdin))
	return err
}

type simulation struct {
	hosts   []*runnertest.Host
	api     *kubetest.Server
	latency time.Duration
}

// host starts one host.
func (s *simulation) host(name, ssh, ip string, master bool) {
	h := runnertest.Debian12(name)
	s.hosts = append(s.hosts, h)
	h.SetAddr("eth0", ip+"/16")
	kubelet := h.OnStart["kubelet.service"]
	h.OnStart["kubelet.service"] = func(h *runnertest.Host) error {
		err := kubelet(h)
		if err == nil {
			s.api.AddNode(name, true)
		}
		return err
	}
	if master {
		h.OnStart["kube-apiserver.service"] = func(h *runnertest.Host) error { return s.serve(h, net.JoinHostPort(ip, "6443")) }
	}
	sshtest.Start(outside{}, sshtest.Config{
		Password: "simulated", Latency: s.latency, Sessions: 10, Address: ssh, Dial: h.Dial,
		Handler: func(line string, stdin io.Reader, stdout, stderr io.Writer) int {
			err := h.Exec(context.Background(), connector.Cmd{Line: line, Stdin: stdin, Stdout: stdout, Stderr: stderr})
			var exit *connector.ExitError
			switch {
			case errors.As(err, &exit):
				return exit.Code
			case err != nil:
				fmt.Fprintln(stderr, err)
				return 255
			}
			return 0
		},
	})
}

// serve runs the API server with the certificate that kubexm put on the host.
func (s *simulation) serve(h *runnertest.Host, address string) error {
	crt, _ := h.Get("/etc/kubernetes/pki/apiserver.crt")
	key, _ := h.Get("/etc/kubernetes/pki/apiserver.key")
	pair, err := tls.X509KeyPair([]byte(crt), []byte(key))
	if err != nil {
		return err
	}
	dial := s.api.Dialer(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12})
	for _, from := range s.hosts { // workers that leave ask it themselves
		from.Serve(address, func() (net.Conn, error) { return dial(context.Background(), "tcp", address) })
	}
	return nil
}

// outside stands in for a test where there is none: what is started lasts as long
// as the process.
type outside struct{ testing.TB }

func (outside) Helper()           {}
func (outside) Cleanup(func())    {}
func (outside) Fatal(args ...any) { log.Fatal(args...) }

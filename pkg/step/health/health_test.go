package health_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/etcd/etcdtest"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/health"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
	"github.com/kubexm/kubexm/pkg/util/racetest"
)

// masters is a cluster of masters that runs, seen from node1.
type masters struct {
	*cluster.Cluster
	host    *runnertest.Host
	etcd    *etcdtest.Cluster
	members map[string]*etcdtest.Member

	mu      sync.Mutex
	failing map[string]string // by master: what its API server finds wrong
}

func newMasters(t *testing.T, spec string) *masters {
	t.Helper()
	m := &masters{
		Cluster: clustertest.Parse(t, spec, nil), host: runnertest.Debian12("node1"), etcd: etcdtest.New(), members: map[string]*etcdtest.Member{},
		failing: map[string]string{},
	}
	for _, h := range m.Etcd() {
		access := m.EtcdAccess(h)
		conf := m.serverConf(pki.EtcdMember(h, m.Addresses(h)))
		m.members[h] = m.etcd.Add(h, access.Endpoint)
		m.host.Serve(m.IP(h)+":2379", func() (net.Conn, error) { return m.members[h].Dial(conf) })
	}
	for _, h := range m.Masters() {
		m.FactsOf(h).Running = []string{"kubeadm", "kube-apiserver", "etcd"}
		api := kubetest.New()
		api.Failing = func() []string {
			m.mu.Lock()
			defer m.mu.Unlock()
			return strings.Fields(m.failing[h])
		}
		dial := api.Dialer(m.serverConf(m.APIServerCert(h)))
		m.host.Serve(m.IP(h)+":6443", func() (net.Conn, error) { return dial(context.Background(), "", "") })
	}
	return m
}

func (m *masters) serverConf(spec pki.Spec) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(m.CA(spec.CA).Cert)
	return &tls.Config{Certificates: []tls.Certificate{*m.Leaf(spec).TLS()}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
}

func (m *masters) fails(host, check string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing[host] = check
}

func (m *masters) down(hosts ...string) {
	for _, h := range hosts {
		m.etcd.Set(m.members[h], func(e *etcdtest.Member) { e.Down = true })
	}
}

func (m *masters) up(host string) {
	m.etcd.Set(m.members[host], func(e *etcdtest.Member) { e.Down = false })
}

const one = `apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  hosts:
  - {name: node1, address: 10.0.0.11, roles: [master, etcd, worker]}
`

// seen is that the first look found members of etcd broken.
func (m *masters) seen(hosts ...string) {
	for _, h := range hosts {
		m.Observed.Members = append(m.Observed.Members, cluster.EtcdMember{Host: h, Stopped: true})
	}
}

// TestControlPlane has control planes in every state that matters to who is to stop what is on node1.
func TestControlPlane(t *testing.T) {
	racetest.Slow(t)
	two := strings.Replace(one, "worker]", "worker]}\n  - {name: node2, address: 10.0.0.12, roles: [etcd]", 1)
	for name, test := range map[string]struct {
		spec  string
		spoil func(m *masters)
		later func(m *masters) // after a minute
	}{
		"well":            {spec: clustertest.Masters},
		"kubeadm":         {spec: clustertest.Masters + "  kubernetes: {type: kubeadm}\n"},
		"one":             {spec: one},
		"two":             {spec: two},
		"external":        {spec: clustertest.Alone, spoil: nil},
		"comes back":      {clustertest.Masters, func(m *masters) { m.down("node2") }, func(m *masters) { m.up("node2") }},
		"stays away":      {clustertest.Masters, func(m *masters) { m.down("node2") }, nil},
		"left out":        {clustertest.Masters, func(m *masters) { m.down("node3"); m.LeaveOut("node3") }, nil},
		"left out, alive": {clustertest.Masters, func(m *masters) { m.LeaveOut("node3") }, nil},
		"one of two":      {two, func(m *masters) { m.down("node2"); m.LeaveOut("node2") }, nil},
		"stranger":        {clustertest.Masters, func(m *masters) { m.down("node3"); m.LeaveOut("node3"); m.etcd.Add("node4", "https://10.0.0.14:2379") }, nil},
		"API server":      {clustertest.Masters, func(m *masters) { m.fails("node2", "etcd") }, func(m *masters) { m.fails("node2", "") }},
		"no API server":   {clustertest.Masters, func(m *masters) { m.host.Serve("10.0.0.13:6443", nil) }, nil},
		"alarm":           {clustertest.Masters, func(m *masters) { m.etcd.Set(m.members["node2"], func(e *etcdtest.Member) { e.Alarm = "NOSPACE" }) }, nil},
		"far behind":      {clustertest.Masters, func(m *masters) { m.etcd.Set(m.members["node2"], func(e *etcdtest.Member) { e.Behind = 1001 }) }, nil},
		"own":             {clustertest.Masters, func(m *masters) { m.down("node1") }, nil},
		"own, repaired":   {clustertest.Masters, func(m *masters) { m.down("node1"); m.seen("node1") }, nil},
		"own and another": {clustertest.Masters, func(m *masters) { m.down("node1", "node2"); m.seen("node1", "node2", "node3") }, nil},
		"another, seen":   {clustertest.Masters, func(m *masters) { m.down("node2"); m.seen("node2") }, nil},
		"all API servers, seen": {clustertest.Masters, func(m *masters) {
			for _, h := range m.Masters() {
				m.fails(h, "poststarthook")
				m.Observed.API = append(m.Observed.API, cluster.APIServer{Host: h, Err: "not ready"})
			}
		}, nil},
		"removed": {clustertest.Masters, func(m *masters) { m.etcd.Remove(m.members["node2"]) }, nil},
		"all":     {clustertest.Masters, func(m *masters) { m.down("node1", "node2", "node3") }, nil},
	} {
		if name == "external" {
			test.spec += clustertest.ExternalEtcd(t, &pki.Store{Dir: t.TempDir()})
		}
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMasters(t, test.spec)
				if test.spoil != nil {
					test.spoil(m)
				}
				if test.later != nil {
					time.AfterFunc(time.Minute, func() { test.later(m) })
				}
				golden.Equal(t, m.run(t, health.ControlPlane(m.Cluster, "node1")))
			})
		})
	}
}

// TestWell has a member of etcd left out that is dead: an API server can do without its own machine's, but not its member.
func TestWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMasters(t, clustertest.Masters)
		m.down("node3")
		m.LeaveOut("node3")
		if got := m.run(t, health.Well(m.Cluster, "node1")); got != "nothing to do\n" {
			t.Error(got)
		}
		if got := m.run(t, health.ControlPlane(m.Cluster, "node1")); !strings.Contains(got, "etcd would lose its majority") {
			t.Error(got)
		}
	})
}

// run looks, and does what there is to do.
func (m *masters) run(t *testing.T, s step.Step) string {
	t.Helper()
	r, start := m.host.Runner(), time.Now()
	defer closeIdle(t, r, m)
	ctx, cancel := context.WithTimeout(t.Context(), step.OptionsOf(s).Timeout)
	defer cancel()
	s = step.Unwrap(s)
	change, err := s.Precheck(ctx, r)
	if err != nil {
		return fmt.Sprintf("error: %v\nadvice: %s\n", err, fault.Advice(err))
	}
	if change == nil {
		return "nothing to do\n"
	}
	text := change.Diff + "\n"
	err = change.Run(ctx)
	if err == nil {
		err = step.Verify(ctx, r, s, change)
	}
	text += fmt.Sprintf("after %v: %v\n", time.Since(start).Round(10*time.Second), err)
	if advice := fault.Advice(err); advice != "" {
		text += "advice: " + advice + "\n"
	}
	return text
}

// closeIdle ends the connections of a run, which in a bubble may not outlive the test.
func closeIdle(t *testing.T, r *runner.Runner, m *masters) {
	t.Helper()
	for _, h := range m.Masters() {
		client, err := step.Kube(r, m.API(h))
		if err != nil {
			t.Fatal(err)
		}
		client.Close()
	}
	time.Sleep(time.Minute) // the ends of a connection wait for one another's last words
}

func TestHandOver(t *testing.T) {
	for name, test := range map[string]struct {
		spec  string
		spoil func(m *masters)
		to    string
	}{
		"leads":      {clustertest.Masters, func(*masters) {}, "node2"},
		"follows":    {clustertest.Masters, func(m *masters) { m.etcd.Lead(m.members["node3"]) }, "node3"},
		"alone":      {one, func(*masters) {}, "node1"},
		"one down":   {clustertest.Masters, func(m *masters) { m.down("node2") }, "node3"},
		"one behind": {clustertest.Masters, func(m *masters) { m.etcd.Set(m.members["node2"], func(e *etcdtest.Member) { e.Behind = 5 }) }, "node3"},
		"is down":    {clustertest.Masters, func(m *masters) { m.down("node1") }, "node2"},
		"all are behind": {clustertest.Masters, func(m *masters) {
			for _, h := range []string{"node2", "node3"} {
				m.etcd.Set(m.members[h], func(e *etcdtest.Member) { e.Behind = 1001 })
			}
		}, "node1"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMasters(t, test.spec)
				test.spoil(m)
				golden.Equal(t, m.run(t, health.HandOver(m.Cluster, "node1")))
				if got := m.etcd.Leader(); got != test.to {
					t.Errorf("%s leads", got)
				}
			})
		})
	}
}

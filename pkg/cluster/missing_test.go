package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/runner"
)

// lives is a cluster of three masters, of which those in down are not reached and have no healthy member of etcd.
func lives(t *testing.T, down ...string) *cluster.Cluster {
	t.Helper()
	c := clustertest.Parse(t, clustertest.Masters, func(_ string, f *runner.Facts) { f.Running = []string{"kubeadm", "kube-apiserver"} })
	for i, m := range c.Masters() {
		up := !slices.Contains(down, m)
		if up {
			c.Observed.API = append(c.Observed.API, cluster.APIServer{Host: m})
		} else {
			c.Facts[m] = nil
		}
		c.Observed.Members = append(c.Observed.Members, cluster.EtcdMember{Host: m, ID: uint64(i + 1), Healthy: up})
	}
	return c
}

func TestNeeded(t *testing.T) {
	unborn := clustertest.Parse(t, clustertest.Masters, nil)
	for name, test := range map[string]struct {
		c    *cluster.Cluster
		down []string
		why  string // empty: it can be left out
	}{
		"before birth":      {unborn, []string{"node1"}, "until the cluster runs, only workers can be left out"},
		"one of three":      {lives(t, "node1"), []string{"node1"}, ""},
		"two of three":      {lives(t, "node1", "node2"), []string{"node1", "node2"}, "1 of 3 are healthy, which is no majority"},
		"all":               {lives(t, "node1", "node2", "node3"), []string{"node1", "node2", "node3"}, "until the cluster runs"},
		"its member lives":  {lives(t), []string{"node1"}, ""},
		"another is broken": {lives(t, "node2"), []string{"node1"}, "1 of 3"},
	} {
		got := test.c.Needed(test.down[0], test.down)
		if got == "" != (test.why == "") || !strings.Contains(got, test.why) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestAnyAPI has masters in the order in which they are asked.
func TestAnyAPI(t *testing.T) {
	ask := func(c *cluster.Cluster) string {
		a := c.AnyAPI()
		return strings.ReplaceAll(strings.Join(append([]string{a.Address}, a.Others...), " "), ":6443", "")
	}
	out := lives(t, "node1")
	out.LeaveOut("node1")
	broken := lives(t)
	broken.Observed.API[0].Err = "not ready"
	for want, c := range map[string]*cluster.Cluster{
		"10.0.0.11":                     clustertest.Parse(t, clustertest.Masters, nil), // is being born
		"10.0.0.11 10.0.0.12 10.0.0.13": lives(t),
		"10.0.0.12 10.0.0.13":           out,
		"10.0.0.12 10.0.0.13 10.0.0.11": broken,
	} {
		if got := ask(c); got != want {
			t.Errorf("asks %s, want %s", got, want)
		}
	}
	if got := broken.AnyMaster(); got != "node2" {
		t.Errorf("joins through %s", got)
	}
}

// TestFormerPorts has a cluster whose port was changed.
func TestFormerPorts(t *testing.T) {
	for name, test := range map[string]struct {
		edit   func(f *runner.Facts)
		former []int
		at     int
	}{
		"none": {func(f *runner.Facts) {
			f.Servers, f.Listening[6443] = []string{"lb.kubexm.local:6443", "10.0.0.11:6443"}, "kube-apiserver"
		}, nil, 6443},
		"another cluster's": {func(f *runner.Facts) { f.Servers = []string{"api.example.com:443", "10.0.9.9:7443", "no port"} }, nil, 0},
		"of the endpoint": {func(f *runner.Facts) {
			f.Servers, f.Listening[7443] = []string{"lb.kubexm.local:7443"}, "kube-apiserver"
		}, []int{7443}, 7443},
		"of a master": {func(f *runner.Facts) { f.Servers, f.Listening[6443] = []string{"10.0.0.11:7443"}, "kube-apiserver" }, []int{7443}, 6443},
		"renamed, too": {func(f *runner.Facts) {
			f.Servers, f.Names["old.kubexm.local"], f.Listening[7443] = []string{"old.kubexm.local:7443"}, "10.0.0.11", "nginx"
		}, []int{7443}, 0},
		"forwarded": {func(f *runner.Facts) {
			f.Inventory = []string{"unit kubexm-port-8443", "unit kubexm-port-6443", "unit kubelet"}
		}, []int{8443}, 0},
	} {
		c := clustertest.New(t, "", func(host string, f *runner.Facts) {
			if host == "node1" {
				test.edit(f)
			}
		})
		if got := c.FormerPorts(); !slices.Equal(got, test.former) || c.ListensAt("node1") != test.at {
			t.Errorf("%s: %v, listens at %d", name, got, c.ListensAt("node1"))
		}
	}
}

package pipeline_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/pipeline"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/task"
)

// rows are the rows of the deployment matrix that there are.
var rows = map[string]string{
	"row 1": "  kubernetes: {type: kubeadm}\n  etcd: {type: kubeadm}\n",
	"row 2": "  kubernetes: {type: kubexm}\n  etcd: {type: kubexm}\n",
	"row 3": "  kubernetes: {type: kubeadm}\n  etcd: {type: kubexm}\n",
}

// each tests the graph of each row; before lists the nodes that have ended when a node begins.
func each(t *testing.T, test func(t *testing.T, g *plan.ExecutionGraph, before map[plan.ID]map[plan.ID]bool)) {
	for name, spec := range rows {
		t.Run(name, func(t *testing.T) {
			g, err := plan.New(pipeline.Create(clustertest.New(t, spec, nil)))
			if err != nil {
				t.Fatal(err)
			}
			test(t, g, order(g))
		})
	}
}

// order lists the nodes that have ended when a node begins.
func order(g *plan.ExecutionGraph) map[plan.ID]map[plan.ID]bool {
	before := map[plan.ID]map[plan.ID]bool{}
	for _, n := range g.Nodes {
		before[n.ID] = map[plan.ID]bool{}
		for _, a := range n.After {
			before[n.ID][a] = true
			for b := range before[a] {
				before[n.ID][b] = true
			}
		}
	}
	return before
}

// touched lists what a step changes on its host: files, and the service.
func touched(s step.Step) (paths []string) {
	switch s := step.Unwrap(s).(type) {
	case step.File:
		paths = []string{s.Path}
	case step.Files:
		for _, f := range s.List {
			paths = append(paths, f.Path)
		}
	case step.Block:
		paths = []string{s.Path}
	case step.Upload:
		for _, p := range s.Programs {
			paths = append(paths, p.Dir+"/"+p.Artifact.Component)
		}
	case step.Service:
		paths = []string{"service " + s.Name}
	}
	return paths
}

// TestNoConflict shows that no two steps that may run at one time change one thing.
func TestNoConflict(t *testing.T) {
	each(t, func(t *testing.T, g *plan.ExecutionGraph, before map[plan.ID]map[plan.ID]bool) {
		users := map[string][]plan.ID{}
		for _, n := range g.Nodes {
			if n.Barrier() {
				continue
			}
			for _, p := range touched(n.Step) {
				at := n.Host + " " + p
				for _, other := range users[at] {
					if !before[n.ID][other] {
						t.Errorf("%s and %s may both change %s at one time", other, n.ID, p)
					}
				}
				users[at] = append(users[at], n.ID)
			}
		}
	})
}

// TestReadsBefore shows that a service starts after all that it reads is there.
func TestReadsBefore(t *testing.T) {
	each(t, func(t *testing.T, g *plan.ExecutionGraph, before map[plan.ID]map[plan.ID]bool) {
		at := map[string]plan.ID{}
		for _, n := range g.Nodes {
			at[n.Host+" "+n.What] = n.ID
			if n.Barrier() {
				continue
			}
			service, ok := step.Unwrap(n.Step).(step.Service)
			if !ok {
				continue
			}
			for _, r := range service.Reads {
				id, brought := at[n.Host+" "+r.String()]
				if !brought && service.Hold != nil { // on masters, authorities come with the control plane's certificates, before kubeadm starts the kubelet
					continue
				}
				if !before[n.ID][id] {
					t.Errorf("%s begins before %q is there", n.ID, r)
				}
			}
		}
	})
}

// TestNoNeedlessWait shows what waits for what, and above all what does not.
func TestNoNeedlessWait(t *testing.T) {
	each(t, func(t *testing.T, g *plan.ExecutionGraph, before map[plan.ID]map[plan.ID]bool) {
		find := func(what, host string) plan.ID {
			i := slices.IndexFunc(g.Nodes, func(n plan.Node) bool { return n.What == what && n.Host == host })
			if i < 0 {
				t.Fatalf("no %s on %s", what, host)
			}
			return g.Nodes[i].ID
		}
		kubeadm := slices.ContainsFunc(g.Nodes, func(n plan.Node) bool { return n.What == "kubeadm join" })
		join := "service kubelet"
		if kubeadm {
			join = "kubeadm join"
		}
		for _, c := range []struct {
			then, on, first, from string
			waits                 bool
		}{
			{join, "node2", "wait for the API server", "node1", true},
			{join, "node2", "container images", "node2", true},
			{join, "node2", "container images", "node1", kubeadm}, // static pods need them
			{"container images", "node2", "wait for the API server", "node1", false},
			{"packages", "node1", "download kubelet 1.37.1 amd64", plan.Control, false},
			{"upload container runtime", "node2", "packages", "node1", false},
			{"apply flannel", plan.API, join, "node2", false},
			{"wait for flannel", plan.API, join, "node2", true},
			{"wait for coredns", plan.API, "wait for node node2", plan.API, true},
		} {
			if got := before[find(c.then, c.on)][find(c.first, c.from)]; got != c.waits {
				t.Errorf("%s on %s waits for %s on %s: %t", c.then, c.on, c.first, c.from, got)
			}
		}
	})
}

// TestDelete shows that only machines of the cluster are touched.
func TestDelete(t *testing.T) {
	g, err := plan.New(pipeline.Delete(clustertest.New(t, "", func(host string, f *runner.Facts) {
		f.Env = map[string]string{"cluster": map[string]string{"node1": "demo"}[host]}
	})))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(g.Hosts()); got != "[node1]" {
		t.Errorf("deletes from %s", got)
	}
}

// TestUnits lets systemd itself read the units of each row.
func TestUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skipf("no systemd here: %v", err)
	}
	each(t, func(t *testing.T, g *plan.ExecutionGraph, _ map[plan.ID]map[plan.ID]bool) {
		dir := t.TempDir()
		for _, n := range g.Nodes {
			service, ok := n.Step.(step.Service)
			if !ok {
				continue
			}
			unit := filepath.Join(dir, service.Name+".service")
			dropIn := bytes.ReplaceAll(service.DropIn, []byte("ExecStart=/usr/local/bin/"), []byte("ExecStart=/bin/true /usr/local/bin/")) // programs are not here
			for path, text := range map[string][]byte{unit: service.Unit, filepath.Join(unit+".d", "kubexm.conf"): dropIn} {
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit).CombinedOutput()
			if err != nil || strings.Contains(string(out), dir) {
				t.Errorf("%s: %v\n%s", service.Name, err, out)
			}
		}
	})
}

// TestPackages wants task.Packages to know every step of a cluster's plan that installs packages.
func TestPackages(t *testing.T) {
	const masters = "  hosts:\n  - {name: m1, address: 10.0.0.1, roles: [master, etcd]}\n  - {name: m2, address: 10.0.0.2, roles: [master, etcd]}\n" +
		"  - {name: m3, address: 10.0.0.3, roles: [master, etcd]}\n  - {name: w1, address: 10.0.0.4, roles: [worker]}\n"
	for name, spec := range map[string]string{
		"none":             "  hosts:\n  - {name: m1, address: 10.0.0.1, roles: [master, etcd, worker]}\n",
		"internal kubeadm": masters + "  loadBalancer: {mode: internal}\n",
		"internal kubexm":  masters + "  kubernetes: {type: kubexm}\n  etcd: {type: kubexm}\n  loadBalancer: {mode: internal, internal: {type: nginx}}\n",
		"kube-vip":         masters + "  loadBalancer: {mode: kube-vip, vip: 10.0.0.100}\n",
		"external": masters + "  - {name: lb1, address: 10.0.0.5, roles: [loadbalancer]}\n  - {name: lb2, address: 10.0.0.6, roles: [loadbalancer]}\n" +
			"  loadBalancer: {mode: external, vip: 10.0.0.100, external: {type: kubexm-kh}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.Parse(t, "apiVersion: kubexm.io/v1alpha1\nkind: Cluster\nmetadata: {name: c}\nspec:\n"+spec, nil)
			g, err := plan.New(pipeline.Create(c))
			if err != nil {
				t.Fatal(err)
			}
			planned, known := map[string][]string{}, map[string][]string{}
			for _, n := range g.Nodes {
				if p, ok := step.Unwrap(n.Step).(step.Packages); ok {
					planned[n.Host] = append(planned[n.Host], p.Names...)
				}
			}
			for _, h := range c.All() {
				for _, s := range task.Packages(c, h) {
					if p, ok := step.Unwrap(s).(step.Packages); ok {
						known[h] = append(known[h], p.Names...)
					}
				}
			}
			if diff := cmp.Diff(planned, known); diff != "" || len(known) != len(c.All()) {
				t.Errorf("planned, and known beforehand:\n%s", diff)
			}
		})
	}
}

// TestPodsGetAnAddress wants what pods are told of the API server to be an address.
func TestPodsGetAnAddress(t *testing.T) {
	told := 0
	each(t, func(t *testing.T, g *plan.ExecutionGraph, _ map[plan.ID]map[plan.ID]bool) {
		for _, n := range g.Nodes {
			command, is := step.Unwrap(n.Step).(step.Command)
			if !is || n.What != "pods know the API server" {
				continue
			}
			told++
			_, address, _ := strings.Cut(strings.TrimSpace(command.Inputs), "ADDRESS=")
			if _, err := netip.ParseAddr(strings.Trim(address, "'")); err != nil {
				t.Errorf("%s: %q: %v", n.ID, command.Inputs, err)
			}
		}
	})
	if told == 0 {
		t.Error("no pods are told")
	}
}

// TestOtherRuntimes changes container runtimes to another version one node after the other, and else a quarter of the nodes at a time. Nodes are drained for one
// that ends their containers; masters, too, go one by one then.
func TestOtherRuntimes(t *testing.T) {
	text := clustertest.Masters
	var workers []string
	for i := range 9 {
		name := fmt.Sprintf("w%d", i)
		workers = append(workers, name)
		text += fmt.Sprintf("  - {name: %s, address: 10.0.0.%d, roles: [worker]}\n", name, 20+i)
	}
	for runs, is := range map[string]struct{ apart, drained bool }{
		"containerd://2.0.0": {true, false}, "containerd://2.3.4": {false, false},
		"cri-o://1.35.2": {true, true}, "cri-o://1.36.2": {true, false}, "cri-o://1.36.3": {false, false},
		"docker://29.8.2": {true, true}, "docker://30.9.3": {true, true}, "docker://29.9.1": {true, false}, "docker://29.9.3": {false, false},
	} {
		kind, _, _ := strings.Cut(runs, "://")
		c := clustertest.Parse(t, text+"  runtime: {type: "+kind+"}\n", nil)
		c.Observed.Nodes = map[string]cluster.Node{}
		for _, h := range c.Nodes() {
			c.Observed.Nodes[h] = cluster.Node{Version: c.Spec.Kubernetes.Version, Runtime: runs}
		}
		g, err := plan.New(plan.Pipeline{Name: "x", Parts: []plan.Part{task.LiveNodes(c, workers)}})
		if err != nil {
			t.Fatal(err)
		}
		before := order(g)
		first, last := map[string]plan.ID{}, map[string]plan.ID{}
		for _, n := range g.Nodes {
			if n.Barrier() {
				continue
			}
			if first[n.Host] == "" {
				first[n.Host] = n.ID
			}
			last[n.Host] = n.ID
		}
		if got := before[first["w2"]][last["w1"]]; got != is.apart {
			t.Errorf("%s: w2 waits for w1: %t", runs, got)
		}
		if got := len(c.Drains(workers)) == len(workers); got != is.drained {
			t.Errorf("%s: drained %t", runs, got)
		}
	}
}

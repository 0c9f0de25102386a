package app_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/golden"
	"github.com/kubexm/kubexm/pkg/util/racetest"
)

// matrix is the deployment matrix, from row 1 on: the types of Kubernetes and of etcd, and the load balancer.
var matrix = [][3]string{
	{"kubeadm", "kubeadm", "one master"},
	{"kubexm", "kubexm", "one master"},
	{"kubeadm", "kubexm", "one master"},
	{"kubeadm", "kubeadm", "enabled: false"},
	{"kubexm", "kubexm", "enabled: false"},
	{"kubeadm", "kubexm", "enabled: false"},
	{"kubeadm", "kubeadm", "mode: internal"},
	{"kubeadm", "kubexm", "mode: internal"},
	{"kubexm", "kubexm", "mode: internal"},
	{"kubeadm", "kubeadm", "mode: internal, internal: {type: nginx}"},
	{"kubeadm", "kubexm", "mode: internal, internal: {type: nginx}"},
	{"kubexm", "kubexm", "mode: internal, internal: {type: nginx}"},
	{"kubeadm", "kubeadm", "mode: kube-vip, vip: " + vip},
	{"kubeadm", "kubexm", "mode: kube-vip, vip: " + vip},
	{"kubexm", "kubexm", "mode: kube-vip, vip: " + vip},
	{"kubeadm", "kubeadm", "mode: external, external: {type: kubexm-kh}, vip: " + vip},
	{"kubeadm", "kubeadm", "mode: external, external: {type: kubexm-kn}, vip: " + vip},
	{"kubeadm", "kubexm", "mode: external, external: {type: kubexm-kh}, vip: " + vip},
	{"kubeadm", "kubexm", "mode: external, external: {type: kubexm-kn}, vip: " + vip},
	{"kubexm", "kubexm", "mode: external, external: {type: kubexm-kh}, vip: " + vip},
	{"kubexm", "kubexm", "mode: external, external: {type: kubexm-kn}, vip: " + vip},
	{"either", "external", "any"},
}

// all are the rows of the deployment matrix, row 22 with both types of Kubernetes.
func all() []string {
	names := []string{"row22-kubexm"}
	for i := range matrix {
		names = append(names, fmt.Sprintf("row%d", i+1))
	}
	return names
}

// row is the configuration of a scenario, or of another row of the deployment matrix.
func row(t testing.TB, name string) string {
	t.Helper()
	text, err := configuration(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func configuration(name string) (string, error) {
	for family, example := range families {
		if base, is := strings.CutSuffix(name, "-"+family); is {
			text, err := configuration(base)
			return strings.Replace(like(example, text), "{name: "+base+"}", "{name: "+name+"}", 1), err
		}
	}
	text, err := os.ReadFile(filepath.Join("testdata/scenarios", name, "cluster.yaml"))
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "row"))
	if err != nil && n > 0 && n <= len(matrix) {
		text, err = os.ReadFile("testdata/scenarios/row21/cluster.yaml")
		of := func(r [3]string) []string {
			return []string{"{type: " + r[0] + ", v", "etcd: {type: " + r[1], "loadBalancer: {" + r[2]}
		}
		r, row21 := of(matrix[n-1]), of(matrix[20])
		text = []byte(strings.NewReplacer("row21", name, row21[0], r[0], row21[1], r[1], row21[2], r[2]).Replace(string(text)))
		if !strings.Contains(r[2], "mode: external") {
			text = regexp.MustCompile(`(?m)^  - \{name: lb.*\n`).ReplaceAll(text, nil)
		}
	}
	return strings.ReplaceAll(string(text), "ETCD/", etcdCerts()+"/"), err
}

// filled returns a store that has everything that the scenarios need.
var filled = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "kubexm-test-store-")
	if err != nil {
		panic(err)
	}
	u := resourcetest.New()
	defer u.Close()
	if err := resourcetest.Trust(dir); err != nil {
		panic(err)
	}
	store, err := resource.Open(dir, source.Config{Mirrors: u.Sources()})
	if err != nil {
		panic(err)
	}
	for _, name := range append(all(), "etcd-elsewhere", "registry", "harbor", "calico", "cilium", "crio", "crio-registry", "docker", "docker-registry") {
		text, err := configuration(name)
		if err = errors.Join(err, fill(store, text)); err != nil {
			panic(err)
		}
	}
	more := [][2]string{{"row1", edits["releases"].set}, {"calico", edits["release of Calico"].set}, {"cilium", edits["release of Cilium"].set}, {"crio", edits["release of CRI-O"].set}, {"docker", edits["release of Docker"].set}, {"row1", edits["volumes"].set}, {"harbor", edits["release of Harbor"].set}}
	for _, minor := range []string{"34", "35", "36"} {
		more = append(more, [2]string{"row1", kubernetesOf(minor)}, [2]string{"row9", kubernetesOf(minor)})
	}
	for _, edit := range more {
		text, _ := configuration(edit[0]) // it was there
		text, err := combine(text, edit[1])
		if err = errors.Join(err, fill(store, text)); err != nil {
			panic(err)
		}
	}
	return dir
})

func fill(store *resource.Store, text string) error {
	conf, _, err := config.Parse("cluster.yaml", []byte(text))
	if err != nil {
		return err
	}
	facts := map[string]*runner.Facts{}
	for _, h := range conf.Spec.Hosts {
		facts[h.Name] = &runner.Facts{Arch: "amd64"}
	}
	c := cluster.New(conf, "", store, facts)
	for _, i := range cluster.Needs(c) {
		if i.Image != "" {
			if err := store.Pull(context.Background(), i.Image, i.Arch, nil); err != nil {
				return err
			}
			continue
		}
		if _, err := store.Fetch(context.Background(), i.Artifact, nil); err != nil {
			return err
		}
		if _, err := store.Programs(context.Background(), i.Artifact); err != nil {
			return err
		}
	}
	return nil
}

// bubble runs a test in which waiting takes no time.
func bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	filled() // by the network, which waits for nobody's bubble
	synctest.Test(t, test)
}

func TestMain(m *testing.M) {
	for k, v := range map[string]string{
		"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "", "KXZONE": "", "DOCKER_CONFIG": "/nonexistent", // no test leaves this machine
	} {
		_ = os.Setenv(k, v) // fails for bad names only
	}
	code := m.Run()
	_ = os.RemoveAll(filled())
	_ = os.RemoveAll(filepath.Dir(etcdCerts()))
	os.Exit(code)
}

// same compares two texts.
func same(t testing.TB, what, want, got string) {
	t.Helper()
	if want != got {
		t.Errorf("%s differs (-want +got):\n%s", what, cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
	}
}

// TestScenarios takes rows of the deployment matrix through their lives.
func TestScenarios(t *testing.T) {
	live(t, racetest.Few("row3", "row1", "row2", "row7", "row15", "row21", "row22", "row22-kubexm", "row1-dual", "row9-ipv6", "row15-ipv6", "row21-ipv6",
		"etcd-elsewhere", "registry", "harbor", "calico", "cilium", "crio", "crio-registry", "docker", "docker-registry")...)
}

// TestFaultsScenarios does so with all others.
func TestFaultsScenarios(t *testing.T) {
	live(t, slices.DeleteFunc(all(), func(name string) bool { return there(filepath.Join("testdata/scenarios", name)) })...)
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func live(t *testing.T, names ...string) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := resourcetest.New()
			defer u.Close()
			bubble(t, func(t *testing.T) { scenario(t, name, newWorld(t, row(t, name), u.Mirrors())) })
		})
	}
}

func scenario(t *testing.T, name string, w *world) {
	for _, h := range w.hosts {
		for _, table := range []string{"iptables", "ip6tables"} {
			h.AddRules(table, "-A INPUT -p tcp --dport 22 -j ACCEPT") // of others
		}
	}
	before := w.snapshot()
	a := w.attempt(t.Context())
	graph, err := a.App.Plan(a.ctx, a.Request, a.Observer, "create")
	w.must(err)
	var text strings.Builder
	w.must(graph.WriteText(&text))
	if dir := filepath.Join("testdata/scenarios", name); there(dir) {
		golden.File(t, filepath.Join(dir, "plan.txt"), text.String())
	}

	a = w.attempt(t.Context())
	a.DryRun = true
	res, err := a.create()
	if err != nil || res.Summary.Pending == 0 || res.Summary.OK+res.Summary.Pending != res.Summary.Total {
		t.Fatalf("dry run: %+v, %v", res, err)
	}
	same(t, "hosts after a dry run", before, w.snapshot())

	res, err = w.attempt(t.Context()).create()
	if err != nil {
		t.Fatal(err)
	}
	if res.Summary.Changed == 0 || res.Summary.OK+res.Summary.Changed != res.Summary.Total {
		t.Errorf("first run: %+v", res.Summary)
	}
	after, objects := w.snapshot(), w.objects()

	a = w.attempt(t.Context())
	res, err = a.create()
	if err != nil || res.Summary.OK != res.Summary.Total {
		t.Errorf("second run: %+v, %v", res, err)
		for _, ev := range a.Events {
			if ev.Status == engine.Changed {
				t.Errorf("changed %s:\n%s", ev.Node, ev.Diff)
			}
		}
	}
	same(t, "hosts after the second run", after, w.snapshot())
	same(t, "objects after the second run", objects, w.objects())

	w.live()
	for range 2 { // the second time there is nothing to do
		a = w.attempt(t.Context())
		_, err = a.delete()
		w.must(err)
		same(t, "hosts after delete", before, w.snapshot())
	}

	w.wipe(a.Notices)
	if _, err = w.attempt(t.Context()).create(); err != nil {
		t.Fatalf("create after delete: %v", err)
	}
	same(t, "objects of the new cluster", objects, w.objects())
}

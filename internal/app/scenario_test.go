package app_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
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
)

// rows are the scenarios: a configuration and the plan that it leads to.
func rows(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/scenarios/" + pattern + "/cluster.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for i, f := range files {
		files[i] = filepath.Base(filepath.Dir(f))
	}
	return files
}

// row reads the configuration of a scenario.
func row(t testing.TB, name string) string {
	t.Helper()
	text, err := read(filepath.Join("testdata/scenarios", name, "cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func read(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	return bytes.ReplaceAll(text, []byte("ETCD/"), []byte(etcdCerts()+"/")), err
}

// filled returns a store that has everything that the scenarios need.
var filled = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "kubexm-test-store-")
	if err != nil {
		panic(err)
	}
	u := resourcetest.New()
	defer u.Close()
	store, err := resource.Open(dir, source.Config{Mirrors: u.Sources()})
	if err != nil {
		panic(err)
	}
	files, _ := filepath.Glob("testdata/scenarios/*/cluster.yaml") // an empty store shows soon enough
	for _, f := range files {
		if err := fill(store, f); err != nil {
			panic(err)
		}
	}
	return dir
})

func fill(store *resource.Store, file string) error {
	text, err := read(file)
	if err != nil {
		return err
	}
	conf, _, err := config.Parse(file, text)
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

// basic are the rows with one master, on which faults are tried at every moment; what
// further masters add is tried at some.
const basic = "row[123]"

// TestScenarios takes each row of the deployment matrix through its life, with the race
// detector one of one master.
func TestScenarios(t *testing.T) {
	for _, name := range some("row3", rows(t, "*")...) {
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
		h.AddRules("iptables", "-A INPUT -p tcp --dport 22 -j ACCEPT") // of others
	}
	before := w.snapshot()
	a := w.attempt(t.Context())
	graph, err := a.App.Plan(a.ctx, a.Request, a.Observer, "create")
	w.must(err)
	var text strings.Builder
	w.must(graph.WriteText(&text))
	golden.File(t, filepath.Join("testdata/scenarios", name, "plan.txt"), text.String())

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

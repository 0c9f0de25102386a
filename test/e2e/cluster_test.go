//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/test/testbed"
	"github.com/kubexm/kubexm/test/testbed/build"
)

// cluster is a configuration with the work directory that kubexm uses for it.
type cluster struct {
	name, file, work string
	row              int
	kubernetes       string   // version or minor version; empty: the newest
	containerd       string   // the same
	members          int      // of etcd
	registries       int      // private ones
	zones            bool     // it has the standard configuration: labels, taints, the zone outside
	env              []string // for kubexm, on top of the tests' own
	isolated         bool     // kubexm runs where the testbed is isolated
	renamed          bool     // the endpoint may have another name or port
	built            bool     // it is installed from what was built, rather than created
	also             func()   // looks what else holds of it; nil: nothing
	made             *outcome // what made it
	sent             int64    // bytes, meanwhile, to its machines
	away             []string // for how long the API server was away, by misfortune
}

// edit changes a configuration.
type edit func(spec map[string]any)

// set sets a field of spec; parts of the path that are missing are made.
func set(path string, value any) edit {
	return func(spec map[string]any) {
		parts := strings.Split(path, ".")
		for _, p := range parts[:len(parts)-1] {
			next, ok := spec[p].(map[string]any)
			if !ok {
				next = map[string]any{}
				spec[p] = next
			}
			spec = next
		}
		spec[parts[len(parts)-1]] = value
	}
}

// host sets a field of the i-th host.
func host(i int, path string, value any) edit {
	return func(spec map[string]any) { set(path, value)(spec["hosts"].([]any)[i].(map[string]any)) }
}

// impatient gives up on a silent network soon.
var impatient = set("global.timeouts", map[string]any{"connect": "4s", "keepAlive": "4s"})

// where is the choice of what a cluster shares with others.
type where struct {
	name       string // of the cluster; empty: e2e
	work       string // directory; empty: the one that most clusters share, with all that was downloaded
	kubernetes string // version; empty: the newest
}

// newCluster writes a configuration for a row of the deployment matrix.
func newCluster(t *testing.T, row int, w where, edits ...edit) *cluster {
	t.Helper()
	c := &cluster{name: w.name, work: w.work, row: row, kubernetes: w.kubernetes}
	if c.name == "" {
		c.name = "e2e"
	}
	if c.work == "" {
		c.work = filepath.Join(the.dir, "work")
	}
	var text bytes.Buffer
	err := the.bed.Config(&text, the.builder, testbed.ConfigOptions{Name: c.name, Nodes: len(the.nodes), Row: row, Kubernetes: w.kubernetes, Runtime: another(t)})
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(text.Bytes(), &config); err != nil {
		t.Fatal(err)
	}
	for _, e := range edits {
		e(config["spec"].(map[string]any))
	}
	for _, h := range config["spec"].(map[string]any)["hosts"].([]any) {
		if slices.Contains(h.(map[string]any)["roles"].([]any), any("etcd")) {
			c.members++
		}
		if slices.Contains(h.(map[string]any)["roles"].([]any), any("registry")) {
			c.registries++
		}
	}
	out, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(the.dir, fmt.Sprintf("row%d-*.yaml", row)) // 0600
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(out); err != nil {
		t.Fatal(err)
	}
	c.file = f.Name()
	return c
}

// dir is the cluster's own directory.
func (c *cluster) dir(parts ...string) string {
	return filepath.Join(append([]string{c.work, c.name}, parts...)...)
}

// kubeconfig is the administrator's.
func (c *cluster) kubeconfig() string { return c.dir("admin.conf") }

// version is that of Kubernetes.
func (c *cluster) version(t *testing.T) string {
	t.Helper()
	k, err := build.Find(the.table, "kubernetes@"+c.kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	return k.Version
}

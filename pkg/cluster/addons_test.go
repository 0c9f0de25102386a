package cluster_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
)

const pods = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {initContainers: [{image: busybox}], containers: [{image: "localhost/x:1"}, {image: "example.com:5000/x/y"}, {image: "other/y:2"}, {image: "docker.io/busybox"}, {image: "index.docker.io/other/y:2"}]}}
- apiVersion: batch/v1
  kind: CronJob
  metadata: {name: b}
  spec: {jobTemplate: {spec: {template: {spec: {containers: [{image: "busybox"}, {image: "example.com/z@sha256:00"}]}}}}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {image: nothing}}
`

// TestAddons reads manifests from files, from a directory and from the configuration itself, and finds the images that they name.
func TestAddons(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yaml": "{apiVersion: v1, kind: B, metadata: {name: b}}", "sub/a.json": `{"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}}`, "README.md": "# nothing"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inline := "    inline: |\n      " + strings.ReplaceAll(strings.TrimSuffix(pods, "\n"), "\n", "\n      ") + "\n"
	c := clustertest.New(t, "  addons:\n  - {name: files, namespace: shop, files: ["+dir+"], timeout: 1m}\n  - name: inline\n"+inline+"  - name: left\n    preload: false\n"+inline, nil)
	all := c.Addons()
	if err := c.Err(); err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	if text := string(all[0].Objects); !strings.Contains(text, "kind: B") || strings.Index(text, "kind: B") > strings.Index(text, `"A"`) || strings.Contains(text, "nothing") ||
		all[0].Namespace != "shop" || all[0].Timeout != time.Minute || all[0].Images != nil {
		t.Errorf("%+v", all[0])
	}
	want := []string{"localhost/x:1", "example.com:5000/x/y:latest", "docker.io/other/y:2", "docker.io/library/busybox:latest"}
	if !slices.Equal(all[1].Images, want) || all[2].Images != nil {
		t.Errorf("images %q, %q", all[1].Images, all[2].Images)
	}
	for _, n := range c.Nodes() {
		if has := c.Images(n); !slices.Equal(has[len(has)-len(want):], want) {
			t.Errorf("%s has %q", n, has)
		}
	}
	bad := cluster.New(&v1alpha1.Cluster{Spec: v1alpha1.Spec{Addons: []v1alpha1.Addon{{Name: "bad", Inline: "kind: A", Preload: new(bool)}}}}, "", nil, nil)
	if bad.Addons(); bad.Err() == nil || !strings.Contains(bad.Err().Error(), "addon bad: inline: reading document 1: ") {
		t.Errorf("%v", bad.Err())
	}
}

// TestKnownAddon makes an addon of a name alone, and leaves one of that name alone which has a source of its own.
func TestKnownAddon(t *testing.T) {
	c := clustertest.New(t, "  addons:\n  - {name: metrics-server, values: {replicas: 2}}\n", nil)
	a := c.Spec.Addons[0]
	if a.Type != v1alpha1.AddonHelm || a.Chart != "metrics-server" || a.Repository == "" || a.Version == "" || a.Namespace != "kube-system" {
		t.Errorf("%+v", a)
	}
	if all := c.Fetched(); len(all) != 1 || all[0].String() != "chart "+a.Repository+"/metrics-server "+a.Version {
		t.Errorf("%v", all)
	}
	for _, own := range []string{"inline: '{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}'", "type: helm, chart: ./mine", "type: helm, chart: metrics-server, repository: https://example.com, version: 1.0.0"} {
		c := clustertest.New(t, "  addons:\n  - {name: metrics-server, "+own+"}\n", nil)
		if a := c.Spec.Addons[0]; a.Namespace != "" || strings.Contains(a.Repository, "kubernetes-sigs") {
			t.Errorf("%s: %+v", own, a)
		}
	}
}

// TestFetched names what is to be fetched for addons.
func TestFetched(t *testing.T) {
	c := cluster.New(&v1alpha1.Cluster{Spec: v1alpha1.Spec{Addons: []v1alpha1.Addon{
		{Name: "a", Files: []string{"https://example.com/install.yaml", "./mine.yaml"}},
		{Name: "b", Type: v1alpha1.AddonHelm, Chart: "web", Repository: "oci://registry.example.com/charts", Version: "1.0.0"},
	}}}, "", nil, nil)
	var names []string
	for _, a := range c.Fetched() {
		names = append(names, a.String())
	}
	if want := []string{"manifests https://example.com/install.yaml", "chart oci://registry.example.com/charts/web 1.0.0"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}

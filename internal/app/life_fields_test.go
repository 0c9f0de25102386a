package app_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// refusals are changes that no cluster that runs can follow.
var refusals = []change{
	{set: `{kubernetes: {type: kubexm}, etcd: {type: kubexm}}`, on: func(c string) bool { return kubeadmPods(c) && ownEtcd(c) }},
	{set: `kubernetes: {type: kubeadm}`, on: func(c string) bool { return !kubeadmPods(c) }},
	{set: `kubernetes: {version: v1.35.8}`},
	{set: `kubernetes: {dnsDomain: example.local}`},
	{set: `kubernetes: {nodeCidrMaskSize: 25}`},
	{set: `kubernetes: {nodeCidrMaskSizeIPv6: 60}`, on: dual},
	{set: `etcd: {type: kubexm}`, on: kubeadmEtcd},
	{set: `etcd: {version: v3.5.33}`, on: ownEtcd},
	{set: `etcd: {dataDir: /srv/etcd}`, on: ownEtcd},
	{set: `runtime: {dataRoot: /srv/containers}`},
	{set: `network: {podCIDR: 10.96.0.0/16}`, on: func(c string) bool { return !dual(c) }},
	{set: `network: {serviceCIDR: 10.97.0.0/16}`, on: func(c string) bool { return !dual(c) }},
	{set: `network: {podCIDR: "10.233.64.0/18,fd69:10:96::/48"}`, on: dual},
	{set: `network: {flannel: {backend: host-gw}}`},
	{set: `network: {plugin: calico}`, on: func(c string) bool { return !calico(c) && !cilium(c) }},
	{set: `network: {calico: {blockSize: 27}}`, on: calico},
	{set: `kubernetes: {proxyMode: none}`, on: cilium},
	{set: `registry: {type: harbor}`, on: func(c string) bool { return private(c) && !harbor(c) }},
	{set: `registry: {dataDir: /srv/images}`, on: private},
}

// rejoins are changes for which a host leaves its cluster, and joins it again.
var rejoins = []change{
	{set: `hosts: [{name: node2, internalAddress: 10.0.0.99}]`},
	{set: `hosts: [{name: node2, roles: [master, etcd]}]`, on: func(c string) bool { return ownEtcd(c) && !secondMaster(c) }},
}

// TestRefusals makes changes that are refused: nothing is touched.
func TestRefusals(t *testing.T) {
	for _, name := range []string{"row1", "row9", "registry", "row1-dual"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, name), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				w.refuses(row(t, name))
			})
		})
	}
}

func (w *world) refuses(text string) {
	w.Helper()
	before := w.snapshot()
	for _, e := range refusals {
		if e.on != nil && !e.on(text) {
			continue
		}
		w.configure(edited(w, text, e.set))
		a := w.attempt(w.Context())
		if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), "cannot change once the cluster exists") {
			w.Errorf("%s: %v", e.set, err)
		}
	}
	same(w, "hosts after refusals", before, w.snapshot())
	w.configure(text)
}

// TestEveryFieldIsChanged finds fields of the configuration that no test changes.
func TestEveryFieldIsChanged(t *testing.T) {
	changed := map[string]bool{}
	keys := regexp.MustCompile(`\[[^]]*\]`)
	for _, name := range []string{"row2", "row7", "row16", "row22", "registry", "harbor", "calico", "cilium", "crio", "docker", "row1-dual"} {
		was := row(t, name)
		all := slices.Concat(slices.Collect(maps.Values(edits)), refusals, rejoins)
		if dual(was) { // edits move hosts by their addresses of IPv4 alone
			all = refusals
		}
		for _, e := range all {
			if e.on != nil && !e.on(was) {
				continue
			}
			var texts [2][]byte
			for i, text := range []string{was, edited(t, was, e.set)} {
				conf, _, err := config.Parse("cluster.yaml", []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				if texts[i], err = config.Resolved(conf, []byte("key")); err != nil {
					t.Fatal(err)
				}
			}
			all, err := config.Changes(texts[0], texts[1])
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range all {
				changed[keys.ReplaceAllString(c.Field, "")] = true
			}
		}
	}
	var schema map[string]any
	text, err := os.ReadFile("../../pkg/config/cluster.schema.json")
	if err = errors.Join(err, json.Unmarshal(text, &schema)); err != nil {
		t.Fatal(err)
	}
	spec, _, _ := unstructured.NestedMap(schema, "properties", "spec")
	eachField("spec", spec, func(field string) {
		for at := field; at != "spec"; at = at[:strings.LastIndex(at, ".")] {
			if changed[at] { // a list is compared as a whole
				return
			}
		}
		t.Errorf("no test changes %s", field)
	})
}

// eachField calls f for all fields below one that a cluster that runs can be told to change.
func eachField(at string, schema map[string]any, f func(field string)) {
	for _, in := range []string{"items", "additionalProperties"} {
		if below, _, _ := unstructured.NestedMap(schema, in); below["properties"] != nil {
			schema = below
		}
	}
	fields, _, _ := unstructured.NestedMap(schema, "properties")
	for name := range fields {
		below := fields[name].(map[string]any)
		text, _ := below["description"].(string)
		values, _ := below["enum"].([]any)
		if below["x-change"] != "none" && !strings.HasSuffix(text, "Not supported yet.") && len(values) != 1 {
			eachField(at+"."+name, below, f)
		}
	}
	if fields == nil {
		f(at)
	}
}

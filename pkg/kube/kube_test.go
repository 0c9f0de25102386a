package kube

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// within bounds what a test waits for. It is long: no test ends by it.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func read(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	objs, err := ReadObjects([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objs
}

func readFile(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, string(data))
}

func apply(t *testing.T, c *Client, objs ...*unstructured.Unstructured) {
	t.Helper()
	if err := c.Apply(within(t), objs...); err != nil {
		t.Fatal(err)
	}
}

func difference(t *testing.T, c *Client, objs ...*unstructured.Unstructured) string {
	t.Helper()
	text, err := c.Diff(within(t), objs...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func live(t *testing.T, c *Client, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	got, err := c.Live(within(t), obj)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestJobsAreMadeAnew changes what a Job runs, which the server refuses.
func TestJobsAreMadeAnew(t *testing.T) {
	onEach(t, func(t *testing.T, c *Client) {
		const job = `
apiVersion: batch/v1
kind: Job
metadata: {name: kx-anew, namespace: default}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: one, image: "example.com/one:v1"}]}}}
`
		applySet(t, c, "jobs", job)
		applySet(t, c, "jobs", strings.ReplaceAll(job, ":v1", ":v2"), "image: example.com/one:v1", "image: example.com/one:v2")
		is, err := c.Live(within(t), read(t, job)[0])
		if err != nil || is == nil || is.GetGeneration() != 1 {
			t.Errorf("%v, %v", is, err)
		}
		applySet(t, c, "jobs", "", "- Job default/kx-anew")
	})
}

// remove deletes what a test made on a server that other tests use too.
func remove(t *testing.T, c *Client, objs ...*unstructured.Unstructured) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Delete(ctx, objs...); err != nil {
			t.Error(err)
		}
	})
}

func TestApplyThenNothingToDo(t *testing.T) {
	onEach(t, func(t *testing.T, c *Client) {
		objs := readFile(t, "testdata/objects.yaml")
		text := difference(t, c, objs...)
		if strings.Contains(strings.ReplaceAll(text, "\n---", ""), "\n-") || strings.Count(text, "+kind: ") != len(objs) {
			t.Errorf("diff before:\n%s", text)
		}
		apply(t, c, objs...)
		if text := difference(t, c, objs...); text != "" {
			t.Errorf("applied, yet there is a difference:\n%s", text)
		}
		var before []string
		for _, obj := range objs {
			before = append(before, live(t, c, obj).GetResourceVersion())
		}
		apply(t, c, objs...)
		for i, obj := range objs {
			kind := obj.GetKind() // controllers write the status of some
			if after := live(t, c, obj).GetResourceVersion(); after != before[i] && kind != "Deployment" && kind != "DaemonSet" && kind != "PodDisruptionBudget" {
				t.Errorf("applying %s again wrote it", title(obj))
			}
		}
		if err := c.Delete(within(t), objs...); err != nil {
			t.Fatal(err)
		}
		for _, obj := range objs {
			if live(t, c, obj) != nil {
				t.Errorf("%s is still there", title(obj))
			}
		}
		if err := c.Delete(within(t), objs...); err != nil {
			t.Errorf("deleting what is not there: %v", err)
		}
	})
}

func TestChangesAndDriftAreSeen(t *testing.T) {
	onEach(t, func(t *testing.T, c *Client) {
		const first = `{apiVersion: v1, kind: ConfigMap, metadata: {name: drift, namespace: default, labels: {a: "1", b: "2"}}, data: {x: one, "y": two}}`
		const second = `{apiVersion: v1, kind: ConfigMap, metadata: {name: drift, namespace: default, labels: {a: "1"}}, data: {x: changed}}`
		apply(t, c, read(t, first)...)
		remove(t, c, read(t, first)...)

		// Somebody adds a field of his own, and changes one of ours.
		maps := c.Typed.CoreV1().ConfigMaps("default")
		theirs := []byte(`{"data": {"x": "theirs", "z": "theirs"}}`)
		if _, err := maps.Patch(within(t), "drift", types.MergePatchType, theirs, metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
			t.Fatal(err)
		}
		text := difference(t, c, read(t, first)...)
		if !strings.Contains(text, "-  x: theirs\n+  x: one\n") || strings.Contains(text, "-  z") {
			t.Errorf("drift:\n%s", text)
		}
		text = difference(t, c, read(t, second)...)
		if !strings.Contains(text, "-  x: theirs\n-  \"y\": two\n+  x: changed\n") || !strings.Contains(text, "-    b: \"2\"\n") {
			t.Errorf("change:\n%s", text)
		}
		apply(t, c, read(t, second)...)
		if text := difference(t, c, read(t, second)...); text != "" {
			t.Errorf("applied, yet there is a difference:\n%s", text)
		}
		data, _, _ := unstructured.NestedStringMap(live(t, c, read(t, second)[0]).Object, "data")
		if d := cmp.Diff(map[string]string{"x": "changed", "z": "theirs"}, data); d != "" {
			t.Error(d)
		}
	})
}

func TestDiffText(t *testing.T) {
	c, _ := inMemory(t, kubetest.New())
	apply(t, c, readFile(t, "testdata/before.yaml")...)
	golden.Equal(t, difference(t, c, readFile(t, "testdata/after.yaml")...))
}

func TestMarks(t *testing.T) {
	onEach(t, func(t *testing.T, c *Client) {
		ctx := within(t)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "marked", Labels: map[string]string{"theirs": "yes", "both": "old"}, Annotations: map[string]string{"theirs": "yes"}}}
		node.Spec.Taints = []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}
		if _, err := c.Typed.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		remove(t, c, object("v1", "Node", "marked"))
		noSchedule := func(keys ...string) (taints []corev1.Taint) {
			for _, key := range keys {
				taints = append(taints, corev1.Taint{Key: key, Value: "v", Effect: corev1.TaintEffectNoSchedule})
			}
			return taints
		}
		for _, step := range []struct {
			marks       Marks
			labels      map[string]string
			annotations map[string]string
			taints      []string
		}{
			{
				Marks{map[string]string{"both": "new", "role/worker": ""}, map[string]string{"example.com/rack": "7", "both": "a b"}, noSchedule("one", "two")},
				map[string]string{"theirs": "yes", "both": "new", "role/worker": ""},
				map[string]string{"theirs": "yes", "example.com/rack": "7", "both": "a b", marked: "both role/worker @both @example.com/rack one:NoSchedule two:NoSchedule"},
				[]string{"one", "theirs", "two"},
			},
			{
				Marks{map[string]string{"role/worker": "x"}, map[string]string{"both": "c"}, noSchedule("two")},
				map[string]string{"theirs": "yes", "role/worker": "x"},
				map[string]string{"theirs": "yes", "both": "c", marked: "role/worker @both two:NoSchedule"},
				[]string{"theirs", "two"},
			},
			{Marks{}, map[string]string{"theirs": "yes"}, map[string]string{"theirs": "yes", marked: ""}, []string{"theirs"}},
		} {
			for _, wantText := range []bool{true, false} {
				text, err := c.DiffMarks(ctx, "marked", step.marks)
				if err != nil || (text != "") != wantText {
					t.Errorf("diff: %v %s", err, text)
				}
				if err := c.MarkNode(ctx, "marked", step.marks); err != nil {
					t.Fatal(err)
				}
			}
			got, err := c.Typed.CoreV1().Nodes().Get(ctx, "marked", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(step.labels, got.Labels); d != "" {
				t.Errorf("labels: %s", d)
			}
			maps.DeleteFunc(got.Annotations, func(key, _ string) bool { return strings.Contains(key, "node.alpha.kubernetes.io") }) // the node controller's
			if d := cmp.Diff(step.annotations, got.Annotations); d != "" {
				t.Errorf("annotations: %s", d)
			}
			taints := map[string]bool{}
			for _, taint := range got.Spec.Taints {
				taints[taint.Key] = !strings.HasPrefix(taint.Key, "node.kubernetes.io/") // the node controller's
			}
			for _, key := range step.taints {
				if !taints[key] {
					t.Errorf("taint %s is missing: %v", key, got.Spec.Taints)
				}
				delete(taints, key)
			}
			for key, unwanted := range taints {
				if unwanted {
					t.Errorf("taint %s is still there", key)
				}
			}
		}
	})
}

func TestMistakes(t *testing.T) {
	onEach(t, func(t *testing.T, c *Client) {
		for text, want := range map[string]string{
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: default}, dta: {}}":      "applying ConfigMap default/x: failed to create typed patch object (default/x; /v1, Kind=ConfigMap): .dta: field not declared in schema",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: none}, data: {}}":        `applying ConfigMap none/x: namespaces "none" not found`,
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: default}, data: {a: 1}}": "applying ConfigMap default/x: failed to create typed patch object (default/x; /v1, Kind=ConfigMap): .data.a: expected string",
		} {
			err := c.Apply(within(t), read(t, text)...)
			if err == nil || !strings.HasPrefix(err.Error(), want) || fault.IsTransient(err) {
				t.Errorf("got  %v (transient: %v)\nwant %s", err, fault.IsTransient(err), want)
			}
		}
	})
}

func TestReadObjects(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":       {"", ""},
		"comments only": {"# a\n---\n---\n# b\n", ""},
		"several":       {"---\napiVersion: v1\nkind: A\nmetadata: {name: a}\n---\n{\"apiVersion\": \"v1\", \"kind\": \"B\", \"metadata\": {\"name\": \"b\", \"namespace\": \"n\"}}", "A a, B n/b"},
		"a list":        {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A, metadata: {name: a}}\n- {apiVersion: v1, kind: B, metadata: {name: b}}", "A a, B b"},
		"whole numbers": {"{apiVersion: v1, kind: A, metadata: {name: a}, spec: {n: 9007199254740993}}", "A a"},
		"no name":       {"{apiVersion: v1, kind: A}\n", `reading document 1: an object needs apiVersion, kind and metadata.name; it has "v1", "A", ""`},
		"no kind":       {"{apiVersion: v1, kind: A, metadata: {name: a}}\n---\n{apiVersion: v1}", "reading document 2: Object 'Kind' is missing in '{\"apiVersion\":\"v1\"}'"},
		"a field twice": {"apiVersion: v1\nkind: A\nkind: B\n", "reading document 1: yaml: unmarshal errors:\n  line 3: key \"kind\" already set in map"},
		"not YAML":      {"a: b: c", "reading document 1: yaml: mapping values are not allowed in this context"},
		"not an object": {"- a\n", "reading document 1: json: cannot unmarshal array"},
	} {
		t.Run(name, func(t *testing.T) {
			objs, err := ReadObjects([]byte(tt.text))
			var titles []string
			for _, obj := range objs {
				titles = append(titles, title(obj))
			}
			got := strings.Join(titles, ", ")
			if err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestInNamespace puts what has a namespace, and names none, into one.
func TestInNamespace(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *kubetest.Server, c *Client, _ Access) {
		for name, tt := range map[string]struct{ text, want string }{
			"kinds that are known": {
				"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: other}}\n---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: c}}",
				"Namespace shop, ConfigMap shop/a, ConfigMap other/b, ClusterRole c",
			},
			"kinds that are defined": {
				`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: wides.example.com}, spec: {group: example.com, scope: Cluster, names: {kind: Wide}}}
---
{apiVersion: example.com/v1, kind: Wide, metadata: {name: a}}
---
{apiVersion: example.com/v1, kind: Narrow, metadata: {name: b}}`,
				"Namespace shop, CustomResourceDefinition wides.example.com, Wide a, Narrow shop/b",
			},
			"a namespace that is there": {"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: shop}}", "ConfigMap shop/a, Namespace shop"},
		} {
			objects, err := ReadObjects([]byte(tt.text))
			if err == nil {
				objects, err = c.InNamespace(t.Context(), "shop", objects)
			}
			var titles []string
			for _, o := range objects {
				titles = append(titles, title(o))
			}
			if got := strings.Join(titles, ", "); err != nil || got != tt.want {
				t.Errorf("%s: got %s, %v", name, got, err)
			}
		}
	})
}

// TestMark gives a label to what has only a name.
func TestMark(t *testing.T) {
	objects, err := ReadObjects([]byte("{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: b, labels: {of: theirs}}}\n---\n" +
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: a}, data: {}}\n---\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: d, namespace: a}}"))
	if err != nil {
		t.Fatal(err)
	}
	Mark(objects)
	var got []string
	for _, o := range objects {
		got = append(got, fmt.Sprint(o.GetName(), o.GetLabels()))
	}
	if want := "amap[app.kubernetes.io/managed-by:kubexm] bmap[of:theirs] cmap[] dmap[app.kubernetes.io/managed-by:kubexm]"; strings.Join(got, " ") != want {
		t.Errorf("got %s", got)
	}
}

package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

var shop = map[string]string{
	"Chart.yaml":           "{apiVersion: v2, name: shop, version: 1.0.0, kubeVersion: '>= 1.33.0-0'}\n",
	"values.yaml":          "replicas: 1\nimage: {name: shop, tag: v1}\nsize: 10000000\n",
	"crds/orders.yaml":     "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: orders.example.com}\n",
	"templates/_names.tpl": `{{ define "image" }}{{ .Values.image.name }}:{{ .Values.image.tag }}{{ end }}`,
	"templates/NOTES.txt":  "Thank you for {{ .Release.Name }}.",
	"templates/web.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}
spec: {replicas: {{ .Values.replicas }}, template: {spec: {containers: [{name: web, image: "{{ include "image" . }}", args: ["{{ .Capabilities.KubeVersion }}", "{{ int .Values.size }}"]}]}}}
---
{apiVersion: v1, kind: Service, metadata: {name: {{ .Release.Name }}}}
`,
	"templates/hooks.yaml": `apiVersion: batch/v1
kind: Job
metadata: {name: second, annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-weight: "5"}}
spec: {ttlSecondsAfterFinished: 60, backoffLimit: 3}
---
apiVersion: batch/v1
kind: Job
metadata: {name: first, annotations: {helm.sh/hook: pre-install, helm.sh/hook-weight: "-1"}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: last, annotations: {helm.sh/hook: "post-install,post-upgrade"}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, annotations: {helm.sh/hook: pre-upgrade}}
---
apiVersion: v1
kind: Pod
metadata: {name: try, annotations: {helm.sh/hook: test}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: farewell, annotations: {helm.sh/hook: pre-delete}}
`,
}

func write(t *testing.T, with map[string]string) string {
	t.Helper()
	files := maps.Clone(shop)
	maps.Copy(files, with)
	dir := filepath.Join(t.TempDir(), "shop")
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// pack makes an archive of a directory, as it is published.
func pack(t *testing.T, dir string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	archive := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(shop)) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = archive.WriteHeader(&tar.Header{Name: "shop/" + name, Mode: 0o644, Size: int64(len(text))})
		}
		if err == nil {
			_, err = archive.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "shop-1.0.0.tgz")
	for _, err := range []error{archive.Close(), z.Close(), os.WriteFile(file, b.Bytes(), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// TestRender renders a directory and an archive: definitions first, the last values over the first and all over the chart's, hooks of installations by when they run and their weights, and Jobs that stay.
func TestRender(t *testing.T) {
	r := Release{Name: "spring", Namespace: "sales", Kubernetes: "v1.37.1", Values: Merge(
		map[string]any{"image": map[string]any{"tag": "v2"}, "replicas": 2}, map[string]any{"replicas": float64(3)},
	)}
	dir := write(t, nil)
	for _, file := range []string{dir, pack(t, dir)} {
		got, err := Render(t.Context(), file, r)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		texts := map[string]string{}
		for _, p := range got {
			names = append(names, p.Name)
			texts[p.Name] = string(p.Objects)
		}
		if want := []string{"before.-1", "before.5", "", "after"}; !slices.Equal(names, want) {
			t.Fatalf("parts %q", names)
		}
		text := texts[""]
		for _, want := range []string{"CustomResourceDefinition", "kind: Service", "kind: Deployment", "name: spring, namespace: sales", "replicas: 3", `image: "shop:v2"`, `["v1.37.1", "10000000"]`} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
		if strings.Index(text, "CustomResourceDefinition") > strings.Index(text, "kind: Service") || strings.Contains(text, "Thank you") {
			t.Error(text)
		}
		if !strings.Contains(texts["before.-1"], "name: first") || !strings.Contains(texts["before.5"], "name: second") || !strings.Contains(texts["after"], "name: last") ||
			strings.Contains(texts["before.5"], "ttl") || !strings.Contains(texts["before.5"], "backoffLimit: 3") {
			t.Errorf("%q", texts)
		}
		if all := strings.Join(slices.Collect(maps.Values(texts)), ""); strings.Contains(all, "name: try") || strings.Contains(all, "farewell") || strings.Contains(all, "migrate") {
			t.Error(all)
		}
	}
}

// TestRenderRefuses says why a chart is of no use.
func TestRenderRefuses(t *testing.T) {
	for _, c := range []struct {
		with map[string]string
		want string
		next string
	}{
		{map[string]string{"Chart.yaml": "{apiVersion: v2, name: shop, version: 1.0.0, type: library}"}, "it is a library for other charts", ""},
		{map[string]string{"Chart.yaml": "{apiVersion: v2, name: shop, version: 1.0.0, kubeVersion: '< 1.30'}"}, "it is for Kubernetes < 1.30, and not for v1.37.1", ""},
		{map[string]string{"Chart.yaml": "{apiVersion: v2, name: shop, version: 1.0.0, dependencies: [{name: db, version: 1.0.0, repository: 'https://example.com'}]}"}, "chart db, on which it depends, is not in", "helm dependency build"},
		{map[string]string{"templates/secret.yaml": `{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {password: "{{ randAlphaNum 20 }}"}}`}, "shop/templates/secret.yaml: what is made at random", "set values"},
		{map[string]string{"templates/time.yaml": `{apiVersion: v1, kind: ConfigMap, metadata: {name: s}, data: {at: "{{ now | date "2006" }}"}}`}, "shop/templates/time.yaml: what is made at random, or from the time", ""},
		{map[string]string{"templates/web.yaml": `{{ required "size is needed" .Values.nothing }}`}, "size is needed", ""},
		{map[string]string{"values.schema.json": `{"properties": {"replicas": {"type": "string"}}}`}, "replicas", ""},
		{map[string]string{"Chart.yaml": "x"}, "Chart.yaml", ""},
	} {
		_, err := Render(t.Context(), write(t, c.with), Release{Name: "shop", Namespace: "default", Kubernetes: "v1.37.1"})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.Advice(err), c.next) {
			t.Errorf("%v: %v, %q", c.with, err, fault.Advice(err))
		}
	}
	if _, err := Render(t.Context(), filepath.Join(t.TempDir(), "nothing"), Release{Name: "shop", Kubernetes: "v1.37.1"}); err == nil {
		t.Error("a chart that is not there was rendered")
	}
}

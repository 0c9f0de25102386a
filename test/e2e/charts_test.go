//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// warehouse is what a chart of two versions renders: a Deployment, and jobs before and after it.
const warehouse = `apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}, labels: {version: {{ .Chart.Version }}}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 1
      containers: [{name: store, image: "busybox:1.37.0", imagePullPolicy: Never, command: [/bin/sh, -c, exec sleep infinity]}]
{{- range $when := list "before" "after" }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $when }}
  annotations: {helm.sh/hook: "{{ if eq $when "before" }}pre{{ else }}post{{ end }}-install,{{ if eq $when "before" }}pre{{ else }}post{{ end }}-upgrade"}
spec:
  template:
    spec:
      restartPolicy: Never
      tolerations: [{operator: Exists}]
      containers: [{name: job, image: "busybox:1.37.0", imagePullPolicy: Never, command: [/bin/sh, -c, "echo {{ $.Chart.Version }}"]}]
{{- end }}
`

// repository serves a Helm repository with that chart, a registry of images that has it, too, and manifests.
func repository(t *testing.T) string {
	t.Helper()
	files, index := map[string][]byte{"/install.yaml": []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: bought}}")}, "entries:\n  store:\n"
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	for _, version := range []string{"v1.0.0", "v1.1.0"} {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		archive := tar.NewWriter(z)
		for name, text := range map[string]string{"store/Chart.yaml": "{apiVersion: v2, name: store, version: " + version + "}", "store/values.yaml": "replicas: 1", "store/templates/all.yaml": warehouse} {
			must(t, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))
			must(t, second(archive.Write([]byte(text))))
		}
		must(t, archive.Close())
		must(t, z.Close())
		files["/charts/store-"+version+".tgz"] = b.Bytes()
		publish(t, images, "/v2/charts/store/", version, b.Bytes())
		index += fmt.Sprintf("  - {version: %s, digest: %x, urls: [charts/store-%s.tgz]}\n", version, sha256.Sum256(b.Bytes()), version)
	}
	files["/index.yaml"] = []byte(index)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v2/") {
			images.ServeHTTP(w, r)
			return
		}
		text, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(text)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// publish puts a chart into a registry of images, as 'helm push' does.
func publish(t *testing.T, images http.Handler, repo, tag string, chart []byte) {
	t.Helper()
	put := func(method, path, kind string, body []byte) ocispec.Descriptor {
		w, d := httptest.NewRecorder(), ocispec.Descriptor{MediaType: kind, Digest: godigest.FromBytes(body), Size: int64(len(body))}
		r := httptest.NewRequest(method, repo+strings.ReplaceAll(path, "DIGEST", d.Digest.String()), bytes.NewReader(body))
		r.Header.Set("Content-Type", kind)
		if images.ServeHTTP(w, r); w.Code != http.StatusCreated {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return d
	}
	blob := func(kind string, body []byte) ocispec.Descriptor {
		return put(http.MethodPost, "blobs/uploads/?digest=DIGEST", kind, body)
	}
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: blob("application/vnd.cncf.helm.config.v1+json", []byte("{}"))}
	m.SchemaVersion, m.Layers = 2, []ocispec.Descriptor{blob("application/vnd.cncf.helm.chart.content.v1.tar+gzip", chart)}
	text, err := json.Marshal(m)
	must(t, err)
	put(http.MethodPut, "manifests/"+tag, m.MediaType, text)
}

// published lets a cluster find what repository serves under names of the internet.
func published(at string) edit {
	return func(spec map[string]any) {
		mirrors := spec["source"].(map[string]any)["mirrors"].(map[string]any)
		mirrors["charts.example.com"], mirrors["https://example.com/"] = at, at+"/"
	}
}

func chartAddon(repository, version string) map[string]any {
	return map[string]any{
		"name": "store", "namespace": "store", "type": "helm", "repository": repository, "chart": "store", "version": version, "values": map[string]any{"replicas": 2},
	}
}

// chart wants a chart's objects, with the jobs before and after them, and those of another version in their place.
func (c *cluster) chart(t *testing.T, repository string) {
	t.Helper()
	client := c.client(t)
	runs := func(version string) (jobs []batchv1.Job) {
		t.Helper()
		is, err := client.AppsV1().Deployments("store").Get(t.Context(), "store", metav1.GetOptions{})
		must(t, err)
		if is.Status.ReadyReplicas != 2 || is.Labels["version"] != version {
			t.Errorf("%d pods of the chart are ready, of %s", is.Status.ReadyReplicas, is.Labels["version"])
		}
		for _, name := range []string{"before", "after"} {
			job, err := client.BatchV1().Jobs("store").Get(t.Context(), name, metav1.GetOptions{})
			must(t, err)
			if said := strings.Join(job.Spec.Template.Spec.Containers[0].Command, " "); job.Status.Succeeded != 1 || !strings.HasSuffix(said, version) {
				t.Errorf("job %s: %d pods have succeeded, with %s", name, job.Status.Succeeded, said)
			}
			jobs = append(jobs, *job)
		}
		return jobs
	}
	first := runs("v1.0.0")
	if end := first[0].Status.CompletionTime; !end.Before(&first[1].CreationTimestamp) && !end.Equal(&first[1].CreationTimestamp) {
		t.Errorf("the hook of before ended at %v, that of after began at %v", end, first[1].CreationTimestamp)
	}
	c.unchanged(t)
	bought := map[string]any{"name": "bought", "files": []any{"https://example.com/install.yaml"}}
	c.change(t, published(repository), set("addons", []any{chartAddon("oci://charts.example.com/charts", "v1.1.0"), bought}))
	c.run(t, "apply", "--yes").ok(t)
	must(t, second(client.CoreV1().ConfigMaps("default").Get(t.Context(), "bought", metav1.GetOptions{})))
	for i, job := range runs("v1.1.0") {
		if job.UID == first[i].UID {
			t.Errorf("job %s has not run again", job.Name)
		}
	}
	c.unchanged(t)
	c.change(t, set("addons", []any{}))
	c.run(t, "apply", "--yes").ok(t)
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "store", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("namespace of the chart: %v", err)
	}
}

// metrics wants an addon that is known by its name to work: what nodes and pods use is told.
func (c *cluster) metrics(t *testing.T) {
	t.Helper()
	c.change(t, set("addons", []any{map[string]any{"name": "metrics-server"}}))
	c.run(t, "apply", "--yes").ok(t)
	c.unchanged(t)
	client := c.client(t)
	for _, what := range []string{"nodes", "namespaces/kube-system/pods"} {
		var list struct {
			Items []struct{ Metadata metav1.ObjectMeta }
		}
		for begin := time.Now(); len(list.Items) < 2; time.Sleep(time.Second) {
			text, err := client.CoreV1().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/" + what).DoRaw(t.Context())
			if err == nil {
				must(t, json.Unmarshal(text, &list))
			}
			if time.Since(begin) > 2*time.Minute {
				t.Fatalf("what %s use is not told: %s, %v", what, text, err)
			}
		}
		t.Logf("what %d of %s use is told", len(list.Items), what)
	}
	c.change(t, set("addons", []any{}))
	c.run(t, "apply", "--yes").ok(t)
	c.unchanged(t)
}

//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestStorage has a cluster with volumes in directories of nodes: what a pod of a StatefulSet has written is there when its node has lost power, and gone when its claim is. It also
// has manifests and a chart of the user's, which are applied, kept, and taken away again.
func TestStorage(t *testing.T) {
	provideFor(t, "", find(t, "local-path"), find(t, "metrics-server"))
	the.resize(t, 2)
	c := newCluster(t, 1, where{}, impatient, set("storage", map[string]any{"localPath": map[string]any{"path": "/srv/volumes"}}),
		set("addons", []any{map[string]any{"name": "shop", "namespace": "shop", "inline": shop}}))
	c.also = func() {
		c.addon(t)
		charts := repository(t)
		c.change(t, set("addons", []any{chartAddon(charts, "v1.0.0")}))
		c.run(t, "apply", "--yes").ok(t)
		c.chart(t, charts)
		c.metrics(t)
		client, node := c.client(t), the.nodes[1]
		writes := func(lines int) string {
			t.Helper()
			var said string
			for begin := time.Now(); len(strings.Fields(said)) != lines; time.Sleep(time.Second) {
				if time.Since(begin) > 3*time.Minute {
					t.Fatalf("%d lines were to be written, not %q", lines, said)
				}
				said = the.on(t, node, "cat /srv/volumes/*/log 2>/dev/null; true")
			}
			return said
		}
		_, err := client.AppsV1().StatefulSets("default").Create(t.Context(), writer(), metav1.CreateOptions{})
		must(t, err)
		first := writes(1)
		must(t, the.bed.Poweroff(t.Context(), node))
		must(t, the.bed.Start(t.Context(), node))
		c.whole(t)
		if both := writes(2); !strings.HasPrefix(both, first) {
			t.Errorf("%q was written, then there was %q", first, both)
		}
		must(t, client.AppsV1().StatefulSets("default").Delete(t.Context(), "writer", metav1.DeleteOptions{}))
		must(t, client.CoreV1().PersistentVolumeClaims("default").Delete(t.Context(), "data-writer-0", metav1.DeleteOptions{}))
		for begin := time.Now(); the.on(t, node, "ls /srv/volumes") != ""; time.Sleep(time.Second) {
			if time.Since(begin) > 2*time.Minute {
				t.Fatal("the volume is still there without its claim")
			}
		}
	}
	cycle(t, c)
}

// shop is an addon.
const shop = `apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 1
      containers: [{name: shop, image: "busybox:1.37.0", imagePullPolicy: Never, command: [/bin/sh, -c, exec sleep infinity]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: shop}
rules: []
`

// addon wants the addon to run, with the image that was brought to the nodes; to be put right when somebody changes it; and to go when it is taken out.
func (c *cluster) addon(t *testing.T) {
	t.Helper()
	client := c.client(t)
	ready := func(want int32) {
		t.Helper()
		is, err := client.AppsV1().Deployments("shop").Get(t.Context(), "shop", metav1.GetOptions{})
		must(t, err)
		if is.Status.ReadyReplicas != want {
			t.Errorf("%d pods of the addon are ready, not %d", is.Status.ReadyReplicas, want)
		}
	}
	ready(2)
	_, err := client.AppsV1().Deployments("shop").Patch(t.Context(), "shop", types.MergePatchType, []byte(`{"spec": {"replicas": 0}}`), metav1.PatchOptions{})
	must(t, err)
	c.run(t, "apply", "--yes").ok(t)
	ready(2)
	c.change(t, set("addons", []any{}))
	c.run(t, "apply", "--yes").ok(t)
	c.unchanged(t)
	for what, err := range map[string]error{
		"namespace":    second(client.CoreV1().Namespaces().Get(t.Context(), "shop", metav1.GetOptions{})),
		"cluster role": second(client.RbacV1().ClusterRoles().Get(t.Context(), "shop", metav1.GetOptions{})),
	} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s of the addon: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// writer adds a line to a file whenever it starts, on a volume of the class that claims get without one.
func writer() *appsv1.StatefulSet {
	labels, now := map[string]string{"app": "writer"}, int64(0)
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "writer"}, Spec: appsv1.StatefulSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &now,
			Containers: []corev1.Container{{
				Name: "writer", Image: "docker.io/library/busybox:1.37.0", ImagePullPolicy: corev1.PullNever,
				Command:      []string{"/bin/sh", "-c", "date +%s.%N >>/data/log; sync; exec sleep infinity"},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
		}},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		}}},
	}}
}

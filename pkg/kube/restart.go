package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Workload is what starts pods anew, or a pod that nothing does.
type Workload struct {
	Kind, Namespace, Name string
	Replaces              bool // pods are replaced by Restart: it is a Deployment, a DaemonSet or a StatefulSet
}

func (w Workload) String() string { return w.Kind + " " + w.Namespace + "/" + w.Name }

// CallersBefore lists what has pods that may call the API with an account of theirs, and that have started before a time.
func (c *Client) CallersBefore(ctx context.Context, at time.Time) (all []Workload, err error) {
	var pods []corev1.Pod
	deployments := map[string]metav1.OwnerReference{} // by namespace and name of their ReplicaSets
	err = c.retry(ctx, "listing pods", func(ctx context.Context) error {
		list, err := c.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		sets, err := c.Typed.AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods = list.Items
		for _, rs := range sets.Items {
			if of := metav1.GetControllerOf(&rs); of != nil {
				deployments[rs.Namespace+"/"+rs.Name] = *of
			}
		}
		return nil
	})
	for _, p := range pods {
		if !calls(&p) || p.Status.StartTime == nil || !p.Status.StartTime.Time.Before(at) {
			continue
		}
		w := Workload{"Pod", p.Namespace, p.Name, false}
		if of := metav1.GetControllerOf(&p); of != nil {
			if higher, ok := deployments[p.Namespace+"/"+of.Name]; ok && of.Kind == "ReplicaSet" {
				of = &higher
			}
			w = Workload{of.Kind, p.Namespace, of.Name, slices.Contains([]string{"Deployment", "DaemonSet", "StatefulSet"}, of.Kind)}
		}
		if !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	return all, err
}

// calls reports whether a pod that has not ended, and is not about to, has a token for the API.
func calls(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
	})
}

// Restart has workloads that replace pods do so, as kubectl rollout restart does, all at once, and waits for all of them.
func (c *Client) Restart(ctx context.Context, all []Workload) error {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, time.Now().UTC().Format(time.RFC3339))
	var wait []*unstructured.Unstructured
	for _, w := range all {
		if !w.Replaces {
			continue
		}
		obj := object("apps/v1", w.Kind, w.Name)
		obj.SetNamespace(w.Namespace)
		err := c.retry(ctx, "restarting "+w.String(), func(ctx context.Context) error {
			resource, err := c.on(ctx, obj)
			if err == nil {
				_, err = resource.Patch(ctx, w.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "kubexm-restart"})
			}
			return err
		})
		if err != nil {
			return err
		}
		wait = append(wait, obj)
	}
	return c.WaitReady(ctx, wait...)
}

package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Cordoned reports whether a node gets no new pods.
func (c *Client) Cordoned(ctx context.Context, node string) (cordoned bool, err error) {
	err = c.retry(ctx, "reading node "+node, func(ctx context.Context) error {
		live, err := c.Typed.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err == nil {
			cordoned = live.Spec.Unschedulable
		}
		return err
	})
	return cordoned, err
}

// Cordon decides whether a node gets new pods.
func (c *Client) Cordon(ctx context.Context, node string, cordoned bool) error {
	return c.retry(ctx, "cordoning node "+node, func(ctx context.Context) error {
		patch := map[bool]string{true: `{"spec": {"unschedulable": true}}`, false: `{"spec": {"unschedulable": null}}`}
		_, err := c.Typed.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(patch[cordoned]), metav1.PatchOptions{FieldManager: FieldManager})
		return err
	})
}

// Evictable returns the pods that Drain evicts from a node, as namespace/name. Those of DaemonSets, static ones and those that have
// ended stay; pods that nothing would start elsewhere are an error, unless they may be lost.
func (c *Client) Evictable(ctx context.Context, node string, lose bool) (names []string, err error) {
	names, lone, err := c.sorts(ctx, node)
	if lone != nil && !lose {
		err = fmt.Errorf("node %s cannot be drained: nothing would start these pods on another node: %s", node, strings.Join(lone, ", "))
		return nil, fault.Advise(err, "move or delete them")
	}
	return names, err
}

// Lone returns those of these pods that nothing would start elsewhere.
func (c *Client) Lone(ctx context.Context, node string) (names []string, err error) {
	_, names, err = c.sorts(ctx, node)
	return names, err
}

// sorts are the pods that Drain evicts from a node, and those of them without a controller.
func (c *Client) sorts(ctx context.Context, node string) (all, lone []string, err error) {
	pods, err := c.evictable(ctx, node)
	for _, p := range pods {
		name := p.Namespace + "/" + p.Name
		all = append(all, name)
		if metav1.GetControllerOf(&p) == nil {
			lone = append(lone, name)
		}
	}
	return all, lone, err
}

func (c *Client) evictable(ctx context.Context, node string) (pods []corev1.Pod, err error) {
	all, err := c.podsOn(ctx, node)
	for _, p := range all {
		owner := metav1.GetControllerOf(&p)
		_, static := p.Annotations[corev1.MirrorPodAnnotationKey]
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if !static && !ended && (owner == nil || owner.Kind != "DaemonSet") {
			pods = append(pods, p)
		}
	}
	return pods, err
}

// podsOn are all pods that are bound to a node.
func (c *Client) podsOn(ctx context.Context, node string) (pods []corev1.Pod, err error) {
	err = c.retry(ctx, "listing the pods of "+node, func(ctx context.Context) error {
		list, err := c.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err == nil {
			pods = list.Items
		}
		return err
	})
	return pods, err
}

// DeletePods deletes the pods that Drain would evict from a node, whatever disruption budgets say, and does not wait for them.
func (c *Client) DeletePods(ctx context.Context, node string) error {
	pods, err := c.evictable(ctx, node)
	for _, p := range pods {
		err = c.retry(ctx, "deleting "+p.Namespace+"/"+p.Name, func(ctx context.Context) error {
			err := c.Typed.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
			if absent(err) || apierrors.IsConflict(err) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return err
}

// Drain evicts the pods of a node and waits until they have ended. What disruption budgets do not let go is asked again until ctx
// ends.
func (c *Client) Drain(ctx context.Context, node string) error {
	for left := []string(nil); ; {
		now, err := c.drain(ctx, node)
		if err == nil && now == nil {
			return nil
		}
		if err == nil {
			left = now
		}
		if ctx.Err() == nil && err != nil {
			return err
		}
		if !sleep(ctx, time.Second) {
			err := fmt.Errorf("draining node %s: %w: %s", node, ctx.Err(), strings.Join(left, "; "))
			return fault.Advise(err, "see what does not let them go: kubectl get pdb -A, kubectl describe pod")
		}
	}
}

// drain asks all pods of a node once to go, and returns those that have not gone yet, each with the reason.
func (c *Client) drain(ctx context.Context, node string) (left []string, err error) {
	pods, err := c.evictable(ctx, node)
	for i := range pods {
		why, err := c.evict(ctx, &pods[i])
		if err != nil {
			return nil, err
		}
		left = append(left, fmt.Sprintf("%s/%s %s", pods[i].Namespace, pods[i].Name, why))
	}
	return left, err
}

// evict asks a pod to go, and returns why it has not gone yet.
func (c *Client) evict(ctx context.Context, pod *corev1.Pod) (why string, err error) {
	if pod.DeletionTimestamp != nil {
		return "has not ended yet", nil
	}
	err = c.retry(ctx, "evicting "+pod.Namespace+"/"+pod.Name, func(ctx context.Context) error {
		err := c.Typed.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
		})
		if status := apierrors.APIStatus(nil); apierrors.IsTooManyRequests(err) && errors.As(err, &status) {
			why = "stays: " + status.Status().Message
			return nil
		}
		return err
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it is gone, or another one has its name
		err = nil
	}
	return why, err
}

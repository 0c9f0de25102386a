package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
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

// Pods are those that Drain evicts from a node, as namespace/name.
type Pods struct {
	All   []string
	Lone  []string // of these those without a controller: nothing would start them elsewhere
	Local []string // and those with data in volumes of type emptyDir, which goes with them
}

// Lose is what of Pods may be lost.
type Lose struct{ Lone, Local bool }

// Evictable returns the pods that Drain evicts from a node. Those of DaemonSets, static ones and those that have
// ended stay; what would be lost is an error, unless it may be.
func (c *Client) Evictable(ctx context.Context, node string, lose Lose) (names []string, err error) {
	pods, err := c.PodsToEvict(ctx, node)
	switch {
	case err != nil:
		return nil, err
	case pods.Lone != nil && !lose.Lone:
		err = fmt.Errorf("node %s cannot be drained: nothing would start these pods on another node: %s", node, strings.Join(pods.Lone, ", "))
		return nil, fault.Advise(err, "move or delete them")
	case pods.Local != nil && !lose.Local:
		err = fmt.Errorf("node %s cannot be drained: these pods would lose data in volumes of type emptyDir: %s", node, strings.Join(pods.Local, ", "))
		return nil, fault.Advise(err, "save the data and delete the pods, or let it be lost: spec.upgrade.drain.deleteEmptyDir")
	}
	return pods.All, nil
}

// PodsToEvict returns these pods.
func (c *Client) PodsToEvict(ctx context.Context, node string) (is Pods, err error) {
	pods, err := c.evictable(ctx, node)
	for _, p := range pods {
		name := p.Namespace + "/" + p.Name
		is.All = append(is.All, name)
		if metav1.GetControllerOf(&p) == nil {
			is.Lone = append(is.Lone, name)
		}
		if slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil }) {
			is.Local = append(is.Local, name)
		}
	}
	return is, err
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

// saying is how often Drain says what it waits for.
const saying = 20 * time.Second

// Drain evicts the pods of a node and waits until they have ended. What disruption budgets do not let go is asked again until ctx
// ends. Every now and then it tells which pods are left, and why.
func (c *Client) Drain(ctx context.Context, node string, tell func(string)) error {
	said := time.Now()
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
		if left != nil && time.Since(said) >= saying {
			tell("waiting for " + human.Names(left, 3))
			said = time.Now()
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

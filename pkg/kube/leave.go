package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Leavable says what would be lost, or would never end, if a node left the cluster, together with others that leave: volumes that no node which stays
// can use, and pods that their disruption budgets never let go. What a budget does not let go now, but may later, is waited for by Drain.
func (c *Client) Leavable(ctx context.Context, node string, leaving []string) error {
	volumes, err1 := c.localVolumes(ctx, node, leaving)
	held, err2 := c.held(ctx, node)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var why []string
	if volumes != nil {
		why = append(why, "no node that stays can use these volumes: "+strings.Join(volumes, ", "))
	}
	if held != nil {
		why = append(why, "these disruption budgets let none of their pods go: "+strings.Join(held, ", "))
	}
	if why == nil {
		return nil
	}
	err := fmt.Errorf("node %s cannot leave: %s", node, strings.Join(why, "; "))
	return fault.Advise(err, "move the data, add replicas or change the budgets; to lose them: --force")
}

// PodsOf lists the pods that are bound to a node, as namespace/name.
func (c *Client) PodsOf(ctx context.Context, node string) (names []string, err error) {
	pods, err := c.podsOn(ctx, node)
	for _, p := range pods {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	return names, err
}

// ForgetPods removes the pods of a node that is gone: nothing runs there that could end them. Kubernetes itself does so after 40 seconds
// (k8s.io/kubernetes/pkg/controller/podgc), in which DaemonSets count them as missing.
func (c *Client) ForgetPods(ctx context.Context, node string) error {
	now := int64(0)
	return c.deletePods(ctx, node, metav1.DeleteOptions{GracePeriodSeconds: &now}, func(corev1.Pod) bool { return true })
}

// Former is what a cluster still has of machines that are gone for good.
type Former struct {
	Nodes  []string
	Pods   []corev1.Pod
	Leases []coordinationv1.Lease // in kube-system; until they end, controllers of the control plane wait for those that had them
}

// Former finds what is older than a time: nodes of those names, and pods that were bound to these, to gone ones or to keep, and that somebody makes again; and nodes that are gone, however
// old; and leases that nobody has renewed since. A kubelet of the same name would take such pods for its own, and believe what is said of their containers.
func (c *Client) Former(ctx context.Context, names, gone []string, keep string, before time.Time) (f Former, err error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return f, err
	}
	for name, n := range nodes {
		if slices.Contains(gone, name) || slices.Contains(names, name) && n.CreationTimestamp.Time.Before(before) {
			f.Nodes = append(f.Nodes, name)
		}
	}
	slices.Sort(f.Nodes)
	err = c.retry(ctx, "listing pods", func(ctx context.Context) error {
		list, err := c.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName!="})
		if err == nil {
			f.Pods = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
				on := p.Spec.NodeName
				bound := on == keep || slices.Contains(names, on) || slices.Contains(gone, on)
				return !bound || metav1.GetControllerOf(&p) == nil || !p.CreationTimestamp.Time.Before(before)
			})
		}
		return err
	})
	if err != nil {
		return f, err
	}
	err = c.retry(ctx, "listing leases", func(ctx context.Context) error {
		list, err := c.Typed.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
		if err == nil {
			f.Leases = slices.DeleteFunc(list.Items, func(l coordinationv1.Lease) bool {
				return l.Spec.RenewTime == nil || !l.Spec.RenewTime.Time.Before(before)
			})
		}
		return err
	})
	return f, err
}

// Forget removes it: nothing runs there that could end it.
func (c *Client) Forget(ctx context.Context, f Former) error {
	nodes := make([]*unstructured.Unstructured, 0, len(f.Nodes))
	for _, n := range f.Nodes {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		o.SetName(n)
		nodes = append(nodes, o)
	}
	if err := c.Delete(ctx, nodes...); err != nil {
		return err
	}
	for _, l := range f.Leases {
		err := c.retry(ctx, "removing lease "+l.Name, func(ctx context.Context) error {
			err := c.Typed.CoordinationV1().Leases(l.Namespace).Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}})
			if absent(err) || apierrors.IsConflict(err) { // somebody has it
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	now := int64(0)
	return c.delete(ctx, f.Pods, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

// ReplacePods deletes the pods of a node that have a label, for whoever manages them to make others.
func (c *Client) ReplacePods(ctx context.Context, node, namespace, label, value string) error {
	return c.deletePods(ctx, node, metav1.DeleteOptions{}, func(p corev1.Pod) bool { return p.Namespace == namespace && p.Labels[label] == value })
}

func (c *Client) deletePods(ctx context.Context, node string, how metav1.DeleteOptions, which func(corev1.Pod) bool) error {
	pods, err := c.podsOn(ctx, node)
	if err != nil {
		return err
	}
	return c.delete(ctx, slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !which(p) }), how)
}

func (c *Client) delete(ctx context.Context, pods []corev1.Pod, how metav1.DeleteOptions) (err error) {
	for _, p := range pods {
		if err != nil {
			break
		}
		err = c.retry(ctx, "removing "+p.Namespace+"/"+p.Name, func(ctx context.Context) error {
			how.Preconditions = &metav1.Preconditions{UID: &p.UID}
			err := c.Typed.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, how)
			if absent(err) || apierrors.IsConflict(err) {
				return nil
			}
			return err
		})
	}
	return err
}

// localVolumes are the volumes in use that a node can use, and none that stays, each with its claim.
func (c *Client) localVolumes(ctx context.Context, node string, leaving []string) (names []string, err error) {
	err = c.retry(ctx, "listing volumes", func(ctx context.Context) error {
		volumes, err1 := c.Typed.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		nodes, err2 := c.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err := cmp.Or(err1, err2); err != nil {
			return err
		}
		names = nil
		for _, v := range volumes.Items {
			if v.Status.Phase == corev1.VolumeBound && v.Spec.ClaimRef != nil && onlyOn(v.Spec.NodeAffinity, node, leaving, nodes.Items) {
				names = append(names, fmt.Sprintf("%s (%s/%s)", v.Name, v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name))
			}
		}
		slices.Sort(names)
		return nil
	})
	return names, err
}

// onlyOn reports whether a volume can be used on a node, and on none that stays when others leave: drivers name nodes by labels of their own.
func onlyOn(a *corev1.VolumeNodeAffinity, node string, leaving []string, nodes []corev1.Node) bool {
	if a == nil || a.Required == nil {
		return false
	}
	selector, here := nodeaffinity.NewLazyErrorNodeSelector(a.Required), false
	for _, n := range nodes {
		if fits, err := selector.Match(&n); err != nil || !fits { // a term that cannot be read fits nowhere
			continue
		}
		if n.Name != node && !slices.Contains(leaving, n.Name) {
			return false
		}
		here = here || n.Name == node
	}
	return here
}

// held are the disruption budgets of pods on a node that want all pods there are, now and whenever these are healthy.
func (c *Client) held(ctx context.Context, node string) (names []string, err error) {
	pods, err := c.evictable(ctx, node)
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	err = c.retry(ctx, "listing disruption budgets", func(ctx context.Context) error {
		list, err := c.Typed.PolicyV1().PodDisruptionBudgets("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		names = nil
		for _, b := range list.Items {
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			never := b.Status.ExpectedPods > 0 && b.Status.DesiredHealthy >= b.Status.ExpectedPods
			if err == nil && never && slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Namespace == b.Namespace && selector.Matches(labels.Set(p.Labels)) }) {
				names = append(names, b.Namespace+"/"+b.Name)
			}
		}
		return nil
	})
	return names, err
}

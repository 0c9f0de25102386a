package kube

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// LeaseHolder returns who holds a lease: "" where nobody does, or there is no such lease.
func (c *Client) LeaseHolder(ctx context.Context, namespace, name string) (holder string, err error) {
	err = c.retry(ctx, "reading lease "+name, func(ctx context.Context) error {
		lease, err := c.Typed.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		if absent(err) {
			return nil
		}
		if err == nil && lease.Spec.HolderIdentity != nil {
			holder = *lease.Spec.HolderIdentity
		}
		return err
	})
	return holder, err
}

// PassLease gives a lease of leader election to another candidate, waits until one has renewed or taken it, and returns which: it leads
// then. The one that led notices when it next renews the lease, and gives up after its renew deadline.
func (c *Client) PassLease(ctx context.Context, namespace, name, to string) (leads string, err error) {
	doing := fmt.Sprintf("passing lease %s to %s", name, to)
	leases := c.Typed.CoordinationV1().Leases(namespace)
	var passed *coordinationv1.Lease
	err = c.retry(ctx, doing, func(ctx context.Context) error {
		return retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error { // its holder renews it all the time
			lease, err := leases.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			now, transitions := metav1.NowMicro(), int32(1)
			if lease.Spec.LeaseTransitions != nil {
				transitions += *lease.Spec.LeaseTransitions
			}
			lease.Spec.HolderIdentity, lease.Spec.AcquireTime, lease.Spec.RenewTime, lease.Spec.LeaseTransitions = &to, &now, &now, &transitions
			passed, err = leases.Update(ctx, lease, metav1.UpdateOptions{FieldManager: FieldManager})
			return err
		})
	})
	for err == nil {
		lease, away := leases.Get(ctx, name, metav1.GetOptions{})
		if away == nil && lease.ResourceVersion != passed.ResourceVersion && lease.Spec.HolderIdentity != nil {
			return *lease.Spec.HolderIdentity, nil
		}
		if !sleep(ctx, 200*time.Millisecond) {
			err = fmt.Errorf("%s: nobody has renewed it", doing)
		}
	}
	return "", err
}

// ReadyOn returns the nodes on which a pod with a label is ready, and its annotations.
func (c *Client) ReadyOn(ctx context.Context, namespace, label string) (nodes map[string]map[string]string, err error) {
	err = c.retry(ctx, "listing pods "+label, func(ctx context.Context) error {
		list, err := c.Typed.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: label})
		if err != nil {
			return err
		}
		nodes = map[string]map[string]string{}
		for _, p := range list.Items {
			for _, is := range p.Status.Conditions {
				if is.Type == corev1.PodReady && is.Status == corev1.ConditionTrue {
					nodes[p.Spec.NodeName] = p.Annotations
				}
			}
		}
		return nil
	})
	return nodes, err
}

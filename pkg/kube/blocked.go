package kube

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Blocking returns the PodDisruptionBudgets that cover pods and allow none of them to be evicted now.
func (c *Client) Blocking(ctx context.Context) (budgets []policyv1.PodDisruptionBudget, err error) {
	err = c.retry(ctx, "listing PodDisruptionBudgets", func(ctx context.Context) error {
		list, err := c.Typed.PolicyV1().PodDisruptionBudgets("").List(ctx, metav1.ListOptions{})
		if err == nil {
			budgets = list.Items
		}
		return err
	})
	return slices.DeleteFunc(budgets, func(b policyv1.PodDisruptionBudget) bool {
		return b.Status.DisruptionsAllowed > 0 || b.Status.ExpectedPods == 0
	}), err
}

// DeadWebhook is an admission webhook without which the API server refuses what it matches, and that nothing answers for.
type DeadWebhook struct {
	Config             string // "ValidatingWebhookConfiguration policy"
	Webhook            string // its name there
	Namespace, Service string // that is to answer
	Why                string // it does not: "does not exist"
}

// DeadWebhooks finds them by the endpoints of their services, mutating ones first, in the order of the names of their configurations.
func (c *Client) DeadWebhooks(ctx context.Context) (dead []DeadWebhook, err error) {
	all, err := c.webhooks(ctx)
	known := map[[2]string]string{}
	for _, w := range all {
		at := [2]string{w.Namespace, w.Service}
		if _, asked := known[at]; !asked {
			if known[at], err = c.silent(ctx, w.Namespace, w.Service); err != nil {
				return nil, err
			}
		}
		if w.Why = known[at]; w.Why != "" {
			dead = append(dead, w)
		}
	}
	return dead, err
}

// webhooks lists those that must answer and that services answer for.
func (c *Client) webhooks(ctx context.Context) (all []DeadWebhook, err error) {
	err = c.retry(ctx, "listing webhooks", func(ctx context.Context) error {
		all = nil
		add := func(kind, config, name string, policy *admissionv1.FailurePolicyType, rules []admissionv1.RuleWithOperations, service *admissionv1.ServiceReference) {
			if (policy == nil || *policy == admissionv1.Fail) && len(rules) > 0 && service != nil {
				all = append(all, DeadWebhook{Config: kind + " " + config, Webhook: name, Namespace: service.Namespace, Service: service.Name})
			}
		}
		mutating, err := c.Typed.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, conf := range mutating.Items {
			for _, w := range conf.Webhooks {
				add("MutatingWebhookConfiguration", conf.Name, w.Name, w.FailurePolicy, w.Rules, w.ClientConfig.Service)
			}
		}
		validating, err := c.Typed.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, conf := range validating.Items {
			for _, w := range conf.Webhooks {
				add("ValidatingWebhookConfiguration", conf.Name, w.Name, w.FailurePolicy, w.Rules, w.ClientConfig.Service)
			}
		}
		return nil
	})
	return all, err
}

// silent says why nothing answers for a service; empty: it has an endpoint that is ready, or is a name of something elsewhere.
func (c *Client) silent(ctx context.Context, namespace, service string) (why string, err error) {
	err = c.retry(ctx, "looking for endpoints of service "+namespace+"/"+service, func(ctx context.Context) error {
		why = ""
		list, err := c.Typed.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		if err != nil || slices.ContainsFunc(list.Items, func(s discoveryv1.EndpointSlice) bool { return slices.ContainsFunc(s.Endpoints, ready) }) {
			return err
		}
		switch is, err := c.Typed.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{}); {
		case apierrors.IsNotFound(err):
			why = "does not exist"
		case err != nil:
			return err
		case is.Spec.Type != corev1.ServiceTypeExternalName:
			why = "has no ready endpoint"
		}
		return nil
	})
	return why, err
}

// ready reports whether an endpoint takes connections: one that does not say does (k8s.io/api/discovery/v1).
func ready(e discoveryv1.Endpoint) bool {
	return len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready)
}

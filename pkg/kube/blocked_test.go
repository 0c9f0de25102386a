package kube

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kubexm/kubexm/pkg/kube/kubetest"
)

func TestBlocking(t *testing.T) {
	server := kubetest.New()
	for _, obj := range read(t, `
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: shop}, status: {disruptionsAllowed: 0, expectedPods: 2, currentHealthy: 1, desiredHealthy: 1}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: db, namespace: shop}, status: {disruptionsAllowed: 1, expectedPods: 3, currentHealthy: 3, desiredHealthy: 2}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: none, namespace: shop}, status: {disruptionsAllowed: 0, expectedPods: 0}}
`) {
		server.Put(obj)
	}
	c, _ := inMemory(t, server)
	budgets, err := c.Blocking(within(t))
	if err != nil || len(budgets) != 1 || budgets[0].Name != "web" || budgets[0].Status.ExpectedPods != 2 {
		t.Errorf("%v, %v", budgets, err)
	}
}

// webhook is a configuration with one webhook, which has these fields.
const webhook = `
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: policy}, webhooks: [{name: pods.policy.io, %s}]}
---
`

const (
	pods    = `rules: [{operations: ["*"], apiGroups: [""], apiVersions: [v1], resources: [pods]}]`
	ofHook  = `, clientConfig: {service: {namespace: policy, name: hook}}`
	ignored = ", failurePolicy: Ignore"
)

// service is the one of webhook, with an endpoint slice; type and conditions are fields of them.
const service = `
{apiVersion: v1, kind: Service, metadata: {name: hook, namespace: policy}, spec: {%s}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: hook-1, namespace: policy, labels: {kubernetes.io/service-name: hook}}, addressType: IPv4, endpoints: [%s]}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: other-1, namespace: policy, labels: {kubernetes.io/service-name: other}}, addressType: IPv4, endpoints: [{addresses: [10.0.0.2]}]}
`

func TestDeadWebhooks(t *testing.T) {
	closed, dead := fmt.Sprintf(webhook, pods+ofHook), "ValidatingWebhookConfiguration policy pods.policy.io policy/hook has no ready endpoint"
	for name, test := range map[string]struct {
		objects string
		want    []string
	}{
		"none":          {objects: fmt.Sprintf(service, "", "")},
		"ready":         {closed + fmt.Sprintf(service, "", "{addresses: [10.0.0.1], conditions: {ready: false}}, {addresses: [10.0.0.3], conditions: {ready: true}}"), nil},
		"does not say":  {closed + fmt.Sprintf(service, "", "{addresses: [10.0.0.1]}"), nil},
		"not ready":     {closed + fmt.Sprintf(service, "", "{addresses: [10.0.0.1], conditions: {ready: false}}"), []string{dead}},
		"no endpoint":   {closed + fmt.Sprintf(service, "", ""), []string{dead}},
		"no service":    {closed, []string{"ValidatingWebhookConfiguration policy pods.policy.io policy/hook does not exist"}},
		"elsewhere":     {closed + fmt.Sprintf(service, "type: ExternalName, externalName: policy.example.com", ""), nil},
		"may be absent": {fmt.Sprintf(webhook, pods+ofHook+ignored), nil},
		"of no service": {fmt.Sprintf(webhook, pods+`, clientConfig: {url: "https://policy.example.com"}`), nil},
		"asked nothing": {fmt.Sprintf(webhook, "rules: []"+ofHook), nil},
		"two of a kind": {
			`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: policy}, webhooks: [
  {name: a.policy.io, failurePolicy: Fail, rules: [{operations: [CREATE]}], clientConfig: {service: {namespace: policy, name: hook}}},
  {name: b.policy.io, failurePolicy: Fail, rules: [{operations: [CREATE]}], clientConfig: {service: {namespace: policy, name: other}}}]}
---` + closed + fmt.Sprintf(service, "", ""),
			[]string{"MutatingWebhookConfiguration policy a.policy.io policy/hook has no ready endpoint", dead},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := kubetest.New()
			for _, obj := range read(t, test.objects) {
				server.Put(obj)
			}
			c, _ := inMemory(t, server)
			found, err := c.DeadWebhooks(within(t))
			var got []string
			for _, w := range found {
				got = append(got, fmt.Sprintf("%s %s %s/%s %s", w.Config, w.Webhook, w.Namespace, w.Service, w.Why))
			}
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

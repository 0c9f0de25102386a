//go:build e2e

package e2e

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubexm/kubexm/test/smoke"
)

// guests are a Deployment of four pods, spread over workers, and a budget that lets go of one of them at a time.
func guests() (*appsv1.Deployment, *policyv1.PodDisruptionBudget) {
	meta, labels := metav1.ObjectMeta{Name: "guests"}, map[string]string{"app": "guests"}
	replicas, grace, least := int32(4), int64(1), intstr.FromInt32(3)
	selector := &metav1.LabelSelector{MatchLabels: labels}
	apart := corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: "kubernetes.io/hostname", WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: selector}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: selector,
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: &grace,
				TopologySpreadConstraints:     []corev1.TopologySpreadConstraint{apart},
				Containers: []corev1.Container{{
					Name: "probe", Image: smoke.Image, ImagePullPolicy: corev1.PullNever,
					ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)}}},
				}},
			},
		},
	}}
	return deployment, &policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: selector}}
}

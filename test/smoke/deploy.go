package smoke

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// deploy starts a pod on every node and a Service before them; what is there
// already stays. A new namespace is given a service account before it takes pods.
func (p *Prover) deploy(ctx context.Context) (*corev1.Service, error) {
	core := p.Client.CoreV1()
	_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = p.Client.AppsV1().DaemonSets(namespace).Create(ctx, daemonSet(), metav1.CreateOptions{})
	}
	for _, s := range services(len(p.Families) > 1) {
		if err == nil || apierrors.IsAlreadyExists(err) {
			_, err = core.Services(namespace).Create(ctx, s, metav1.CreateOptions{})
		}
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("starting pods: %w", err)
	}
	found, err := core.Services(namespace).Get(ctx, plain, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the Service: %w", err)
	}
	return found, nil
}

var labels = map[string]string{"app": "probe"}

func daemonSet() *appsv1.DaemonSet {
	grace, automount := int64(0), false
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "probe"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: &grace,
					AutomountServiceAccountToken:  &automount,
					Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{
						Name: "probe", Image: Image, ImagePullPolicy: corev1.PullNever,
						ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)}}},
					}},
				},
			},
		},
	}
}

// The Services before the pods: one of each kind.
const (
	plain  = "probe"
	sticky = "probe-sticky" // who asks always reaches the same pod
	each   = "probe-each"   // its name leads to the pods themselves
	onNode = "probe-node"   // and at a port of every node
)

func services(dual bool) []*corev1.Service {
	service := func(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
		}
		if dual {
			s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
		}
		change(&s.Spec)
		return s
	}
	return []*corev1.Service{
		service(plain, func(*corev1.ServiceSpec) {}),
		service(sticky, func(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP }),
		service(each, func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }),
		service(onNode, func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }),
	}
}

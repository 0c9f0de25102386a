package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	mostPods   = 3
	mostEvents = 5
)

// why collects what may explain that an object is not as wanted, one line each:
// what its pods wait for, and the latest warnings about it and them. It is empty
// where nothing is known; it never fails.
func (c *Client) why(ctx context.Context, obj *unstructured.Unstructured) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	lines := append(c.pods(ctx, obj), c.warnings(ctx, obj)...)
	if len(lines) == 0 {
		return ""
	}
	return "\n  " + strings.Join(lines, "\n  ")
}

func (c *Client) pods(ctx context.Context, obj *unstructured.Unstructured) (lines []string) {
	live, err := c.Live(ctx, obj)
	if err != nil || live == nil {
		return nil
	}
	pods, err := c.podsOf(ctx, live)
	if err != nil {
		return nil
	}
	for i := range pods {
		if len(lines) == mostPods {
			break
		}
		lines = append(lines, troubles(&pods[i])...)
	}
	return lines
}

// podsOf lists the pods that a workload selects, none where it selects by no labels; of a node those that need no network of pods, as it may be these that
// make one.
func (c *Client) podsOf(ctx context.Context, live *unstructured.Unstructured) ([]corev1.Pod, error) {
	if live.GetKind() == "Node" {
		pods, err := c.podsOn(ctx, live.GetName())
		return slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !p.Spec.HostNetwork }), err
	}
	labels, ok, _ := unstructured.NestedStringMap(live.Object, "spec", "selector", "matchLabels")
	if !ok {
		return nil, nil
	}
	selector := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels})
	list, err := c.Typed.CoreV1().Pods(live.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// troubles tells why a pod is not ready: nothing for one that is.
func troubles(pod *corev1.Pod) (lines []string) {
	say := func(format string, args ...any) {
		lines = append(lines, "pod "+pod.Name+": "+strings.TrimSuffix(fmt.Sprintf(format, args...), ": "))
	}
	for _, is := range pod.Status.Conditions {
		if is.Type == corev1.PodScheduled && is.Status == corev1.ConditionFalse {
			say("%s: %s", is.Reason, is.Message)
		}
	}
	for _, is := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if end := is.LastTerminationState.Terminated; end != nil && !is.Ready {
			say("container %s ended %d times, last with exit code %d: %s: %s", is.Name, is.RestartCount, end.ExitCode, end.Reason, end.Message)
		}
		if is.State.Waiting != nil {
			say("container %s waits: %s: %s", is.Name, is.State.Waiting.Reason, is.State.Waiting.Message)
		} else if is.State.Running != nil && !is.Ready {
			say("container %s runs but is not ready", is.Name)
		}
	}
	if len(lines) == 0 && pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodSucceeded {
		say("%s: %s: %s", pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	}
	return lines
}

// warnings returns the latest events of type Warning about obj and what carries
// its name as prefix: its replica sets and pods.
func (c *Client) warnings(ctx context.Context, obj *unstructured.Unstructured) (lines []string) {
	list, err := c.Typed.CoreV1().Events(obj.GetNamespace()).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning"})
	if err != nil {
		return nil
	}
	events := slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
		about := e.InvolvedObject
		return about.Name != obj.GetName() && !strings.HasPrefix(about.Name, obj.GetName()+"-") ||
			about.Namespace != obj.GetNamespace()
	})
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return cmp.Compare(when(b).Unix(), when(a).Unix()) })
	for _, e := range events[:min(len(events), mostEvents)] {
		lines = append(lines, fmt.Sprintf("event on %s %s: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, strings.TrimSpace(e.Message)))
	}
	return lines
}

// when returns the last time of an event, which its sources keep in different fields.
func when(e corev1.Event) time.Time {
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time} {
		if !t.IsZero() {
			return t
		}
	}
	return e.CreationTimestamp.Time
}

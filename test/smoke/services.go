package smoke

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// kinds proves what Services do besides leading from an address to pods, as services does, for which each pod reaches itself, too.
func (p *Prover) kinds(ctx context.Context, pods []corev1.Pod, domain string) error {
	port, err := p.Client.CoreV1().Services(namespace).Get(ctx, onNode, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the Service: %w", err)
	}
	var addresses []string
	for _, pod := range pods {
		addresses = append(addresses, pod.Status.PodIP)
	}
	slices.Sort(addresses)
	for _, from := range pods {
		if err := errors.Join(p.sticks(ctx, from), p.leadsTo(ctx, from, each+"."+namespace+".svc."+domain, addresses)); err != nil {
			return err
		}
		for _, at := range pods {
			if err := p.allBehind(ctx, from, fmt.Sprintf("%s:%d", at.Status.HostIP, port.Spec.Ports[0].NodePort), len(pods)); err != nil {
				return err
			}
		}
	}
	p.Say("Services lead from ports of all nodes to all pods, keep who asks to one pod, and without an address lead to the pods themselves")
	return nil
}

// sticks lets a pod ask a Service that is to lead it to the same pod always.
func (p *Prover) sticks(ctx context.Context, from corev1.Pod) error {
	heard := map[string]bool{}
	for range 8 {
		name, err := p.get(ctx, from.Name, sticky)
		if err != nil {
			return err
		}
		heard[name] = true
	}
	if len(heard) > 1 {
		return fmt.Errorf("the pod on %s is led to several pods: %v", from.Spec.NodeName, heard)
	}
	return nil
}

// leadsTo lets a pod resolve a name until it has just these addresses.
func (p *Prover) leadsTo(ctx context.Context, from corev1.Pod, name string, addresses []string) error {
	var list []string
	err := wait.PollUntilContextTimeout(ctx, 300*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		found, err := p.ask(ctx, from.Name, "resolve", "name", name)
		list = strings.Fields(found)
		slices.Sort(list)
		return slices.Equal(list, addresses), err
	})
	if err != nil {
		return fmt.Errorf("the pod on %s resolves %s to %v, not to %v: %w", from.Spec.NodeName, name, list, addresses, err)
	}
	return nil
}

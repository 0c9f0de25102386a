package smoke

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// kinds proves what Services do besides leading from an address to pods, as services does, for which each pod reaches itself, too.
func (p *Prover) kinds(ctx context.Context, pods []corev1.Pod, domain string) error {
	core := p.Client.CoreV1().Services(namespace)
	port, err := core.Get(ctx, onNode, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the Service: %w", err)
	}
	keeps, err := core.Get(ctx, sticky, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the Service: %w", err)
	}
	var addresses, urls []string
	for _, pod := range pods {
		addresses = append(addresses, podIPs(&pod)...)
		for _, ip := range hostIPs(&pod) {
			urls = append(urls, "http://"+net.JoinHostPort(ip, strconv.Itoa(int(port.Spec.Ports[0].NodePort))))
		}
	}
	slices.Sort(addresses)
	for _, from := range pods {
		if err := p.leadsTo(ctx, from, each+"."+namespace+".svc."+domain, addresses); err != nil {
			return err
		}
		for _, ip := range keeps.Spec.ClusterIPs {
			if err := p.sticks(ctx, from, InURL(ip)); err != nil {
				return err
			}
		}
		for _, url := range urls {
			if err := p.allBehind(ctx, from, strings.TrimPrefix(url, "http://"), len(pods)); err != nil {
				return err
			}
		}
	}
	p.Say("Services lead from ports of all nodes to all pods, keep who asks to one pod, and without an address lead to the pods themselves")
	return p.fromHosts(ctx, pods, urls)
}

// sticks lets a pod ask a Service that is to lead it to the same pod always.
func (p *Prover) sticks(ctx context.Context, from corev1.Pod, host string) error {
	heard := map[string]bool{}
	for range 8 {
		name, err := p.get(ctx, from.Name, host)
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

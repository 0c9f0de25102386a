package smoke

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// family is that of an address.
func family(address string) corev1.IPFamily {
	if strings.Contains(address, ":") {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// has wants just one address of each of the cluster's families, in their order.
func (p *Prover) has(what string, addresses []string) error {
	if !slices.EqualFunc(addresses, p.Families, func(a string, f corev1.IPFamily) bool { return family(a) == f }) {
		return fmt.Errorf("%s has the addresses %v, which are to be of %v", what, addresses, p.Families)
	}
	return nil
}

// InURL is how an address stands in a URL.
func InURL(address string) string { return strings.TrimSuffix(net.JoinHostPort(address, ""), ":") }

func podIPs(pod *corev1.Pod) (all []string) {
	for _, ip := range pod.Status.PodIPs {
		all = append(all, ip.IP)
	}
	return all
}

func hostIPs(pod *corev1.Pod) (all []string) {
	for _, ip := range pod.Status.HostIPs {
		all = append(all, ip.IP)
	}
	return all
}

// addressed wants pods and their nodes to have addresses of the cluster's families.
func (p *Prover) addressed(pods []corev1.Pod) error {
	for _, pod := range pods {
		if err := p.has("the pod on "+pod.Spec.NodeName, podIPs(&pod)); err != nil {
			return err
		}
		if err := p.has(pod.Spec.NodeName, hostIPs(&pod)); err != nil {
			return err
		}
	}
	p.Say("pods and nodes have addresses of %v", p.Families)
	return nil
}

// fromHosts lets each node ask URLs itself, each of which leads to one of the pods.
func (p *Prover) fromHosts(ctx context.Context, pods []corev1.Pod, urls []string) error {
	if p.Host == nil {
		return nil
	}
	for _, on := range pods {
		said, err := p.Host(ctx, on.Spec.NodeName, urls...)
		if err != nil {
			return fmt.Errorf("%s asking for %v: %w", on.Spec.NodeName, urls, err)
		}
		names := strings.Fields(said)
		stranger := slices.ContainsFunc(names, func(n string) bool {
			return !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Name == n })
		})
		if len(names) != len(urls) || stranger {
			return fmt.Errorf("%s asked for %v and heard %v", on.Spec.NodeName, urls, names)
		}
	}
	p.Say("nodes themselves are answered at %v", urls)
	return nil
}

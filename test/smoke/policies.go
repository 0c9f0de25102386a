package smoke

import (
	"context"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Policies shows that network policies hold: it starts a server and clients on two nodes, and has the clients ask under one policy after the other.
func (p *Prover) Policies(ctx context.Context) error {
	const home, abroad = "smoke-home", "smoke-abroad"
	core := p.Client.CoreV1()
	for _, name := range []string{home, abroad} {
		if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("making namespace %s: %w", name, err)
		}
	}
	nodes, err := core.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	first, last := nodes.Items[0].Name, nodes.Items[len(nodes.Items)-1].Name
	server, err := p.pod(ctx, home, "server", first)
	if err != nil {
		return err
	}
	clients := map[string]*corev1.Pod{}
	for _, c := range []struct{ name, namespace, node string }{{"friend", home, first}, {"stranger", home, last}, {"visitor", abroad, last}} {
		if clients[c.name], err = p.pod(ctx, c.namespace, c.name, c.node); err != nil {
			return err
		}
	}
	for _, one := range policies(abroad, dnsCache[p.Families[0]]) {
		policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy"}, Spec: one.spec}
		if _, err := p.Client.NetworkingV1().NetworkPolicies(home).Create(ctx, policy, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("making a policy: %w", err)
		}
		asking, asked := errgroup.WithContext(ctx)
		for name, client := range clients {
			for _, ip := range podIPs(server) {
				asking.Go(func() error {
					return p.gets(asked, client, "get", "url", "http://"+net.JoinHostPort(ip, "8080")+"/", one.reach[name])
				})
			}
		}
		if one.resolves {
			asking.Go(func() error { return p.gets(asked, clients["stranger"], "resolve", "name", "kubernetes.default", true) })
		}
		if err := asking.Wait(); err != nil {
			return fmt.Errorf("with a policy that %s: %w", one.what, err)
		}
		if err := p.Client.NetworkingV1().NetworkPolicies(home).Delete(ctx, "policy", metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("removing a policy: %w", err)
		}
		p.Say("a policy that %s holds", one.what)
	}
	for _, name := range []string{home, abroad} {
		if err := p.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// policy is one, and who reaches the server under it.
type policy struct {
	what     string
	spec     networkingv1.NetworkPolicySpec
	reach    map[string]bool
	resolves bool // the stranger resolves names
}

// dnsCache is the address at which pods ask for names, by the primary family, unless the configuration has another one.
var dnsCache = map[corev1.IPFamily]string{corev1.IPv4Protocol: "169.254.25.10/32", corev1.IPv6Protocol: "fd69:254:25::10/128"}

func policies(abroad, cache string) []policy {
	is := func(label, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}
	}
	to := func(name string, kind networkingv1.PolicyType, in ...networkingv1.NetworkPolicyIngressRule) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{PodSelector: *is("app", name), PolicyTypes: []networkingv1.PolicyType{kind}, Ingress: in}
	}
	from := func(peer networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicyIngressRule {
		return networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{peer}}
	}
	port := func(n int32) networkingv1.NetworkPolicyIngressRule {
		at := intstr.FromInt32(n)
		return networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Port: &at}}}
	}
	const ingress, egress = networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	all := map[string]bool{"friend": true, "stranger": true, "visitor": true}
	names := to("stranger", networkingv1.PolicyTypeEgress)
	names.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: cache}}}}}
	return []policy{
		{"denies all ingress", to("server", ingress), nil, false},
		{"allows a label", to("server", ingress, from(networkingv1.NetworkPolicyPeer{PodSelector: is("app", "friend")})), map[string]bool{"friend": true}, false},
		{"allows a namespace", to("server", ingress, from(networkingv1.NetworkPolicyPeer{NamespaceSelector: is(corev1.LabelMetadataName, abroad)})), map[string]bool{"visitor": true}, false},
		{"allows the port", to("server", ingress, port(8080)), all, false},
		{"allows another port", to("server", ingress, port(8081)), nil, false},
		{"denies egress", to("stranger", egress), map[string]bool{"friend": true, "visitor": true}, false},
		{"allows egress to the DNS cache", names, map[string]bool{"friend": true, "visitor": true}, true},
	}
}

// pod starts a pod on a node, and waits until it has an address and is ready.
func (p *Prover) pod(ctx context.Context, namespace, name, node string) (pod *corev1.Pod, err error) {
	template := daemonSet().Spec.Template
	template.Spec.NodeName = node
	made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: template.Spec}
	pods := p.Client.CoreV1().Pods(namespace)
	if _, err := pods.Create(ctx, made, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("starting pod %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (ready bool, err error) {
		if pod, err = pods.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err
		}
		for _, is := range pod.Status.Conditions {
			ready = ready || is.Type == corev1.PodReady && is.Status == corev1.ConditionTrue
		}
		return ready, nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for pod %s on %s: %w", name, node, err)
	}
	return pod, nil
}

// gets wants a pod to be answered what it asks for, or not to, from now on: within patience, and three times in a row.
func (p *Prover) gets(ctx context.Context, from *corev1.Pod, what, key, value string, want bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	right, last := 0, error(nil)
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		answer, err := p.Client.CoreV1().RESTClient().Get().Namespace(from.Namespace).Resource("pods").Name(from.Name+":8080").
			SubResource("proxy").Suffix(what).Param(key, value).DoRaw(ctx)
		last = fmt.Errorf("%s heard %q, %w", from.Name, answer, err)
		if right++; (err == nil) != want {
			right = 0
		}
		return right == 3, nil
	})
	if err != nil {
		return fmt.Errorf("%s on %s is to %s %s: %t, but %w", from.Name, from.Spec.NodeName, what, value, want, last)
	}
	return nil
}

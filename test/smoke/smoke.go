// Package smoke proves that a cluster works, through its API alone: nodes are
// Ready, pods reach pods on other nodes, Services lead to all their pods, names
// are resolved, logs can be read.
package smoke

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Image is what the pods run. It must be on every node: nothing is pulled.
const Image = "kubexm.test/probe:v1"

// namespace is where all of it happens.
const namespace = "smoke"

// A Prover proves one cluster.
type Prover struct {
	Client   *kubernetes.Clientset
	Say      func(format string, args ...any) // told each thing that was proven
	Families []corev1.IPFamily                // of the addresses of nodes, pods and Services, the primary one first
	// Host has a node itself ask for URLs, and returns the answers; nil: no node is asked to.
	Host func(ctx context.Context, node string, urls ...string) (string, error)
}

// New reads a kubeconfig file, of a cluster with IPv4 unless Families is changed.
func New(kubeconfig string, say func(format string, args ...any)) (*Prover, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	config.QPS, config.Timeout = -1, 30*time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making an API client: %w", err)
	}
	return &Prover{Client: client, Say: say, Families: []corev1.IPFamily{corev1.IPv4Protocol}}, nil
}

// Prove starts a pod on every node, lets them ask each other, and removes them.
// The cluster's own zone ends in domain; external, when not empty, is a name of
// no zone of the cluster that is to lead to the address that follows it after "=".
func (p *Prover) Prove(ctx context.Context, domain string, external ...string) error {
	if err := p.ready(ctx); err != nil {
		return err
	}
	service, err := p.deploy(ctx)
	if err != nil {
		return err
	}
	pods, err := p.pods(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(p.addressed(pods), p.across(ctx, pods), p.services(ctx, pods, service, domain), p.kinds(ctx, pods, domain), p.names(ctx, pods, domain, external), p.logs(ctx, pods)); err != nil {
		return err
	}
	return p.remove(ctx, namespace)
}

// ready checks that all nodes are.
func (p *Prover) ready(ctx context.Context) error {
	nodes, err := p.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	var names []string
	for _, n := range nodes.Items {
		names = append(names, n.Name)
		is := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		if is < 0 || n.Status.Conditions[is].Status != corev1.ConditionTrue {
			return fmt.Errorf("node %s is not Ready: %v", n.Name, n.Status.Conditions)
		}
	}
	p.Say("nodes are Ready: %s", strings.Join(names, " "))
	return nil
}

// pods waits until every node has a pod that is ready.
func (p *Prover) pods(ctx context.Context) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var pods []corev1.Pod
	seen := ""
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		set, err := p.Client.AppsV1().DaemonSets(namespace).Get(ctx, "probe", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		seen = fmt.Sprintf("%d of %d are ready", set.Status.NumberReady, set.Status.DesiredNumberScheduled)
		if set.Status.ObservedGeneration != set.Generation || set.Status.NumberReady == 0 || set.Status.NumberReady != set.Status.DesiredNumberScheduled {
			return false, nil
		}
		list, err := p.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=probe"})
		if err != nil {
			return false, err
		}
		pods = list.Items
		return len(pods) == int(set.Status.NumberReady), nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for a pod on every node: %w: %s", err, seen)
	}
	return pods, nil
}

// patience is for what follows a change of the cluster by itself, in its own
// time: kube-proxy's rules, the DNS server's cache.
const patience = 15 * time.Second

// ask lets a pod answer a request, and again while that fails; the way to the pod
// is the API server's.
func (p *Prover) ask(ctx context.Context, pod, path, parameter, value string) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = wait.PollUntilContextCancel(ctx, 300*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		text, failed := p.once(ctx, pod, path, parameter, value)
		if ctx.Err() == nil || err == nil {
			answer, err = text, failed
		}
		return failed == nil, nil
	})
	return answer, err
}

func (p *Prover) once(ctx context.Context, pod, path, parameter, value string) (string, error) {
	answer, err := p.Client.CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").Name(pod+":8080").
		SubResource("proxy").Suffix(path).Param(parameter, value).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("pod %s asking for %s %s: %w: %s", pod, path, value, err, answer)
	}
	return strings.TrimSpace(string(answer)), nil
}

func (p *Prover) get(ctx context.Context, pod, host string) (string, error) {
	return p.ask(ctx, pod, "get", "url", (&url.URL{Scheme: "http", Host: host, Path: "/"}).String())
}

// across lets each pod ask each other one.
func (p *Prover) across(ctx context.Context, pods []corev1.Pod) error {
	for _, from := range pods {
		for _, to := range pods {
			for _, ip := range podIPs(&to) {
				if name, err := p.get(ctx, from.Name, net.JoinHostPort(ip, "8080")); err != nil || name != to.Name {
					return errors.Join(fmt.Errorf("the pod on %s asked the pod on %s, %s, at %s, and heard %q", from.Spec.NodeName, to.Spec.NodeName, to.Name, ip, name), err)
				}
			}
		}
	}
	p.Say("a pod on each of %d nodes reaches the pods on all of them", len(pods))
	return nil
}

// services lets each pod ask the Service, by address and by name, until all pods
// behind it have answered.
func (p *Prover) services(ctx context.Context, pods []corev1.Pod, service *corev1.Service, domain string) error {
	hosts := []string{service.Name + "." + namespace + ".svc." + domain, service.Name}
	for _, ip := range service.Spec.ClusterIPs {
		hosts = append(hosts, InURL(ip))
	}
	if err := p.has("the Service", service.Spec.ClusterIPs); err != nil {
		return err
	}
	for _, host := range hosts {
		for _, from := range pods {
			if err := p.allBehind(ctx, from, host, len(pods)); err != nil {
				return err
			}
		}
	}
	p.Say("the Service %s leads to all pods, from every node, by address and by name", strings.Join(service.Spec.ClusterIPs, " "))
	return nil
}

// allBehind lets a pod ask a Service until so many different pods have answered.
func (p *Prover) allBehind(ctx context.Context, from corev1.Pod, host string, pods int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	heard := map[string]bool{}
	for len(heard) < pods {
		name, err := p.get(ctx, from.Name, host)
		if ctx.Err() != nil && len(heard) > 0 {
			return fmt.Errorf("behind %s the pod on %s reaches %v only", host, from.Spec.NodeName, heard)
		}
		if err != nil {
			return err
		}
		heard[name] = true
	}
	return nil
}

// names lets each pod resolve names.
func (p *Prover) names(ctx context.Context, pods []corev1.Pod, domain string, external []string) error {
	api, err := p.Client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the API server's Service: %w", err)
	}
	want := map[string]string{"kubernetes.default": api.Spec.ClusterIP, "kubernetes.default.svc." + domain: api.Spec.ClusterIP}
	for _, e := range external {
		name, address, _ := strings.Cut(e, "=")
		want[name] = address
	}
	for name, address := range want {
		for _, from := range pods {
			if found, err := p.ask(ctx, from.Name, "resolve", "name", name); err != nil || found != address {
				return errors.Join(fmt.Errorf("the pod on %s resolves %s to %q, not to %s", from.Spec.NodeName, name, found, address), err)
			}
		}
	}
	p.Say("cluster DNS answers on every node: kubernetes.default is %s", api.Spec.ClusterIP)
	return nil
}

// logs reads the log of each pod from its kubelet.
func (p *Prover) logs(ctx context.Context, pods []corev1.Pod) error {
	for _, pod := range pods {
		text, err := p.Client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil || !strings.Contains(string(text), "probe") {
			return errors.Join(fmt.Errorf("the log of the pod on %s is %q", pod.Spec.NodeName, text), err)
		}
	}
	p.Say("the kubelets of all nodes hand out logs")
	return nil
}

// remove deletes the namespace and waits until it is gone.
func (p *Prover) remove(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	now := int64(0)
	err := p.Client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err == nil {
		err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			_, err := p.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
	}
	if err != nil {
		return fmt.Errorf("removing namespace %s: %w", namespace, err)
	}
	return nil
}

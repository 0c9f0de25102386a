package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// ready asks an API server from where the host is, and for its version where that is wanted.
func (l *look) ready(ctx context.Context, r *runner.Runner, access func() kube.Access, version *string) error {
	ctx, cancel := context.WithTimeout(kube.Impatient(ctx), patience)
	defer cancel()
	c, err := l.client(r, access)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.APIReady(ctx); err != nil || version == nil {
		return err
	}
	*version, err = c.Version(ctx)
	*version = human.Line(*version)
	return err
}

// apiServer asks that of a master.
func (l *look) apiServer(ctx context.Context, r *runner.Runner) {
	is := cluster.APIServer{Host: r.Host}
	err := l.ready(ctx, r, func() kube.Access { return l.API(r.Host) }, &is.Version)
	if err != nil {
		is.Err = human.Clean(err.Error())
	}
	l.component(r.Host, "kube-apiserver", is.Version, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.is.API = append(l.is.API, is)
}

// loadBalancer asks an API server through the proxy on the host.
func (l *look) loadBalancer(ctx context.Context, r *runner.Runner) {
	l.component(r.Host, "load-balancer", "", l.ready(ctx, r, l.ProxyAPI, nil))
}

// endpoint checks whether a worker reaches an API server by the name in its kubeconfig.
func (l *look) endpoint(ctx context.Context, r *runner.Runner) {
	why := ""
	if err := l.ready(ctx, r, l.EndpointAPI, nil); err != nil {
		why = human.Clean(err.Error())
		l.problem("%s, as %s resolves it: %s", l.Endpoint(), r.Host, why)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.is.Endpoint[r.Host] = why
}

// objects asks an API server for what list asks it: the first that is ready; where none is, the first that answers all the same.
func (l *look) objects(ctx context.Context, list func(context.Context, *kube.Client) error) {
	ctx, cancel := context.WithTimeout(kube.Impatient(ctx), 2*patience)
	defer cancel()
	l.mu.Lock()
	ready, masters := l.is.AnyAPI(), l.Masters()
	l.mu.Unlock()
	others := slices.DeleteFunc(masters, func(m string) bool { return l.hosts[m] == nil || slices.Contains(ready, m) })
	var why error
	for _, master := range append(ready, others...) {
		err := l.ask(ctx, l.hosts[master], list)
		if err == nil {
			return
		}
		why = cmp.Or(why, err)
	}
	l.problem("nodes and addons are unknown: %v", cmp.Or(why, errors.New("no master is reachable")))
}

// ask asks the API server of a master.
func (l *look) ask(ctx context.Context, master *runner.Runner, list func(context.Context, *kube.Client) error) error {
	client, err := l.client(master, func() kube.Access { return l.API(master.Host) })
	if err != nil {
		return err
	}
	defer client.Close()
	return list(ctx, client)
}

// nodes lists the nodes.
func (l *look) nodes(ctx context.Context, client *kube.Client) error {
	nodes, err := client.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	l.is.Nodes = map[string]cluster.Node{}
	for i := range nodes.Items {
		l.node(&nodes.Items[i])
	}
	return nil
}

// list lists nodes and addons.
func (l *look) list(ctx context.Context, client *kube.Client) error {
	version, err := client.Version(ctx)
	if err != nil {
		return err
	}
	addons, err := addons(ctx, client, plugin.NetworkOf(l.Spec).Namespace)
	if err != nil {
		return err
	}
	if err := l.nodes(ctx, client); err != nil {
		return err
	}
	l.is.Server, l.is.Addons = human.Line(version), addons
	for _, a := range addons {
		if a.Ready < a.Wanted {
			l.problem("%s: %d of %d pods are ready", a.Name, a.Ready, a.Wanted)
		}
	}
	for _, h := range l.Nodes() {
		if _, joined := l.is.Nodes[h]; !joined && l.unreached[h] == nil {
			l.problem("host %s has not joined the cluster", h)
		}
	}
	return nil
}

// addons are the workloads in the namespaces of the system and of the network plugin.
func addons(ctx context.Context, client *kube.Client, network string) (all []cluster.Addon, err error) {
	for _, namespace := range slices.Compact([]string{metav1.NamespaceSystem, network}) {
		deployments, err := client.Typed.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("listing deployments: %w", err)
		}
		for _, d := range deployments.Items {
			wanted := int32(1) // where it is not said (k8s.io/api/apps/v1)
			if d.Spec.Replicas != nil {
				wanted = *d.Spec.Replicas
			}
			all = append(all, cluster.Addon{Name: namespace + "/" + d.Name, Ready: int(d.Status.ReadyReplicas), Wanted: int(wanted)})
		}
		sets, err := client.Typed.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("listing daemon sets: %w", err)
		}
		for _, d := range sets.Items {
			all = append(all, cluster.Addon{Name: namespace + "/" + d.Name, Ready: int(d.Status.NumberReady), Wanted: int(d.Status.DesiredNumberScheduled)})
		}
	}
	return all, nil
}

// node notes a node, and what is wrong with it.
func (l *look) node(n *corev1.Node) {
	info := n.Status.NodeInfo
	is := cluster.Node{
		Cordoned: n.Spec.Unschedulable, Version: human.Line(info.KubeletVersion), OS: human.Line(info.OSImage), Runtime: human.Line(info.ContainerRuntimeVersion),
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			is.Addresses = append(is.Addresses, human.Line(a.Address))
		}
	}
	is.Ready, is.Unknown, is.Reason = readiness(n)
	if is.Reason != "" {
		l.problem("node %s: %s", n.Name, is.Reason)
	}
	if !slices.Contains(l.All(), n.Name) || !l.IsNode(n.Name) {
		l.problem("node %s is not in the configuration", n.Name)
	}
	l.is.Nodes[n.Name] = is
}

// readiness is the condition Ready of a node, and why it is not met.
func readiness(n *corev1.Node) (ready, unknown bool, why string) {
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return true, false, ""
		}
		return false, c.Status == corev1.ConditionUnknown, human.Line(c.Reason + ": " + c.Message)
	}
	return false, false, "its kubelet has reported nothing yet"
}

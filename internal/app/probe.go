package app

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner"
)

const (
	probePatience = 5 * time.Second     // for one question
	expiresSoon   = 30 * 24 * time.Hour // when a certificate is a problem
)

// probe asks a cluster how it is.
type probe struct {
	*session
	mu sync.Mutex // guards st
	st *ClusterStatus
}

func (p *probe) problem(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.st.Problems = append(p.st.Problems, fmt.Sprintf(format, args...))
}

// all asks everything, side by side; failed are the hosts that are not connected.
func (p *probe) all(ctx context.Context, failed map[string]error) {
	var group errgroup.Group
	group.SetLimit(connecting)
	for i := range p.config.Spec.Hosts {
		h := &p.config.Spec.Hosts[i]
		node := Node{Name: h.Name, Status: "unknown", Address: h.InternalAddress}
		for _, r := range h.Roles {
			node.Roles = append(node.Roles, string(r))
		}
		if err := failed[h.Name]; err != nil {
			node.Status = "unreachable"
			p.problem("host %s: %v", h.Name, err)
		}
		if p.cluster.IsNode(h.Name) {
			p.st.Nodes = append(p.st.Nodes, node)
		}
	}
	for i := range p.config.Spec.Hosts {
		h := &p.config.Spec.Hosts[i]
		r := p.hosts[h.Name]
		if r == nil {
			continue
		}
		ask := func(f func(context.Context, *runner.Runner)) {
			group.Go(func() error { f(ctx, r); return nil })
		}
		if h.Is(v1alpha1.RoleMaster) {
			ask(p.apiServer("kube-apiserver", p.cluster.API(h.Name)))
			ask(p.controller("kube-controller-manager", "https://127.0.0.1:10257/healthz"))
			ask(p.controller("kube-scheduler", "https://127.0.0.1:10259/healthz"))
		}
		if h.Is(v1alpha1.RoleLoadBalancer) {
			ask(p.apiServer("load-balancer", p.cluster.ProxyAPI()))
		}
		if h.Is(v1alpha1.RoleWorker) && p.cluster.Balancer() != "" {
			ask(p.endpoint)
		}
		if h.Is(v1alpha1.RoleEtcd) {
			ask(p.etcd)
		}
		if h.Is(v1alpha1.RoleRegistry) {
			ask(p.registry)
		}
		if slices.Contains(p.cluster.Control(), h.Name) {
			ask(p.certificates)
		}
	}
	group.Go(func() error { p.api(ctx); return nil })
	_ = group.Wait() // what fails is a problem
	if first := p.st.Certificate; first != nil && time.Until(first.Expires) < expiresSoon {
		p.problem("%s on %s expires %s", first.Path, first.Host, first.Expires.Format(time.DateOnly))
	}
	order := p.cluster.All()
	slices.SortStableFunc(p.st.ControlPlane, func(a, b Component) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Host), slices.Index(order, b.Host)), cmp.Compare(a.Name, b.Name))
	})
}

// component adds a component, healthy where err is nil.
func (p *probe) component(host, name string, err error) {
	c := Component{Host: host, Name: name, Healthy: err == nil}
	if err != nil {
		c.Message = err.Error()
		p.problem("%s on %s: %v", name, host, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.st.ControlPlane = append(p.st.ControlPlane, c)
}

func (p *probe) client(r *runner.Runner, access kube.Access) (*kube.Client, error) {
	if _, err := p.cluster.Certs.CA(pki.Kubernetes); err != nil {
		return nil, err // which says more than that access has no authority
	}
	access.Dial, access.Patience = r.Dial, probePatience
	return kube.New(access)
}

// ready asks an API server from where the host is.
func (p *probe) ready(ctx context.Context, r *runner.Runner, access kube.Access) error {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	c, err := p.client(r, access)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.APIReady(ctx)
}

// apiServer asks an API server, or the proxy before it, that runs on the host.
func (p *probe) apiServer(name string, access kube.Access) func(context.Context, *runner.Runner) {
	return func(ctx context.Context, r *runner.Runner) { p.component(r.Host, name, p.ready(ctx, r, access)) }
}

// endpoint looks whether a worker reaches an API server by the name in its kubeconfig.
func (p *probe) endpoint(ctx context.Context, r *runner.Runner) {
	if err := p.ready(ctx, r, p.cluster.EndpointAPI()); err != nil {
		p.problem("%s, as %s knows it: %v", p.cluster.Endpoint(), r.Host, err)
	}
}

// controller asks a program that listens on its host's loopback alone, with a
// certificate that it signed itself and forgets when it ends.
func (p *probe) controller(name, url string) func(context.Context, *runner.Runner) {
	return func(ctx context.Context, r *runner.Runner) {
		_, err := get(ctx, r, url, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // see above; the way there is SSH
		p.component(r.Host, name, err)
	}
}

// etcd asks a member: where kubeadm runs it, at the address that it has for
// probes, else with a certificate of its administrator.
func (p *probe) etcd(ctx context.Context, r *runner.Runner) {
	url, conf := "http://127.0.0.1:2381", &tls.Config{MinVersion: tls.VersionTLS12}
	if p.config.Spec.Etcd.Type == v1alpha1.TypeKubexm {
		url = "https://127.0.0.1:2379"
		conf.RootCAs = x509.NewCertPool()
		trust, err1 := p.cluster.Certs.Trust(pki.Etcd)
		admin, err2 := p.cluster.Certs.EtcdOperator()
		if err := cmp.Or(err1, err2); err != nil {
			p.component(r.Host, "etcd", err)
			return
		}
		conf.RootCAs.AppendCertsFromPEM(trust)
		conf.Certificates = []tls.Certificate{*admin.TLS()}
	}
	p.component(r.Host, "etcd", etcdHealth(ctx, r, url, conf))
}

// registry asks the private registry as nodes do.
func (p *probe) registry(ctx context.Context, r *runner.Runner) {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	at := p.cluster.Registry()
	at.Dial = r.Dial
	_, err := p.cluster.Certs.CA(pki.Registry)
	if err == nil {
		err = at.Ping(ctx)
	}
	p.component(r.Host, "registry", err)
}

// get asks for a page from where the host is.
func get(ctx context.Context, r *runner.Runner, url string, conf *tls.Config) ([]byte, error) {
	return ask(ctx, r, http.MethodGet, url, nil, conf)
}

// ask sends a request from where the host is.
func ask(ctx context.Context, r *runner.Runner, method, url string, body []byte, conf *tls.Config) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	transport := &http.Transport{DialContext: r.Dial, TLSClientConfig: conf, DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(answer)))
	}
	return answer, err
}

// certificates looks for the one of a host that expires first.
func (p *probe) certificates(ctx context.Context, r *runner.Runner) {
	out, err := r.Sh(ctx, `for f in /etc/kubernetes/pki/*.crt /etc/kubernetes/pki/etcd/*.crt /etc/ssl/etcd/ssl/*.pem /etc/registry/*.crt; do
case $f in *-key.pem) ;; *) if [ -f "$f" ]; then echo "# $f"; cat "$f"; fi ;; esac
done`)
	if err != nil {
		p.problem("reading the certificates of %s: %v", r.Host, err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for file := range strings.SplitSeq("\n"+out, "\n# ") {
		path, rest, _ := strings.Cut(file, "\n")
		block, _ := pem.Decode([]byte(rest))
		if block == nil || block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		if first := p.st.Certificate; first == nil || cert.NotAfter.Before(first.Expires) {
			p.st.Certificate = &Expiry{r.Host, path, cert.NotAfter}
		}
	}
}

// api asks the first API server that answers what nodes and addons there are.
func (p *probe) api(ctx context.Context) {
	var why error
	for _, master := range p.cluster.Masters() {
		r := p.hosts[master]
		if r == nil {
			continue
		}
		err := p.objects(ctx, r)
		if err == nil {
			return
		}
		why = cmp.Or(why, err)
	}
	if why == nil {
		why = errors.New("no master is reachable")
	}
	p.problem("nodes and addons are not known: %v", why)
}

// objects asks the API server of a master.
func (p *probe) objects(ctx context.Context, master *runner.Runner) error {
	client, err := p.client(master, p.cluster.API(master.Host))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*probePatience)
	defer cancel()
	if p.st.Server, err = client.Version(ctx); err != nil {
		return err
	}
	nodes, err := client.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	p.nodes(nodes.Items)
	for _, namespace := range []string{"kube-system", "kube-flannel"} {
		deployments, err := client.Typed.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("listing deployments: %w", err)
		}
		for _, d := range deployments.Items {
			p.addon(namespace+"/"+d.Name, d.Status.ReadyReplicas, *d.Spec.Replicas)
		}
		sets, err := client.Typed.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("listing daemon sets: %w", err)
		}
		for _, d := range sets.Items {
			p.addon(namespace+"/"+d.Name, d.Status.NumberReady, d.Status.DesiredNumberScheduled)
		}
	}
	return nil
}

func (p *probe) addon(name string, ready, wanted int32) {
	if ready < wanted {
		p.problem("%s: %d of %d pods are ready", name, ready, wanted)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.st.Addons = append(p.st.Addons, Addon{name, int(ready), int(wanted)})
}

// nodes completes the hosts with what the API server says of them.
func (p *probe) nodes(items []corev1.Node) {
	seen := map[string]bool{}
	for i := range items {
		n := &items[i]
		seen[n.Name] = true
		at := slices.IndexFunc(p.st.Nodes, func(h Node) bool { return h.Name == n.Name })
		if at < 0 {
			p.problem("node %s is not in the configuration", n.Name)
			p.st.Nodes = append(p.st.Nodes, Node{Name: n.Name})
			at = len(p.st.Nodes) - 1
		}
		is := &p.st.Nodes[at]
		unreachable := is.Status == "unreachable"
		var why string
		is.Status, why = readiness(n)
		if why != "" {
			p.problem("node %s: %s", n.Name, why)
		}
		if unreachable {
			is.Status += ", unreachable"
		}
		if n.Spec.Unschedulable {
			is.Status += ", cordoned"
		}
		info := n.Status.NodeInfo
		is.Version, is.OS, is.Runtime = info.KubeletVersion, info.OSImage, info.ContainerRuntimeVersion
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				is.Address = a.Address
			}
		}
	}
	for i := range p.st.Nodes {
		is := &p.st.Nodes[i]
		if seen[is.Name] || is.Status == "unreachable" {
			continue
		}
		is.Status = "not a node"
		if slices.Contains(p.cluster.Nodes(), is.Name) {
			p.problem("host %s has not joined the cluster", is.Name)
		}
	}
}

// readiness is the condition Ready of a node, and why it is not met.
func readiness(n *corev1.Node) (status, why string) {
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type != corev1.NodeReady:
		case c.Status == corev1.ConditionTrue:
			return "Ready", ""
		case c.Status == corev1.ConditionUnknown:
			return "Unknown", c.Reason + ": " + c.Message
		default:
			return "NotReady", c.Reason + ": " + c.Message
		}
	}
	return "NotReady", "its kubelet has reported nothing yet"
}

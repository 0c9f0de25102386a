package app_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Ports and names that the endpoint has in configurations.
var (
	apiPorts  = []string{"6443", "8443"}
	endpoints = []string{"lb.kubexm.local", "api.example.com"}
)

// open lets a process of a host listen at a port of all its addresses, or of that alone which leads to itself.
func (w *world) open(h *runnertest.Host, process, port string, local bool, dial func() (net.Conn, error)) error {
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, at := range w.ports {
		if name, other, _ := strings.Cut(key, " "); name == h.Name && at == port && other != process {
			return fmt.Errorf("port %s of %s: address already in use by %s", port, name, other)
		}
	}
	w.ports[h.Name+" "+process] = port
	h.TakePort(n, map[bool]string{true: process, false: "systemd-socket-"}[slices.Contains([]string{"kube-apiserver", "haproxy", "nginx"}, process)])
	for _, own := range loopback {
		h.Serve(net.JoinHostPort(own, port), dial)
	}
	for _, from := range w.hosts {
		if !local {
			from.Serve(w.socket(h.Name, port), dial)
		}
	}
	return nil
}

// loopback are where a host reaches what it runs itself.
var loopback = []string{"127.0.0.1", "::1"}

// close ends that.
func (w *world) close(h *runnertest.Host, process string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	port := w.ports[h.Name+" "+process]
	if port == "" {
		return
	}
	delete(w.ports, h.Name+" "+process)
	n, _ := strconv.Atoi(port)
	h.TakePort(n, "")
	for _, own := range loopback {
		h.Serve(net.JoinHostPort(own, port), nil)
	}
	for _, from := range w.hosts {
		from.Serve(w.socket(h.Name, port), nil)
	}
}

// proxied are the address and the port at which a proxy listens, and the masters behind it.
var (
	proxied = regexp.MustCompile(`(?m)^ *(?:bind|listen) (.*):(\d+);?$`)
	behind  = regexp.MustCompile(`(?m)^ *server .*?([0-9.]+:\d+|\[[0-9a-f:]+\]:\d+)`)
	secured = regexp.MustCompile(`--secure-port=(\d+)`)
	leading = regexp.MustCompile(`--listen=(.*):(\d+) .* (\S+:\d+)\n`)
)

// balance runs a proxy of a host; as its package brings it, it does nothing.
func (w *world) balance(process, file string) func(*runnertest.Host) error {
	return func(h *runnertest.Host) error {
		conf, _ := h.Get(file)
		at := proxied.FindStringSubmatch(conf)
		if at == nil {
			return nil
		}
		return w.open(h, process, at[2], slices.Contains(loopback, strings.Trim(at[1], "[]")), func() (conn net.Conn, err error) {
			err = fault.Transient(errors.New("connection refused"))
			for _, master := range behind.FindAllStringSubmatch(conf, -1) {
				if conn, err = h.Dial(w.Context(), "tcp", master[1]); err == nil {
					break
				}
			}
			return conn, err
		})
	}
}

// forward runs what lets connections to a port through to another one.
func (w *world) forward(unit string) func(*runnertest.Host) error {
	return func(h *runnertest.Host) error {
		text, _ := h.Get("/etc/systemd/system/" + unit + ".service.d/kubexm-" + unit + ".conf")
		to := leading.FindStringSubmatch(text)
		if to == nil {
			return errors.New("it does not say what leads where")
		}
		return w.open(h, unit, to[2], slices.Contains(loopback, strings.Trim(to[1], "[]")), func() (net.Conn, error) { return h.Dial(w.Context(), "tcp", to[3]) })
	}
}

// shared connects to the host that has the shared address.
func (w *world) shared(address, port string) (net.Conn, error) {
	for _, name := range slices.Sorted(maps.Keys(w.hosts)) {
		h := w.hosts[name]
		pod, _ := h.Get("/etc/kubernetes/manifests/kube-vip.yaml")
		conf, _ := h.Get("/etc/keepalived/keepalived.conf")
		if !strings.Contains(pod+conf, address) {
			continue
		}
		if c, err := h.Dial(w.Context(), "tcp", "127.0.0.1:"+port); err == nil {
			return c, nil
		}
	}
	return nil, fault.Transient(errors.New("connection refused"))
}

// named connects to where a name of the endpoint leads on a host.
func (w *world) named(h *runnertest.Host, name, port string) (net.Conn, error) {
	hosts, _ := h.Get("/etc/hosts")
	err := fault.Transient(errors.New("no such host"))
	for l := range strings.Lines(hosts) {
		if ip, ok := strings.CutSuffix(strings.TrimSpace(l), " "+name); ok {
			var conn net.Conn
			if conn, err = h.Dial(w.Context(), "tcp", net.JoinHostPort(ip, port)); err == nil {
				return conn, nil
			}
		}
	}
	return nil, err
}

// serve runs the API server with the certificates on the host, and lets all hosts reach it.
func (w *world) serve(h *runnertest.Host) error {
	if _, _, err := serving(h); err != nil {
		return err
	}
	w.mu.Lock()
	if w.api == nil && w.etcd31 != nil && w.called(h) {
		w.api = kubetest.New()
		w.api.Scheduled = true
	}
	if w.api == nil {
		w.mu.Unlock()
		return errors.New("etcd does not answer")
	}
	api := w.api
	connect := func() (net.Conn, error) { // it reads its certificate again
		pair, ca, err := serving(h)
		if err != nil {
			return nil, err
		}
		return api.Release(release(h, "kube-apiserver"), mutual(pair, ca))(context.Background(), "", "")
	}
	w.mu.Unlock()
	port := secured.FindStringSubmatch(argumentsOf(h, "kube-apiserver"))
	if port == nil {
		return errors.New("no --secure-port")
	}
	if err := w.open(h, "kube-apiserver", port[1], false, connect); err != nil {
		return err
	}
	w.mu.Lock()
	w.servers[h.Name] = connect
	w.skewed()
	w.controllersSkewed(h)
	w.mu.Unlock()
	w.reconcile(port[1])
	w.register("")
	return nil
}

// reconcile makes the service kubernetes, with the addresses of the API servers that run; the port that it has it keeps.
func (w *world) reconcile(port string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ips, each []any
	for _, name := range slices.Sorted(maps.Keys(w.servers)) {
		ips = append(ips, map[string]any{"ip": w.at(name)})
		each = append(each, map[string]any{"addresses": []any{w.at(name)}})
	}
	if w.api == nil || ips == nil {
		return
	}
	objects, err := kube.ReadObjects([]byte(strings.ReplaceAll(`apiVersion: v1
kind: Service
metadata: {name: kubernetes, namespace: default}
spec: {ports: [{name: https, port: 443, targetPort: PORT}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: kubernetes, namespace: default}
subsets: [{ports: [{name: https, port: PORT}]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes, namespace: default}
ports: [{name: https, port: PORT}]
`, "PORT", port)))
	w.must(err)
	for _, o := range w.api.Objects() {
		if at := slices.IndexFunc(objects, func(n *unstructured.Unstructured) bool {
			return n.GetKind() == o.GetKind() && n.GetName() == o.GetName() && n.GetNamespace() == o.GetNamespace()
		}); at >= 0 {
			objects[at] = o
		}
	}
	objects[1].Object["subsets"].([]any)[0].(map[string]any)["addresses"] = ips
	objects[2].Object["endpoints"] = each
	for _, o := range objects {
		w.api.Put(o)
	}
}

// located gives a node the address of its host.
func (w *world) located(name string) {
	for _, o := range w.api.Objects() {
		if o.GetKind() == "Node" && o.GetName() == name {
			var ips []any
			for _, ip := range w.ips(name) {
				ips = append(ips, map[string]any{"type": "InternalIP", "address": ip})
			}
			w.must(unstructured.SetNestedSlice(o.Object, ips, "status", "addresses"))
			w.must(unstructured.SetNestedField(o.Object, release(w.hosts[name], "kubelet"), "status", "nodeInfo", "kubeletVersion"))
			boot, _ := w.hosts[name].Get("/proc/sys/kernel/random/boot_id")
			w.must(unstructured.SetNestedField(o.Object, strings.TrimSpace(boot), "status", "nodeInfo", "bootID"))
			w.api.Put(o)
		}
	}
}

// versions match what the programs of fake upstreams, and the manifests of fake pods, say of what they are.
var (
	programVersion = regexp.MustCompile(`v\d+\.\d+\.\d+`)
	podVersion     = regexp.MustCompile(`kubernetesVersion: "?(v[0-9.]+)`)
	imageVersion   = regexp.MustCompile(`imageTag: "?(v[0-9.]+)`)
)

// release is the version of a program on a host, as a static pod or a service has it.
func release(h *runnertest.Host, program string) string {
	manifest, is := h.Get("/etc/kubernetes/manifests/" + program + ".yaml")
	of := podVersion
	if program == "etcd" {
		of = imageVersion
	}
	if m := of.FindStringSubmatch(manifest); is && m != nil {
		return m[1]
	}
	text, _ := h.Get("/usr/local/bin/" + program)
	return programVersion.FindString(cmp.Or(h.Program(program), text))
}

// skewed fails where programs that run do not work together.
//
// Facts: https://kubernetes.io/releases/version-skew-policy
func (w *world) skewed() {
	oldest, newest := 1000, 0
	for name := range w.servers {
		is := config.Minor(release(w.hosts[name], "kube-apiserver"))
		oldest, newest = min(oldest, is), max(newest, is)
	}
	if newest-oldest > 1 && oldest < 1000 {
		w.Errorf("API servers are 1.%d and 1.%d", oldest, newest)
	}
	for name := range w.kubelets {
		if is := config.Minor(release(w.hosts[name], "kubelet")); len(w.servers) > 0 && (is > oldest || newest-is > 3) {
			w.Errorf("the kubelet of %s is 1.%d, the API servers are 1.%d and 1.%d", name, is, oldest, newest)
		}
		if is := w.proxy(name); len(w.servers) > 0 && is > oldest {
			w.Errorf("kube-proxy on %s is 1.%d, the API servers are 1.%d and 1.%d", name, is, oldest, newest)
		}
	}
}

// proxy is the minor version of kube-proxy on a node.
func (w *world) proxy(node string) int {
	for _, o := range w.api.Objects() {
		if o.GetKind() == "DaemonSet" && o.GetName() == "kube-proxy" {
			return config.Minor(programVersion.FindString(fmt.Sprint(o.Object["spec"])))
		}
	}
	return config.Minor(release(w.hosts[node], "kube-proxy"))
}

// controllersSkewed fails where a controller manager or a scheduler is newer than the API server on its host, which it works with.
func (w *world) controllersSkewed(h *runnertest.Host) {
	for _, program := range []string{"kube-controller-manager", "kube-scheduler"} {
		if is, api := release(h, program), release(h, "kube-apiserver"); config.Minor(is) > config.Minor(api) {
			w.Errorf("%s of %s is %s, its API server is %s", program, h.Name, is, api)
		}
	}
}

// serving is the API server's certificate on the host.
func serving(h *runnertest.Host) (pair tls.Certificate, ca string, err error) {
	const dir = "/etc/kubernetes/pki/"
	ca, _ = h.Get(dir + "ca.crt")
	crt, _ := h.Get(dir + "apiserver.crt")
	own, _ := h.Get(dir + "apiserver.key")
	pair, err = tls.X509KeyPair([]byte(crt), []byte(own))
	return pair, ca, err
}

// down ends the API server of a host.
func (w *world) down(h *runnertest.Host) {
	w.mu.Lock()
	delete(w.servers, h.Name)
	w.mu.Unlock()
	w.close(h, "kube-apiserver")
	w.reconcile("")
}

// connect lets a host reach API servers by the names and addresses that they share.
func (w *world) connect(h *runnertest.Host) {
	h.Blocked = map[string]string{}
	for _, port := range apiPorts {
		for _, name := range endpoints {
			h.Serve(name+":"+port, func() (net.Conn, error) { return w.named(h, name, port) })
		}
		for _, address := range []string{w.like(vip), w.like(secondVIP)} {
			h.Blocked[net.JoinHostPort(address, port)] = "No route to host" // nobody has it yet
			h.Serve(net.JoinHostPort(address, port), func() (net.Conn, error) { return w.shared(address, port) })
		}
	}
}

// serverOf is the server of a kubeconfig.
var serverOf = regexp.MustCompile(`server: https://(.*):(\d+)`)

// etcdURLs matches where kubeadm's configuration says that etcd is.
var etcdURLs = regexp.MustCompile(`https://[0-9a-f.:[\]]+:2379`)

// mayJoin looks for what a join needs: an API server, the node's certificate where
// kubeadm and where the kubelet looks, no node of that name, and for a master the same members of etcd in the cluster as on the machine.
func (w *world) mayJoin(h *runnertest.Host) error {
	key := regexp.MustCompile(`(?m)^ +client-key-data: (.*)$`)
	conf, _ := h.Get("/etc/kubernetes/discovery.conf")
	pem, _ := h.Get("/var/lib/kubelet/pki/kubelet-client-current.pem")
	to := serverOf.FindStringSubmatch(conf)
	if to == nil {
		return errors.New("the discovery file has no server")
	}
	conn, err := w.named(h, to[1], to[2])
	if err != nil {
		return fmt.Errorf("dial tcp: %w", err)
	}
	conn.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.api.Objects() {
		if o.GetKind() == "Node" && o.GetName() == h.Name {
			return fmt.Errorf("a Node with name %q and status \"Ready\" already exists in the cluster", h.Name)
		}
		if o.GetKind() == "ConfigMap" && o.GetName() == "kubeadm-config" {
			own, master := h.Get("/var/lib/kubexm/kubeadm.yaml")
			kept, _, _ := unstructured.NestedString(o.Object, "data", "ClusterConfiguration")
			want, got := etcdURLs.FindAllString(own, -1), etcdURLs.FindAllString(kept, -1)
			slices.Sort(want)
			if slices.Sort(got); master && !slices.Equal(got, want) {
				return fmt.Errorf("the cluster says that etcd is at %s, not %s", got, want)
			}
		}
	}
	found := key.FindStringSubmatch(conf)
	if found == nil {
		return errors.New("the discovery file has no key")
	}
	if plain, err := base64.StdEncoding.DecodeString(found[1]); err != nil || !strings.HasSuffix(pem, string(plain)) {
		return errors.New("the kubelet has no certificate, or another one")
	}
	return nil
}

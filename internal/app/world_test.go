//go:debug tlsmlkem=0

package app_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/etcd/etcdtest"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// world is what kubexm works on, in memory: hosts, and the API servers that come up on
// them when the programs are there that make one.
type world struct {
	testing.TB
	dir   string // the work directory
	file  string // the configuration
	hosts map[string]*runnertest.Host
	moved map[string]string // by host: its address, where that is not the first one any more
	first string            // the configuration that it began with

	mu       sync.Mutex
	api      *kubetest.Server                    // what etcd holds; nil: nothing
	servers  map[string]func() (net.Conn, error) // by host: the API servers that run
	ports    map[string]string                   // by host and what listens there for API servers: the port
	kubelets map[string]bool                     // run and may register their nodes
	etcds    *etcdtest.Cluster                   // the etcd of the cluster
	restored string                              // the restoration that it began with; empty: none
	members  map[string]*etcdtest.Member         // its members, by host
	etcd31   *etcdtest.Cluster                   // the etcd that is not kubexm's; nil: there is none
	member31 *etcdtest.Member                    // its only member
	registry http.Handler                        // what was pushed to the private registry; nil: nothing
}

var addresses = map[string]string{
	"node1": "10.0.0.11", "node2": "10.0.0.12", "node3": "10.0.0.13", "node4": "10.0.0.14", "node5": "10.0.0.15", "node6": "10.0.0.16", "node7": "10.0.0.17", "node8": "10.0.0.18",
	"lb1": "10.0.0.21", "lb2": "10.0.0.22",
}

// vip is the address that load balancers share.
const (
	vip       = "10.0.0.100"
	secondVIP = "10.0.0.101"
)

// newWorld makes a world for a configuration, with what it needs already in the
// store unless mirrors says where to get it.
func newWorld(t testing.TB, config, mirrors string) *world {
	t.Helper()
	w := &world{TB: t, dir: t.TempDir(), first: config, hosts: map[string]*runnertest.Host{}, servers: map[string]func() (net.Conn, error){}, ports: map[string]string{}, kubelets: map[string]bool{}}
	w.file = filepath.Join(w.dir, "cluster.yaml")
	if mirrors == "" {
		w.must(os.Symlink(filled(), filepath.Join(w.dir, "packages")))
	} else {
		resourcetest.SigningKey(t, filepath.Join(w.dir, "packages"))
		w.must(resourcetest.Trust(filepath.Join(w.dir, "packages")))
	}
	w.configure(config + mirrors)
	for name := range addresses {
		if !strings.Contains(config, name) {
			continue
		}
		h := runnertest.Debian12(name)
		h.SetIPs(w.ips(name)...)
		w.settle(h)
		w.hosts[name] = h
		w.programs(h)
		if name == "node4" && strings.Contains(config, "type: harbor") {
			w.runDocker(h)
		}
	}
	for _, h := range w.hosts {
		w.connect(h)
	}
	if strings.Contains(config, ":2379") {
		w.runEtcd()
	}
	return w
}

// settle gives a machine what its owner chose before: a name, SELinux, a firewall and a time zone; and to one
// of them systemd-resolved.
func (w *world) settle(h *runnertest.Host) {
	service := func(name string) string {
		exe := "/usr/sbin/" + name
		h.Put(exe, "ELF", 0o755)
		h.Put("/usr/lib/systemd/system/"+name+".service", "[Service]\nType=notify\nExecStart="+exe+"\n[Install]\nWantedBy=multi-user.target\n", 0o644)
		return "systemctl enable --now " + name + "\n"
	}
	for p, text := range map[string]string{
		"/etc/hostname": "machine-of-" + h.Name + "\n", "/proc/sys/kernel/hostname": "machine-of-" + h.Name + "\n", "/etc/timezone": "Etc/UTC\n",
		"/etc/selinux/config": "# of the owner\nSELINUX=enforcing\nSELINUXTYPE=targeted\n", "/sys/fs/selinux/enforce": "1\n",
		"/usr/share/zoneinfo/Etc/UTC": "TZif2", "/usr/share/zoneinfo/Europe/Berlin": "TZif2",
	} {
		h.Put(p, text, 0o644)
	}
	script := "ln -s /usr/share/zoneinfo/Etc/UTC /etc/localtime\n" + service("firewalld")
	if h.Name == "node2" {
		h.OnStart["systemd-resolved.service"] = func(h *runnertest.Host) error {
			h.Put("/run/systemd/resolve/resolv.conf", "nameserver 10.0.0.2\n", 0o644)
			h.Put("/run/systemd/resolve/stub-resolv.conf", "nameserver 127.0.0.53\n", 0o644)
			return nil
		}
		script += service("systemd-resolved") + "ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf\n"
	}
	_, err := h.Runner().Sh(w.Context(), script)
	w.must(err)
	h.ClearLog()
}

func (w *world) configure(text string) { w.must(os.WriteFile(w.file, []byte(text), 0o600)) }

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// programs lets what kubexm puts on a host do what it does.
func (w *world) programs(h *runnertest.Host) {
	kubelet, stopped, kubeadm := h.OnStart["kubelet.service"], h.OnStop["kubelet.service"], h.Programs["kubeadm"]
	h.OnStart["kubelet.service"] = func(h *runnertest.Host) error {
		if err := kubelet(h); err != nil {
			return err
		}
		h.Serve("127.0.0.1:10248", answering(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "ok") }), nil))
		if _, may := h.Get("/etc/kubernetes/kubelet.conf"); may {
			w.register(h.Name)
		}
		return nil
	}
	h.OnStop["kubelet.service"] = func(h *runnertest.Host) {
		stopped(h)
		h.Serve("127.0.0.1:10248", nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.kubelets, h.Name)
	}
	h.OnStart["registry.service"] = w.serveRegistry
	h.OnStop["registry.service"] = func(h *runnertest.Host) { w.serveAt(w.socket(h.Name, "443"), nil) }
	h.OnStart["registry-push.service"] = w.serveRegistryPush
	h.OnStop["registry-push.service"] = func(h *runnertest.Host) { h.Serve("127.0.0.1:5001", nil) }
	for _, service := range []string{"etcd.service", "pod etcd"} {
		h.OnStart[service], h.OnStop[service] = w.etcd, w.etcdDown
	}
	for _, service := range []string{"kube-apiserver.service", "pod kube-apiserver"} {
		h.OnStart[service], h.OnStop[service] = w.serve, w.down
	}
	for process, file := range map[string]string{"haproxy": "/etc/haproxy/haproxy.cfg", "nginx": "/etc/nginx/nginx.conf"} {
		for _, service := range []string{process + ".service", "pod " + process} {
			h.OnStart[service], h.OnStop[service] = w.balance(process, file), func(h *runnertest.Host) { w.close(h, process) }
			h.OnReload[service] = h.OnStart[service]
		}
	}
	for _, port := range apiPorts {
		unit := "kubexm-port-" + port
		h.OnStart[unit+".service"], h.OnStop[unit+".service"] = w.forward(unit), func(h *runnertest.Host) { w.close(h, unit) }
	}
	h.InitConfig = func() (text string) { // what kubeadm keeps in the cluster
		for _, name := range slices.Sorted(maps.Keys(w.hosts)) {
			if text, _ = w.hosts[name].Get("/var/lib/kubexm/kubeadm.yaml"); text != "" && name != h.Name {
				break
			}
		}
		return text
	}
	h.Programs["kubeadm"] = func(c *runnertest.Call) int { return w.kubeadm(c, kubeadm) }
	h.Programs["etcdutl"] = w.etcdutl
}

// kubeadm does what the fake does, with the API server that the real one needs or makes.
func (w *world) kubeadm(c *runnertest.Call, run runnertest.Command) int {
	verb := c.Args[1]
	if verb == "join" {
		if err := w.mayJoin(c.Host); err != nil {
			return c.Failf(1, "[preflight] %v", err)
		}
	}
	status := run(c)
	switch {
	case status != 0:
	case verb == "init" || verb == "join":
		w.register(c.Host.Name)
	}
	return status
}

// register notes that a kubelet runs, and registers all nodes that are not yet.
func (w *world) register(host string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if host != "" {
		w.kubelets[host] = true
	}
	if len(w.servers) == 0 {
		return
	}
	w.skewed()
	known, fence := map[string]bool{}, ""
	for _, o := range w.api.Objects() {
		known[o.GetKind()+" "+o.GetName()] = true
		if o.GetKind() == "ValidatingAdmissionPolicy" {
			fence += fmt.Sprint(o.Object["spec"])
		}
	}
	for name := range w.kubelets {
		if id, _ := w.hosts[name].Get("/etc/machine-id"); strings.Contains(fence, strings.TrimSpace(id)) {
			continue
		}
		if !known["Node "+name] {
			w.api.AddNode(name, true)
		}
		if !known["Node "+name] || name == host || host == "" {
			w.located(name)
		}
	}
}

// objects is all that the API server holds, as text, less what differs from cluster to cluster.
func (w *world) objects() string {
	text := regexp.MustCompile(`(?m)^  id: .*$`).ReplaceAllString(w.everything(), "  id: ID")
	return regexp.MustCompile(`(certificate-authority-data: ).*`).ReplaceAllString(text, "${1}CA")
}

// everything is all that the API server holds, as text.
func (w *world) everything() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.api == nil {
		return ""
	}
	var b strings.Builder
	for _, o := range w.api.Objects() {
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		o.SetGeneration(0)
		if status, ok := o.Object["status"].(map[string]any); ok {
			delete(status, "observedGeneration")
			unstructured.RemoveNestedField(status, "nodeInfo", "bootID") // of machines that may have restarted
		}
		text, err := yaml.Marshal(o)
		w.must(err)
		b.WriteString("---\n")
		b.Write(text)
	}
	return b.String()
}

// snapshot describes all hosts.
func (w *world) snapshot() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.hosts)) {
		fmt.Fprintf(&b, "===== %s\n%s", name, w.hosts[name].Snapshot())
	}
	return b.String()
}

// attempt is one run of kubexm on the world.
type attempt struct {
	app.App
	app.Request
	app.Observer
	*world
	ctx    context.Context
	cancel context.CancelFunc

	Events  []engine.Event
	Notices []string

	around func(h *runnertest.Host, ctx context.Context, c connector.Cmd) error // runs scripts; nil: the host does

	mu    sync.Mutex
	dead  bool // no network
	over  bool // the run has closed its connections
	conns []net.Conn
}

// attempt prepares a run. Time in a synctest bubble stands still while nobody
// sleeps; a run is named after when it began.
func (w *world) attempt(ctx context.Context) *attempt {
	time.Sleep(time.Second)
	a := &attempt{world: w}
	a.ctx, a.cancel = context.WithCancel(ctx)
	a.App, a.Request = app.App{Workdir: w.dir, Dial: a.dial, Store: store.Options{NoSync: true}}, app.Request{File: w.file}
	a.Observer = app.Observer{
		Notice:     func(text string) { a.Notices = append(a.Notices, text) },
		Event:      func(ev engine.Event) { a.Events = append(a.Events, ev) },
		MayRestart: agreed,
	}
	for _, h := range w.hosts {
		h.OnDown = a.hangUp
	}
	return a
}

// kill ends the run as kill -9 does: nothing reaches the hosts any more.
func (a *attempt) kill() {
	a.cut()
	a.cancel()
}

// cut takes the network away from the run.
func (a *attempt) cut() {
	a.mu.Lock()
	a.dead = true
	a.mu.Unlock()
	a.hangUp()
}

// hangUp breaks the connections to the API server.
func (a *attempt) hangUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.conns {
		c.Close()
	}
	a.conns = nil
}

func (a *attempt) lost(host string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dead {
		return fault.Transient(fmt.Errorf("%s: %w", host, runnertest.ErrLost))
	}
	return nil
}

// create makes the cluster. It finds a key for service accounts, the same for all, for to make one takes a while.
func (a *attempt) create() (*app.Result, error) {
	config, _ := os.ReadFile(a.File) // there is none in a test of that
	if name := named.FindSubmatch(config); name != nil && !a.DryRun {
		file := filepath.Join(a.dir, string(name[1]), "certs", string(pki.Kubernetes), "sa.key")
		if _, err := os.Stat(file); err != nil {
			a.must(os.MkdirAll(filepath.Dir(file), 0o700))
			a.must(os.WriteFile(file, serviceAccounts(), 0o600))
		}
	}
	return a.App.Create(a.ctx, a.Request, a.Observer)
}

var (
	named           = regexp.MustCompile(`(?m)^metadata: \{name: (.*)\}$`)
	serviceAccounts = sync.OnceValue(func() []byte {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	})
)

func (a *attempt) delete() (*app.Result, error) { return a.App.Delete(a.ctx, a.Request, a.Observer) }

func (a *attempt) dial(_ context.Context, h *v1alpha1.Host, _ string) (connector.Connector, error) {
	if a.hosts[h.Name] == nil {
		return nil, fault.Transient(errors.New("no route to host"))
	}
	a.mu.Lock()
	a.over = false // a use may be of several runs
	a.mu.Unlock()
	return &link{a.hosts[h.Name], a}, nil
}

// link is a run's connection to a host.
type link struct {
	*runnertest.Host
	run *attempt
}

func (l *link) Exec(ctx context.Context, c connector.Cmd) error {
	if err := l.run.lost(l.Name); err != nil {
		return err
	}
	exec := l.Host.Exec
	if l.run.around != nil {
		exec = func(ctx context.Context, c connector.Cmd) error { return l.run.around(l.Host, ctx, c) }
	}
	err := exec(ctx, c)
	if lost := l.run.lost(l.Name); lost != nil {
		return lost
	}
	return err
}

func (l *link) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := l.run.lost(l.Name); err != nil {
		return nil, err
	}
	c, err := l.Host.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.run.mu.Lock()
	defer l.run.mu.Unlock()
	if l.run.over || l.run.dead { // net/http dials on when nobody waits for it any more
		c.Close()
		return nil, net.ErrClosed
	}
	l.run.conns = append(l.run.conns, c)
	return c, nil
}

func (l *link) Close() error {
	l.run.end()
	return nil
}

// end lets no connection outlive the run.
func (a *attempt) end() {
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
	a.hangUp()
}

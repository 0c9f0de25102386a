package app_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/etcd/etcdtest"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/preflight"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// externalEtcd is where an etcd runs that is not kubexm's.
const externalEtcd = "10.0.0.31:2379"

// etcdCerts is the directory of that etcd's certificates; in scenarios it is called ETCD.
// Time begins in 2000 there.
var etcdCerts = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "kubexm-test-etcd-")
	if err != nil {
		panic(err)
	}
	store := &pki.Store{Dir: dir, Now: func() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }}
	for _, spec := range []pki.Spec{pki.EtcdMember("etcd1", []string{"10.0.0.31", "10.0.0.32"}), pki.EtcdClient("kubernetes"), pki.EtcdClient("other")} {
		if _, err := store.Leaf(spec); err != nil {
			panic(err)
		}
	}
	if err := store.Flush(); err != nil {
		panic(err)
	}
	if err := os.Link(filepath.Join(dir, "etcd", "ca.crt"), filepath.Join(dir, "etcd", "other.crt")); err != nil {
		panic(err)
	}
	return filepath.Join(dir, "etcd")
})

// answering returns a function whose every connection ends at a handler; conf nil: without TLS.
func answering(handler http.Handler, conf *tls.Config) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		here, there := net.Pipe()
		if conf != nil {
			there = tls.Server(there, conf)
		}
		listener := &once{conns: make(chan net.Conn, 1)}
		listener.conns <- there
		close(listener.conns)
		server := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)} // a refused certificate is the client's to report
		go func() { _ = server.Serve(listener) }()
		return here, nil
	}
}

// runEtcd lets all hosts reach the etcd that is not kubexm's.
func (w *world) runEtcd() {
	w.etcd31 = etcdtest.New()
	w.etcd31.Holds(func() []string {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.api == nil {
			return nil
		}
		return []string{"/registry/namespaces/default"}
	})
	w.member31 = w.etcd31.Add("etcd1", "https://"+externalEtcd)
	for _, h := range w.hosts {
		w.reachEtcd31(h)
	}
}

// reachEtcd31 lets a host reach it.
func (w *world) reachEtcd31(h *runnertest.Host) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(etcdCerts(), "member-etcd1.crt"), filepath.Join(etcdCerts(), "member-etcd1.key"))
	w.must(err)
	ca, err := os.ReadFile(filepath.Join(etcdCerts(), "ca.crt"))
	w.must(err)
	conf := mutual(pair, string(ca))
	for _, at := range []string{externalEtcd, "10.0.0.32:2379"} {
		h.Serve(at, func() (net.Conn, error) { return w.member31.Dial(conf) })
	}
}

// mutual is how a server shows a certificate and asks for one of its authority.
func mutual(pair tls.Certificate, ca string) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca))
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
}

// etcd runs the member of a host. It begins with no objects where no member has data.
func (w *world) etcd(h *runnertest.Host) error {
	const data = "/var/lib/etcd/member/snap/db"
	conf := w.memberConf(h)
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := false
	for _, member := range w.hosts {
		_, ok := member.Get(data)
		kept = kept || ok
	}
	text, own := h.Get(data)
	from, backup, isRestored := strings.Cut(text, "\n")
	if !kept || w.api == nil || isRestored && from != w.restored {
		w.api = kubetest.New()
		w.api.Scheduled = true
		w.etcds, w.members = etcdtest.New(), map[string]*etcdtest.Member{}
		w.etcds.Saves(func() []byte { return []byte(w.everything()) })
	}
	if isRestored && from != w.restored {
		w.restored = from
		w.refill(strings.TrimRight(backup, "\x00"))
	}
	own = own && !isRestored
	at, member := w.socket(h.Name, "2379"), w.members[h.Name]
	boot, _ := h.Get("/etc/etcd/bootstrap.env")
	var err error
	switch {
	case own && member != nil:
		err = w.etcds.Restart(member)
	case strings.Contains(boot, "STATE=existing"):
		var peers []string
		for _, m := range initial.FindAllStringSubmatch(boot, -1) {
			peers = append(peers, m[1])
		}
		member, err = w.etcds.Start("https://"+w.socket(h.Name, "2380"), h.Name, "https://"+at, peers...)
	case member != nil && kept && !w.etcds.Removed(member.ID()):
		err = errors.New("member has already been bootstrapped")
	default: // a member from the beginning, or one that kubeadm adds
		member = w.etcds.Add(h.Name, "https://"+at)
	}
	if err != nil {
		return err
	}
	h.Put(data, "objects", 0o600)
	w.members[h.Name] = member
	w.etcds.Set(member, func(m *etcdtest.Member) {
		m.Down, m.ClientURL, m.Version = false, "https://"+at, strings.TrimPrefix(release(h, "etcd"), "v")
	})
	dial := func() (net.Conn, error) { return member.Dial(conf) }
	w.serveAt(at, dial)
	h.Serve("127.0.0.1:2379", dial)
	return nil
}

// etcdutl puts the data of a snapshot where the member of a host begins with it.
func (w *world) etcdutl(c *runnertest.Call) int {
	given := map[string]string{}
	for i := 4; i+1 < len(c.Args); i++ {
		given[c.Args[i]] = c.Args[i+1]
	}
	snapshot, ok := c.Get(c.Args[3])
	switch {
	case !ok || len(snapshot) < 512:
		return c.Failf(1, "no snapshot %s", c.Args[3])
	case !strings.Contains(given["--initial-cluster"], given["--name"]+"="+given["--initial-advertise-peer-urls"]):
		return c.Failf(1, "%s is not in %s", given["--name"], given["--initial-cluster"])
	}
	c.Put(given["--data-dir"]+"/member/snap/db", given["--initial-cluster-token"]+"\n"+snapshot[:len(snapshot)-32], 0o600)
	return 0
}

// refill brings objects back that a snapshot has, nodes first, as others are ready by them.
func (w *world) refill(text string) {
	for _, nodes := range []bool{true, false} {
		for _, part := range strings.Split(text, "---\n")[1:] {
			var o unstructured.Unstructured
			text, err := yaml.YAMLToJSON([]byte(part))
			w.must(err)
			w.must(o.UnmarshalJSON(text))
			if (o.GetKind() == "Node") == nodes {
				w.api.Put(&o)
			}
		}
	}
}

// initial matches the peers that a member begins with.
var initial = regexp.MustCompile(`(?:=|,)\w+=(https://[0-9a-f.:[\]]+)`)

// etcdDown ends the member of a host.
func (w *world) etcdDown(h *runnertest.Host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if member := w.members[h.Name]; member != nil {
		w.etcds.Set(member, func(m *etcdtest.Member) { m.Down = true })
	}
}

// memberConf is what a member shows, which it reads again for each connection, and whom it trusts, which it reads when it starts.
func (w *world) memberConf(h *runnertest.Host) *tls.Config {
	dir := "/etc/ssl/etcd/ssl/"
	authority, cert, key := dir+"ca.pem", dir+"member-"+h.Name+".pem", dir+"member-"+h.Name+"-key.pem"
	if _, own := h.Get(cert); !own {
		dir = "/etc/kubernetes/pki/etcd/"
		authority, cert, key = dir+"ca.crt", dir+"server.crt", dir+"server.key"
	}
	ca, _ := h.Get(authority)
	conf := mutual(tls.Certificate{}, ca)
	conf.Certificates, conf.GetCertificate = nil, func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		shown, _ := h.Get(cert)
		private, _ := h.Get(key)
		pair, err := tls.X509KeyPair([]byte(shown), []byte(private))
		return &pair, err
	}
	return conf
}

// called reports whether a master has with what the user calls the etcd that is not kubexm's.
func (w *world) called(h *runnertest.Host) bool {
	config, err := os.ReadFile(w.file)
	w.must(err)
	client := "node-kubernetes"
	if strings.Contains(string(config), "node-other.crt") {
		client = "node-other"
	}
	for file, name := range map[string]string{"ca.crt": "ca.pem", client + ".crt": "CLIENT.pem", client + ".key": "CLIENT-key.pem"} {
		want, err := os.ReadFile(filepath.Join(etcdCerts(), file))
		w.must(err)
		kubeadm, _ := h.Get("/etc/ssl/etcd/ssl/" + strings.Replace(name, "CLIENT", "apiserver", 1))
		kubexm, _ := h.Get("/etc/ssl/etcd/ssl/" + strings.Replace(name, "CLIENT", "node-"+h.Name, 1))
		if string(want) != kubeadm && string(want) != kubexm {
			return false
		}
	}
	return true
}

// wipe removes what a deleted cluster left in the etcd that is not kubexm's, as the user was told: before, it
// takes no other cluster.
func (w *world) wipe(told []string) {
	if w.etcd31 == nil {
		return
	}
	if !strings.Contains(strings.Join(told, "\n"), "etcdctl del --prefix /registry/") {
		w.Errorf("delete did not tell what is left: %q", told)
	}
	_, err := w.attempt(w.Context()).create()
	if fault.ExitCode(err) != fault.ExitPreflight || !strings.Contains(err.Error(), "like /registry/namespaces/default") {
		w.Errorf("create on an etcd that holds another cluster: %v", err)
	}
	w.api = nil
}

// TestExternalEtcd has etcds that no cluster can be made with, and one of which not all is known.
func TestExternalEtcd(t *testing.T) {
	for name, spoil := range map[string]func(w *world){
		"well":           func(*world) {},
		"out of reach":   func(w *world) { w.hosts["node2"].Serve(externalEtcd, nil) },
		"sick":           func(w *world) { w.etcd31.Set(w.member31, func(m *etcdtest.Member) { m.Alarm = "NOSPACE" }) },
		"too old":        func(w *world) { w.etcd31.Set(w.member31, func(m *etcdtest.Member) { m.Version = "3.5.9" }) },
		"another's":      func(w *world) { w.api = kubetest.New() },
		"hidden":         func(w *world) { w.etcd31.Hide(true) },
		"expired":        func(*world) { time.Sleep(2 * 365 * 24 * time.Hour) },
		"another server": func(w *world) { w.hosts["node1"].Serve(externalEtcd, answering(http.NotFoundHandler(), nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, "row22"), "")
				spoil(w)
				a := w.attempt(t.Context())
				is, err := a.App.Preflight(a.ctx, a.Request, a.Observer)
				w.must(err)
				var b strings.Builder
				for _, f := range is.Findings {
					if f.Check == preflight.Etcd {
						fmt.Fprintf(&b, "%s (%s)\nfound: %s\nneeded: %s\nfix: %s\n\n", f.Host, f.Severity, f.Found, f.Needed, f.Fix)
					}
				}
				golden.Equal(t, b.String())
				a.SkipPreflight = []string{preflight.Etcd}
				if is, err = a.App.Preflight(a.ctx, a.Request, a.Observer); err != nil || !is.Fit {
					t.Errorf("skipped: %v, %v", is, err)
				}
			})
		})
	}
}

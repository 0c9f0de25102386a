package app_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/internal/app"
)

// edited is a configuration with parts of its spec replaced: objects are merged, but for load balancers, lists replaced,
// but for hosts, which are merged by their names.
func edited(t testing.TB, config string, parts ...string) string {
	t.Helper()
	text, err := combine(config, parts...)
	if err != nil {
		t.Fatalf("%v in:\n%s\nor in: %q", err, config, parts)
	}
	return text
}

func combine(config string, parts ...string) (string, error) {
	var conf struct{ Spec map[string]any }
	err := yaml.Unmarshal([]byte(config), &conf)
	for _, p := range parts {
		var part map[string]any
		err = errors.Join(err, yaml.Unmarshal([]byte(p), &part))
		merge(conf.Spec, part)
	}
	text, failed := yaml.Marshal(map[string]any{"spec": conf.Spec})
	head, _, _ := strings.Cut(config, "spec:\n")
	return head + strings.ReplaceAll(string(text), "ETCD/", etcdCerts()+"/"), errors.Join(err, failed)
}

func merge(into, part map[string]any) {
	for k, v := range part {
		old, isMap := into[k].(map[string]any)
		more, both := v.(map[string]any)
		hosts, list := v.([]any)
		switch {
		case k == "loadBalancer" && (more["mode"] != nil || more["enabled"] != nil): // which has nothing of another
			into[k] = v
		case isMap && both:
			merge(old, more)
		case k == "hosts" && list && into[k] != nil:
			for _, h := range hosts {
				for _, was := range into[k].([]any) {
					if was.(map[string]any)["name"] == h.(map[string]any)["name"] {
						merge(was.(map[string]any), h.(map[string]any))
					}
				}
			}
		case v == nil:
			delete(into, k)
		default:
			into[k] = v
		}
	}
}

// agreed lets services be restarted.
func agreed(context.Context, *app.Proposal) error { return nil }

// apply brings the cluster to its configuration.
func (w *world) apply() {
	w.Helper()
	a := w.attempt(w.Context())
	if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err != nil {
		w.Fatalf("apply: %v", err)
	}
}

// proposal is what an apply would do; to look changes nothing.
func (w *world) proposal() *app.Proposal {
	w.Helper()
	before, objects := w.snapshot(), w.everything()
	a := w.attempt(w.Context())
	p, err := a.App.PlanApply(a.ctx, a.Request, a.Observer)
	if err != nil {
		w.Fatalf("plan: %v", err)
	}
	same(w, "hosts after a look", before, w.snapshot())
	same(w, "objects after a look", objects, w.everything())
	return p
}

// settled fails unless there is nothing to do.
func (w *world) settled() {
	w.Helper()
	if p := w.proposal(); !p.Empty() {
		w.Errorf("there is still something to do:\n%s", steps(p))
	}
}

// steps are those that have something to do, and why.
func steps(p *app.Proposal) string {
	var b strings.Builder
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "%s %s\n%s", s.Why, s.Node, s.Diff)
	}
	return b.String()
}

// image is how a world is: its hosts, and its objects.
type image struct {
	hosts   map[string]string
	objects string
}

// What two hosts with one past may differ in: the certificate that is recreated for each join, and fields without a
// value that kubeadm writes into the kubelet's configuration. And what differs by what a host was before, until the
// cluster is deleted: kernel modules and parameters that were set and are wanted no more, directories
// in which the ledger kept files, and programs that were replaced.
var differing = []struct {
	what *regexp.Regexp
	with string
}{
	{joined, "$1"},
	{regexp.MustCompile(`(?m)^interface lo:(dnscache|53053) .*\n`), ""}, // it stays until the next boot
	{regexp.MustCompile(`(?m)^    syncFrequency: 0s\n`), ""},
	{regexp.MustCompile(`(?m)^    \S+/\S+:\S+ sha256:\w+\n`), ""}, // the kubelet removes images that nobody uses and nobody pinned
	{regexp.MustCompile(`(?m)^ +"?(module|sysctl) .*\n`), ""},
	{regexp.MustCompile(`(?m)^(modules:|sysctl ).*\n`), ""},
	{regexp.MustCompile(`(?m)^/var/lib/kubexm/before.*d[rwx-]{9} .*\n`), ""},
	{regexp.MustCompile(`(?m)^/var/lib/kubexm/previous.*\n(    .*\n)*`), ""},
}

func (w *world) image() image {
	is := image{map[string]string{}, strings.ReplaceAll(w.objects(), "spec: {}\n", "")} // of a node that had taints
	for n, h := range w.hosts {
		text := h.Snapshot()
		for _, d := range differing {
			text = d.what.ReplaceAllString(text, d.with)
		}
		is.hosts[n] = text
	}
	return is
}

func (i image) same(t testing.TB, when string, now image) {
	t.Helper()
	for n, want := range i.hosts {
		same(t, n+" "+when, want, now.hosts[n])
	}
	same(t, "objects "+when, i.objects, now.objects)
}

// certs is a copy of the keys and certificates of the cluster. A world that begins with them makes no others: so two
// can be compared, whatever is signed.
func (w *world) certs(name string) string {
	dir := filepath.Join(w.TempDir(), "certs")
	w.must(os.CopyFS(dir, os.DirFS(filepath.Join(w.dir, name, "certs"))))
	return dir
}

// born is how a cluster is that is made with a configuration and certificates.
func born(t *testing.T, name, config, certs string) image {
	t.Helper()
	w := newWorld(t, config, "")
	w.must(os.CopyFS(filepath.Join(w.dir, name, "certs"), os.DirFS(certs)))
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	return w.image()
}

// chronicle notes in which order services stop and start, on all hosts.
type chronicle struct {
	leave map[string]bool // "node1", "node1 etcd": hosts whose services, or one of them, stop for good
	mu    sync.Mutex
	lines []string // "node1 stop etcd.service"
}

var chronicled = regexp.MustCompile(`^(stop|start|fail) (pod )?(etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|kube-proxy|containerd|crio|docker|cri-docker|chrony|haproxy|nginx|keepalived|kube-vip|registry|harbor|systemd-resolved)(\.service)?$`)

// watched begins a chronicle of the world's hosts. Members of etcd that lead and could hand over must not be stopped.
func (w *world) watched() *chronicle {
	c := &chronicle{}
	for n, h := range w.hosts {
		h.Told = func(line string) {
			m := chronicled.FindStringSubmatch(line)
			if m == nil {
				return
			}
			if m[1] == "stop" && m[3] == "etcd" && len(w.members) > 1 && w.etcds.Leader() == n {
				w.Errorf("the member on %s is stopped while it leads", n)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.lines = append(c.lines, n+" "+m[1]+" "+m[3])
		}
	}
	return c
}

// unwatched ends all chronicles.
func (w *world) unwatched() {
	for _, h := range w.hosts {
		h.Told = nil
	}
}

// restarts are the services that were restarted, each with its hosts in their order.
func (c *chronicle) restarts() map[string][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, stopped := map[string][]string{}, map[string]bool{}
	for _, l := range c.lines {
		f := strings.Fields(l)
		switch f[1] {
		case "stop":
			stopped[f[0]+f[2]] = true
		case "start":
			if stopped[f[0]+f[2]] && !slices.Contains(all[f[2]], f[0]) {
				all[f[2]] = append(all[f[2]], f[0])
			}
		}
	}
	return all
}

// apart fails where two hosts were without the same service at one time, of those that others depend on and that are not
// there to go for good.
func (c *chronicle) apart(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	down := map[string][]string{}
	for i, l := range c.lines {
		f := strings.Fields(l)
		host, verb, service := f[0], f[1], f[2]
		if (c.leave[host] || c.leave[host+" "+service] || passing(service, nil)) && !slices.Contains(c.lines[i:], host+" start "+service) {
			continue
		}
		down[service] = slices.DeleteFunc(down[service], func(h string) bool { return h == host })
		if verb == "start" {
			continue
		}
		down[service] = append(down[service], host)
		if alone := slices.Contains([]string{"etcd", "kube-apiserver", "haproxy", "nginx", "keepalived", "kube-vip"}, service); alone && len(down[service]) > 1 {
			t.Errorf("%s is down at one time on %s:\n%s", service, strings.Join(down[service], " and "), strings.Join(c.lines, "\n"))
		}
	}
}

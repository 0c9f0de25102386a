package app_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// told is all that a user is told of an error, without what changes from test to test.
func (a *attempt) told(err error) string {
	var b strings.Builder
	for _, n := range a.Notices {
		fmt.Fprintf(&b, "notice: %s\n", n)
	}
	failures := leaves(err)
	slices.Sort(failures) // nodes fail in no order
	fmt.Fprintf(&b, "error: %s\nadvice: %s\nexit code: %d\n", strings.Join(failures, "\n"), fault.Advice(err), fault.ExitCode(err))
	text := strings.NewReplacer(a.dir, "WORKDIR", a.Workdir, "ELSEWHERE", holder(), "process PID on HOST").Replace(b.String())
	text = regexp.MustCompile(`127\.0\.0\.1:\d{2,}`).ReplaceAllString(text, "MIRROR")
	return regexp.MustCompile(`\d{8}T\d{6}\.\d{3}Z`).ReplaceAllString(text, "TIME")
}

// leaves are the texts of all errors that are joined in err.
func leaves(err error) (texts []string) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []string{err.Error()}
	}
	for _, e := range joined.Unwrap() {
		texts = append(texts, leaves(e)...)
	}
	return texts
}

// trouble is a way in which a run cannot go well.
type trouble struct {
	prep  func(w *world, a *attempt)                        // before the run
	serve func(w http.ResponseWriter, r *http.Request) bool // what upstream answers instead; makes it the source
	run   func(a *attempt) error                            // nil: create
	after func(t *testing.T, w *world, a *attempt)          // what must hold then
}

func ends(file string) func(*http.Request) bool {
	return func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, file) }
}

func brokenContainerd(w *world, _ *attempt) {
	w.hosts["node2"].OnStart["containerd.service"] = func(*runnertest.Host) error { return errors.New("invalid plugin config") }
}

// made makes a cluster and lets change change the configuration.
func made(change func(config string) string) func(*world, *attempt) {
	return func(w *world, a *attempt) {
		if _, err := w.attempt(a.ctx).create(); err != nil {
			w.Fatal(err)
		}
		text, err := os.ReadFile(w.file)
		w.must(err)
		w.configure(change(string(text)))
	}
}

// begun kills a run in its middle and lets change change the configuration.
func begun(change func(config string) string) func(*world, *attempt) {
	return func(w *world, a *attempt) {
		first := w.attempt(a.ctx)
		first.midway(first.kill)
		if _, err := first.create(); err == nil {
			w.Fatal("the killed run ended well")
		}
		w.unfinished()
		text, err := os.ReadFile(w.file)
		w.must(err)
		w.configure(change(string(text)))
		a.Resume = true
	}
}

func with(old, new string) func(string) string {
	return func(config string) string { return strings.Replace(config, old, new, 1) }
}

var (
	errFine = errors.New("it went well")
	errGone = errors.New("the cluster is gone")
)

// fine is a create that goes well in spite of all.
func fine(a *attempt) error {
	if _, err := a.create(); err != nil {
		return err
	}
	a.Notices = nil // what there is to warn of depends on how far an earlier run came
	return errFine
}

func remove(a *attempt) error { _, err := a.delete(); return err }

// isGone returns errGone when nothing is left of a cluster on hosts and on the control machine.
func isGone(a *attempt, hosts ...string) error {
	for _, n := range hosts {
		if _, left := a.hosts[n].Get("/etc/kubernetes/kubelet.conf"); left || strings.Contains(a.hosts[n].Snapshot(), "/var/lib/kubexm") {
			return fmt.Errorf("the cluster is still on %s", n)
		}
	}
	for _, f := range []string{"certs", "admin.conf"} {
		if _, err := os.Stat(filepath.Join(a.Workdir, "row1", f)); err == nil {
			return fmt.Errorf("%s is still there", f)
		}
	}
	_, err := a.App.Status(a.ctx, a.Request, a.Observer)
	if err == nil || !strings.Contains(err.Error(), "there is no cluster row1") || fault.ExitCode(err) != fault.ExitUsage {
		return fmt.Errorf("it is still known: %w", err)
	}
	return errGone
}

// That a full disk on the control machine is told well is seen in package resource.
var troubles = map[string]trouble{
	"wrong checksum": {serve: func(w http.ResponseWriter, r *http.Request) bool {
		if ends("/kubelet")(r) {
			_, _ = w.Write([]byte("something else"))
		}
		return ends("/kubelet")(r)
	}},
	"truncated download": {serve: func(w http.ResponseWriter, r *http.Request) bool {
		if ends("/kubelet")(r) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("the beginning"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		return false
	}},
	"no such version": {serve: func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "runc") {
			http.NotFound(w, r)
		}
		return strings.Contains(r.URL.Path, "runc")
	}},
	"no such image": {serve: func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "coredns") {
			http.NotFound(w, r)
		}
		return strings.Contains(r.URL.Path, "coredns")
	}},
	"mirror down": {serve: func(http.ResponseWriter, *http.Request) bool { return false }, prep: func(w *world, _ *attempt) {
		text, err := os.ReadFile(w.file)
		w.must(err)
		w.configure(regexp.MustCompile(`(https://dl.k8s.io/: http://127.0.0.1):\d+`).ReplaceAllString(string(text), "$1:9"))
	}},

	"host down":               {prep: func(w *world, _ *attempt) { w.hosts["node2"].SetDown(true); w.hosts["node3"].SetDown(true) }},
	"host down, and a master": {prep: func(w *world, _ *attempt) { w.hosts["node1"].SetDown(true); w.hosts["node3"].SetDown(true) }},
	"host down, and a master, allowed": {
		prep: func(w *world, a *attempt) {
			w.hosts["node1"].SetDown(true)
			w.hosts["node3"].SetDown(true)
			a.AllowMissing = true
		},
		after: func(t *testing.T, w *world, _ *attempt) {
			if log := w.hosts["node2"].Log(); len(log) > 0 {
				t.Errorf("node2 was touched: %s", log)
			}
		},
	},
	"all workers down, allowed": {prep: func(w *world, a *attempt) {
		w.hosts["node2"].SetDown(true)
		w.hosts["node3"].SetDown(true)
		a.AllowMissing = true
	}},
	"worker down, allowed, proxy mode open": {prep: func(w *world, a *attempt) {
		w.hosts["node3"].SetDown(true)
		a.AllowMissing = true
	}},
	"no space on a node": {prep: func(w *world, _ *attempt) { w.hosts["node2"].SetFull(true) }},
	"disk fills up": {prep: func(w *world, a *attempt) {
		a.Event = func(ev engine.Event) {
			if ev.Host == "node2" && strings.Contains(string(ev.Node), "kernel-parameters") && ev.Status == engine.Changed { // prepare ends with it
				w.hosts["node2"].SetFull(true)
			}
		}
	}},
	"reboots half way": {prep: func(w *world, a *attempt) {
		a.Event = func(ev engine.Event) {
			if ev.Host == "node2" && strings.Contains(string(ev.Node), "/kubeadm-join@") && ev.Status == engine.Started {
				w.hosts["node2"].SetDown(true)
			}
		}
	}, after: func(t *testing.T, w *world, _ *attempt) {
		w.hosts["node2"].Reboot()
		w.resume(t.Context())
	}},
	"no packages": {prep: func(w *world, _ *attempt) { w.hosts["node2"].Offline = true }},
	"service fails": {prep: brokenContainerd, after: func(t *testing.T, w *world, _ *attempt) {
		for file, there := range map[string]bool{"/etc/hosts": true, "/usr/local/bin/containerd": false, "/etc/containerd/config.toml": false} {
			if _, ok := w.hosts["node2"].Get(file); ok != there {
				t.Errorf("after the rollback %s is there: %t", file, ok)
			}
		}
		if got := w.hosts["node3"].Unit("containerd"); got != "active enabled" {
			t.Errorf("containerd on another host: %s", got)
		}
	}},
	"service fails and is kept": {prep: func(w *world, a *attempt) { brokenContainerd(w, a); a.NoRollBack = true }, after: func(t *testing.T, w *world, _ *attempt) {
		if got := w.hosts["node2"].Unit("containerd"); got != "failed enabled" {
			t.Errorf("containerd without rollback: %s", got)
		}
	}},

	"unfit hosts": {prep: func(w *world, _ *attempt) {
		w.hosts["node1"].TakePort(6443, "nginx")
		w.hosts["node1"].Put("/etc/kubernetes/admin.conf", "x", 0o600)
		w.hosts["node2"].Put("/var/lib/kubexm/env", "cluster=other\n", 0o644)
		w.hosts["node2"].CPUs, w.hosts["node2"].MemoryMiB = 1, 900
		w.hosts["node3"].Put("/etc/os-release", "ID=slackware\nVERSION_ID=\"15.0\"\nPRETTY_NAME=\"Slackware 15.0\"\n", 0o644)
	}, after: func(t *testing.T, w *world, _ *attempt) {
		for name, h := range w.hosts {
			log := slices.DeleteFunc(h.Log(), func(l string) bool { return strings.Contains(l, "/run/kubexm/lock") }) // node2 is known
			if len(log) > 0 {
				t.Errorf("%s was touched: %s", name, log)
			}
		}
	}},
	"unfit hosts skipped": {prep: func(w *world, a *attempt) {
		w.hosts["node1"].TakePort(10250, "nginx")
		w.hosts["node3"].Put("/etc/os-release", "ID=slackware\nVERSION_ID=\"15.0\"\nPRETTY_NAME=\"Slackware 15.0\"\n", 0o644)
		a.SkipPreflight = []string{"os"}
	}},
	"out of reach": {prep: func(w *world, a *attempt) {
		for _, h := range w.hosts { // as kubexm turns it off, its rules are no more than a warning
			_, err := h.Runner().Sh(a.ctx, "systemctl stop firewalld 2>/dev/null || true")
			w.must(err)
		}
		w.hosts["node1"].Blocked = map[string]string{"10.0.0.12:10250": "No route to host"}
		w.hosts["node2"].Blocked = map[string]string{"10.0.0.11:6443": ""}
		w.hosts["node3"].Blocked = map[string]string{"10.0.0.11:6443": "", "10.0.0.12:10250": ""} // no worker asks another's kubelet
	}},
	"out of reach, skipped": {prep: func(w *world, a *attempt) {
		w.hosts["node2"].Blocked = map[string]string{"10.0.0.11:6443": ""}
		a.SkipPreflight = []string{"reachability"}
	}, run: fine},
	"lost while trying":       {prep: func(w *world, _ *attempt) { w.hosts["node2"].Fail("/dev/tcp", runnertest.ErrLost) }},
	"unknown preflight check": {prep: func(_ *world, a *attempt) { a.SkipPreflight = []string{"os", "memmory"} }},

	"at the same time": {run: func(a *attempt) error {
		var err error
		first := a.world.attempt(a.ctx)
		first.Begin = func(string, *plan.ExecutionGraph) { _, err = a.create() }
		if _, err := first.create(); err != nil {
			a.Fatal(err)
		}
		return err
	}},
	"other network": {prep: made(with("network: {", "network: {podCIDR: 10.100.0.0/16, "))},
	"other family":  {prep: made(clustertest.ToIPv6)},
	"second family": {prep: made(clustertest.ToDualStack), run: func(a *attempt) error {
		_, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		return err
	}},
	"other version": {prep: made(with("version: v1.37.1", "version: v1.36.4"))},
	"other kubelet settings, begun": {prep: func(w *world, a *attempt) {
		begun(with("type: kubeadm,", "type: kubeadm, maxPods: 50,"))(w, a)
		a.Resume = false
	}, run: fine},
	"roles and network at once": {prep: made(func(config string) string {
		return with("network: {", "network: {serviceCIDR: 10.96.0.0/16, ")(with("roles: [worker]}", "roles: [worker, registry]}")(config))
	})},
	"a new label": {prep: made(with("roles: [worker]}", "roles: [worker], labels: {a: b}}")), run: fine},
	"elsewhere, same name": {prep: func(w *world, a *attempt) {
		made(with("", ""))(w, a)
		a.Workdir = w.TempDir()
	}, after: func(t *testing.T, w *world, _ *attempt) {
		if w.api == nil {
			t.Error("the cluster is gone")
		}
	}},
	"delete elsewhere": {prep: func(w *world, a *attempt) { made(with("", ""))(w, a); a.Workdir = w.TempDir() }, run: remove},
	"delete elsewhere by force": {prep: func(w *world, a *attempt) { made(with("", ""))(w, a); a.Workdir, a.Force = w.TempDir(), true }, run: func(a *attempt) error {
		if err := remove(a); err != nil {
			return err
		}
		return isGone(a, "node1", "node2", "node3")
	}},
	"delete without a host": {
		prep: func(w *world, a *attempt) { made(with("", ""))(w, a); w.hosts["node3"].SetDown(true) }, run: remove,
		after: func(t *testing.T, w *world, a *attempt) {
			if _, err := os.Stat(filepath.Join(w.dir, "row1", "certs", "kubernetes", "ca.key")); err != nil {
				t.Errorf("the keys are gone, the cluster is not: %v", err)
			}
			w.hosts["node3"].SetDown(false)
			if _, err := w.attempt(t.Context()).delete(); err != nil {
				t.Errorf("the next delete: %v", err)
			}
			if err := isGone(a, "node1", "node2", "node3"); err != errGone {
				t.Error(err)
			}
		},
	},
	"delete without a host by force": {
		prep: func(w *world, a *attempt) { made(with("", ""))(w, a); w.hosts["node3"].SetDown(true); a.Force = true },
		run: func(a *attempt) error {
			if err := remove(a); err != nil {
				return err
			}
			return isGone(a, "node1", "node2")
		},
	},
	"delete machines recreated": {prep: func(w *world, a *attempt) {
		made(with("", ""))(w, a)
		for _, h := range w.hosts {
			h.Remove("/var/lib/kubexm/env")
		}
	}, run: remove},
	"delete with another directory": {prep: made(with("spec:\n", "spec:\n  runtime: {dataRoot: /data/other}\n")), run: remove},
	"data of others": {prep: func(w *world, _ *attempt) {
		w.hosts["node2"].Put("/var/lib/containerd/io.containerd.content.v1.content/blobs/sha256/1", "moby", 0o600)
	}},
	"clocks": {prep: func(w *world, _ *attempt) {
		w.hosts["node2"].Skew = -8 * time.Hour
		w.hosts["node3"].Skew = 20 * time.Second
	}},
	"resume what a power cut left": {prep: func(w *world, a *attempt) { begun(with("", ""))(w, a); w.older(true) }, run: fine, after: func(t *testing.T, _ *world, a *attempt) {
		runs, err := a.App.Runs(a.Request)
		if err != nil || len(runs) != 2 || runs[0].Result != "cut off" || runs[0].Pipeline != "create" || runs[0].Started.IsZero() {
			t.Errorf("recorded: %+v, %v", runs, err)
		}
	}},
	"delete what a power cut left": {prep: func(w *world, a *attempt) { made(with("", ""))(w, a); w.older(true) }, run: func(a *attempt) error {
		if err := remove(a); err != nil {
			return err
		}
		return isGone(a, "node1", "node2", "node3")
	}},
	"resume without run": {prep: func(_ *world, a *attempt) { a.Resume = true }},
	"resume after the clock was set back": {prep: func(w *world, a *attempt) {
		made(with("", ""))(w, a) // in the year 2000, where bubbles begin
		w.older(false)
		w.later("2999")
		begun(with("", ""))(w, a)
	}, run: fine},
	"resume what is done": {prep: func(w *world, a *attempt) { made(with("", ""))(w, a); a.Resume = true }},
	"resume a delete": {prep: func(w *world, a *attempt) {
		made(with("", ""))(w, a)
		if _, err := w.attempt(a.ctx).delete(); err != nil {
			w.Fatal(err)
		}
		w.unfinished()
		a.Resume = true
	}},
	"resume with another password": {prep: func(w *world, a *attempt) {
		text, err := os.ReadFile(w.file)
		w.must(err)
		w.configure(with("spec:\n", "spec:\n  registry: {auth: {registry.example.com: {username: ops, password: one}}}\n")(string(text)))
		begun(with("password: one", "password: two"))(w, a)
	}},
	"resume changed": {prep: begun(with("type: kubeadm,", "type: kubeadm, maxPods: 50,"))},
	"delete another's": {prep: func(w *world, _ *attempt) {
		w.hosts["node2"].Put("/var/lib/kubexm/env", "cluster=other\n", 0o644)
	}, run: func(a *attempt) error { _, err := a.delete(); return err }},

	"delete a stranger's": {prep: func(w *world, _ *attempt) {
		w.hosts["node2"].Put("/etc/kubernetes/admin.conf", "x", 0o600)
	}, run: func(a *attempt) error {
		if _, err := a.delete(); err != nil {
			return err
		}
		return fmt.Errorf("nothing: %q", a.hosts["node2"].Log())
	}},

	"no configuration": {prep: func(w *world, a *attempt) { a.File = filepath.Join(w.dir, "none.yaml") }},
	"no cluster named": {prep: func(_ *world, a *attempt) { a.File = "" }},
	"bad configuration": {prep: func(w *world, _ *attempt) {
		w.configure(strings.Replace(row(w, "row1"), "kubernetes:", "kubernets:", 1))
	}},
	"another name":     {prep: func(_ *world, a *attempt) { a.Name = "production" }},
	"unknown pipeline": {run: func(a *attempt) error { _, err := a.App.Plan(a.ctx, a.Request, a.Observer, "destroy"); return err }},
}

func TestTroubles(t *testing.T) {
	all := maps.Clone(troubles)
	maps.Copy(all, keyTroubles)
	maps.Copy(all, identityTroubles)
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mirrors := ""
			if c.serve != nil {
				u := resourcetest.New()
				defer u.Close()
				u.Fail(c.serve)
				mirrors = u.Mirrors()
			}
			var told string
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, "row1"), mirrors)
				a := w.attempt(t.Context())
				if c.prep != nil {
					c.prep(w, a)
				}
				run := c.run
				if run == nil {
					run = func(a *attempt) error { _, err := a.create(); return err }
				}
				err := run(a)
				if err == nil {
					t.Fatal("went well")
				}
				told = a.told(err)
				if c.after != nil {
					c.after(t, w, a)
				}
			})
			golden.File(t, filepath.Join("testdata", strings.ReplaceAll(t.Name(), " ", "_")), told)
		})
	}
}

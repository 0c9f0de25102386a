package app_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/preflight"
	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestOffline makes clusters of what was downloaded and packed on another machine,
// without a request to anybody: hosts get the packages that they lack from there, too.
func TestOffline(t *testing.T) {
	for _, name := range []string{"registry", "row2", "row3", "row21", "harbor", "calico", "cilium", "crio", "crio-registry", "docker"} { // one of each kind of control plane, etcd and balancer
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := resourcetest.New()
			defer u.Close()
			bundle := packed(t, row(t, name)+u.Mirrors(), "debian12")
			var requests atomic.Int64
			u.Fail(func(w http.ResponseWriter, _ *http.Request) bool {
				requests.Add(1)
				w.WriteHeader(http.StatusBadGateway)
				return true
			})
			w := newWorld(t, row(t, name), u.Mirrors()+"    offline: true\n")
			res, err := (&app.App{Workdir: w.dir}).Import(t.Context(), app.Request{}, app.Observer{}, []string{bundle}, "")
			if err != nil || len(res.Imported) != 1 || res.Imported[0].Added == 0 {
				t.Fatalf("import: %+v, %v", res, err)
			}
			d, err := (&app.App{Workdir: w.dir, Here: resolver(true)}).NewDownload(t.Context(), app.Request{File: w.file}, app.Observer{}, app.Selection{Archs: []string{"amd64"}, Systems: []string{"debian12"}})
			w.must(err)
			if res, err = d.Run(app.Bundle{})(t.Context(), app.Request{}, app.Observer{}); err != nil || res.Summary.OK != res.Summary.Total {
				t.Errorf("download of what is there: %+v, %v", res, err)
			}
			for _, h := range w.hosts {
				h.Offline = true
			}
			bubble(t, func(t *testing.T) { offline(t, w) })
			if n := requests.Load(); n > 0 {
				t.Errorf("%d requests went out", n)
			}
		})
	}
}

// resolver is a machine that knows what packages of Debian depend on.
func resolver(offline bool) *runnertest.Host {
	h := runnertest.Debian12("here")
	h.Put("/usr/share/keyrings/debian-archive-keyring.gpg", "keys", 0o644)
	h.Offline = offline
	return h
}

// packed downloads what a configuration and its hosts need, and returns the bundle of it.
func packed(t *testing.T, config string, systems ...string) string {
	t.Helper()
	dir := t.TempDir()
	r := app.Request{File: filepath.Join(dir, "cluster.yaml")}
	bundle := filepath.Join(dir, "bundle.tar.zst")
	err := errors.Join(os.WriteFile(r.File, []byte(config), 0o600), resourcetest.Trust(filepath.Join(dir, "packages")))
	if err != nil {
		t.Fatal(err)
	}
	d, err := (&app.App{Workdir: dir, Here: resolver(false)}).NewDownload(t.Context(), r, app.Observer{}, app.Selection{Archs: []string{"amd64"}, Systems: systems})
	if err != nil {
		t.Fatal(err)
	}
	charts := 0 // were fetched to know what else is needed
	for _, i := range d.Items {
		if chart := strings.HasPrefix(i.String(), "chart "); chart && i.There {
			charts++
		} else if i.There || i.Size <= 0 {
			t.Errorf("before: %+v", i)
		}
	}
	res, err := d.Run(app.Bundle{File: bundle})(t.Context(), r, app.Observer{})
	if err != nil || len(res.Bundle) != 1 || res.Summary.Changed != len(d.Items)+1-charts {
		t.Fatalf("download: %+v, %v", res, err)
	}
	return bundle
}

func offline(t *testing.T, w *world) {
	before := w.installed()
	res, err := w.attempt(t.Context()).create()
	if err != nil || res.Summary.Changed == 0 {
		t.Fatalf("create: %+v, %v", res, err)
	}
	after := w.snapshot()
	if strings.Contains(after, runner.StateDir+"/packages") {
		t.Error("packages of the store are left on hosts")
	}
	a := w.attempt(t.Context())
	var asked, fetched atomic.Int64
	a.around = func(h *runnertest.Host, ctx context.Context, c connector.Cmd) error {
		for at, n := range map[string]*atomic.Int64{"dpkg-query": &asked, "apt-get -": &fetched} {
			if strings.Contains(c.Line, at) {
				n.Add(1)
			}
		}
		return h.Exec(ctx, c)
	}
	res, err = a.create()
	if err != nil || res.Summary.OK != res.Summary.Total {
		t.Errorf("second run: %+v, %v", res, err)
	}
	same(t, "hosts after the second run", after, w.snapshot())
	if asked.Load() == 0 || fetched.Load() > 0 {
		t.Errorf("packages that are installed: %d looks at what is there, %d at repositories", asked.Load(), fetched.Load())
	}
	if res, err = w.attempt(t.Context()).delete(); err != nil {
		t.Errorf("delete: %+v, %v", res, err)
	}
	same(t, "packages after the cluster", before, w.installed())
}

// installed are the packages of all hosts.
func (w *world) installed() string {
	var all []string
	for name, h := range w.hosts {
		all = append(all, name+": "+strings.Join(h.Installed(), " ")+"\n")
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// Without a network and with a gap in the store nothing is begun.
func TestOfflineWithGaps(t *testing.T) {
	u := resourcetest.New()
	defer u.Close()
	w := newWorld(t, row(t, "row1"), u.Mirrors()+"    offline: true\n")
	before := w.snapshot()
	var text strings.Builder
	tell := func(what string, dry bool) {
		a := w.attempt(t.Context())
		a.DryRun = dry
		_, err := a.create()
		fmt.Fprintf(&text, "== %s\nerror: %v\nadvice: %s\n", what, err, fault.Advice(err))
		same(t, what+": hosts", before, w.snapshot())
	}
	tell("nothing is there", true)
	_, err := (&app.App{Workdir: w.dir}).Import(t.Context(), app.Request{}, app.Observer{}, []string{packed(t, row(t, "row1")+u.Mirrors())}, "")
	w.must(err)
	tell("packages of the operating system are missing", false)
	w.hosts["node1"].Put("/etc/os-release", "ID=debian\nVERSION_ID=99\nPRETTY_NAME=\"Debian 99\"\n", 0o644)
	before = w.snapshot()
	is, err := (&app.App{Workdir: w.dir, Dial: w.attempt(t.Context()).Dial}).Preflight(t.Context(), app.Request{File: w.file}, app.Observer{})
	w.must(err)
	for _, f := range is.Findings {
		if f.Severity == preflight.SeverityError {
			fmt.Fprintf(&text, "== preflight of another system\n%s: found %s; fix: %s\n", f.Check, f.Found, f.Fix)
		}
	}
	store := filepath.Join(w.dir, "packages")
	kubelets, _ := filepath.Glob(store + "/kubelet/*/amd64/kubelet")
	if err := errors.Join(os.Remove(kubelets[0]), os.RemoveAll(store+"/images")); err != nil {
		t.Fatal(err)
	}
	tell("some is missing", false)
	golden.Equal(t, strings.ReplaceAll(text.String(), w.dir, "DIR"))
}

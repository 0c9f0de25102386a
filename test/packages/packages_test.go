//go:build e2e

package packages

import (
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// conf asks for all packages that any feature brings.
const conf = `apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: proof}
spec:
  hosts:
  - {name: node1, address: 192.0.2.1, arch: amd64, roles: [master, etcd]}
  - {name: node2, address: 192.0.2.2, arch: amd64, roles: [master, etcd]}
  - {name: node3, address: 192.0.2.3, arch: amd64, roles: [master, etcd]}
  - {name: node4, address: 192.0.2.4, arch: amd64, roles: [worker]}
  - {name: lb1, address: 192.0.2.5, arch: amd64, roles: [loadbalancer]}
  loadBalancer: {mode: external, vip: 192.0.2.100, external: {type: kubexm-kh}}
  kubernetes: {type: kubexm, proxyMode: ipvs}
  etcd: {type: kubexm}
  network: {plugin: flannel}
  system:
    ntpServers: [192.0.2.9]
    timezone: UTC
    debs: [nginx, libnginx-mod-stream, nfs-common, open-iscsi]
    rpms: [kx-top]
  source:
    mirrors:
`

// carried downloads the packages of systems for the configuration, and brings them in a bundle to the store of another
// machine, which is returned. Packages come from a mirror of what is published at a place, which wants a login and has a
// CA of its own. Programs and images are stand-ins.
func carried(t *testing.T, place string, published http.Handler, systems ...string) *resource.Store {
	t.Helper()
	u := resourcetest.New()
	t.Cleanup(u.Close)
	mirror := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, word, _ := r.BasicAuth(); name != "me" || word != "hush" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		published.ServeHTTP(w, r)
	}))
	t.Cleanup(mirror.Close)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: mirror.Certificate().Raw}), 0o600))
	text := conf
	sources := u.Sources()
	sources[place] = mirror.URL + "/"
	for _, from := range slices.Sorted(maps.Keys(sources)) {
		text += "      " + from + ": " + sources[from] + "\n"
	}
	text += "    access: {\"" + mirror.URL + "\": {username: me, password: hush, caFile: " + ca + "}}\n"
	r, o := app.Request{File: filepath.Join(dir, "cluster.yaml")}, app.Observer{Notice: func(text string) { t.Log(text) }}
	bundle, workdir := filepath.Join(dir, "bundle.tar.zst"), t.TempDir()
	must(t, os.WriteFile(r.File, []byte(text), 0o600))
	d, err := (&app.App{Workdir: dir}).NewDownload(t.Context(), r, o, app.Selection{Systems: systems})
	must(t, err)
	_, err = d.Run(app.Bundle{File: bundle})(t.Context(), r, o)
	must(t, err)
	for _, i := range d.Items {
		if i.System != "" {
			t.Logf("%s: %d bytes from %s", i, i.Size, i.From)
		}
	}
	_, err = (&app.App{Workdir: workdir}).Import(t.Context(), app.Request{}, app.Observer{}, []string{bundle}, "")
	must(t, err)
	store, err := resource.Open(filepath.Join(workdir, "packages"), source.Config{Offline: true})
	must(t, err)
	v, err := store.Verify(t.Context())
	must(t, err)
	if len(v.Flaws) > 0 {
		t.Fatalf("the imported store: %+v", v.Flaws)
	}
	return store
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDebian installs everything on Debian 12 and 13 without a network, and takes it away again.
func TestDebian(t *testing.T) {
	systems := map[string]string{"debian12": "bookworm", "debian13": "trixie"}
	hosts := map[string]*runner.Runner{}
	for name, codename := range systems {
		_, hosts[name] = newSystem(t, codename, "systemd-timesyncd") // makes room for chrony
	}
	if _, err := os.Stat("/usr/share/keyrings/debian-archive-keyring.gpg"); err != nil {
		t.Skip("this machine has no debian-archive-keyring")
	}
	debian := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "deb.debian.org"}) }}
	store := carried(t, "http://deb.debian.org/", debian, slices.Sorted(maps.Keys(systems))...)
	sets, err := store.PackageSets()
	must(t, err)
	if len(sets) != len(systems) {
		t.Fatalf("%d sets", len(sets))
	}
	for _, set := range sets {
		t.Run(set.System, func(t *testing.T) {
			const sources = "find /etc/apt /var/lib/apt/lists -type f ! -name lock -exec ls -l --full-time {} +\n"
			const look = sources + "dpkg-query -W"
			r := hosts[set.System]
			before, err := r.Sh(t.Context(), look)
			must(t, err)
			p := step.Packages{Manager: "apt", Names: set.Names, From: &resource.Repository{System: set.System, Arch: set.Arch, Store: store}}
			install(t, r, p)
			out, err := r.Sh(t.Context(), "haproxy -v | head -1; nginx -v 2>&1; socat -V | sed -n 2p; chronyd --version; nft --version; grep -c ^package "+runner.StateDir+"/ledger")
			must(t, err)
			t.Log(out)
			tellSizes(t, r, p.From, set)
			must(t, r.Restore(t.Context(), func(text string) { t.Log(text) }))
			after, err := r.Sh(t.Context(), look)
			must(t, err)
			if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")); diff != "" {
				t.Errorf("after Restore:\n%s", diff)
			}
		})
	}
}

// tellSizes says how much of a set was brought to a host.
func tellSizes(t *testing.T, r *runner.Runner, from *resource.Repository, set resource.PackageSet) {
	t.Helper()
	names, err := r.Sh(t.Context(), "sed -n 's/^package //p' "+runner.StateDir+"/ledger")
	must(t, err)
	files, err := from.Files(strings.Fields(names))
	must(t, err)
	var brought, all int64
	for _, f := range files {
		brought += f.Size
	}
	for _, f := range set.Files {
		all += f.Size
	}
	t.Logf("%d names: brought %d packages, %d bytes, of a set of %d, %d bytes", len(set.Names), len(files), brought, len(set.Files), all)
}

// install runs a step as the engine does.
func install(t *testing.T, r *runner.Runner, p step.Packages) {
	t.Helper()
	c, err := p.Precheck(t.Context(), r)
	must(t, err)
	if c == nil {
		t.Fatal("nothing to install")
	}
	must(t, c.Run(t.Context()))
	must(t, step.Verify(t.Context(), r, p, c))
	left, err := r.Exists(t.Context(), runner.StateDir+"/packages", runner.StateDir+"/sums"+runner.StateDir+"/packages")
	must(t, err)
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// run runs a program of this machine.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

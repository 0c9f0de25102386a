package app_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestBuild builds without a host, twice, and installs what was built and nothing else.
func TestBuild(t *testing.T) {
	for _, name := range []string{"row1", "row2", "row7", "row21", "registry"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) { builds(t, newWorld(t, row(t, name), "")) })
		})
	}
}

func builds(t *testing.T, w *world) {
	w.hosts["node2"].Put("/proc/1/status", "CapBnd:\t0000000000000000\n", 0o444) // may not raise limits
	blind := app.App{Workdir: w.dir, Dial: func(context.Context, *v1alpha1.Host, string) (connector.Connector, error) {
		t.Error("a build connects to hosts")
		return nil, errors.New("no host can be reached")
	}}
	build := func(changed, assumed bool) *app.Built {
		t.Helper()
		b, err := blind.Build(t.Context(), app.Request{File: w.file}, app.Observer{})
		w.must(err)
		for _, h := range b.Hosts {
			if h.Files == 0 || h.Assumed != (assumed && h.Name != "objects") || h.Changed > 0 && !changed {
				t.Errorf("built: %+v", h)
			}
		}
		return b
	}
	install := func() error {
		a := w.attempt(t.Context())
		_, err := a.Install(a.ctx, a.Request, a.Observer)
		return err
	}
	untouched := w.snapshot()
	refused := func(texts ...string) {
		t.Helper()
		err := install()
		if err == nil || fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(fault.Advice(err), "kubexm build cluster") {
			t.Fatalf("installed, or for another reason not: %v", err)
		}
		for _, text := range texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q is not in %v", text, err)
			}
		}
		same(t, "hosts", untouched, w.snapshot())
	}
	dir := build(true, true).Dir
	first := tree(t, dir)
	build(false, true)
	same(t, "what is built again", first, tree(t, dir))
	refused("node2: /etc/systemd/system/containerd.service.d/kubexm-containerd.conf differs", "-LimitNPROC=infinity")
	build(true, false) // the install that refused has asked the hosts

	conf := filepath.Join(dir, "node1/etc/containerd/config.toml")
	was, err := os.ReadFile(conf)
	w.must(err)
	w.must(os.WriteFile(conf, append(slices.Clone(was), "debug = true\n"...), 0o600))
	w.must(os.WriteFile(filepath.Join(dir, "node2/etc/mine"), nil, 0o600))
	w.must(os.Remove(filepath.Join(dir, "node1/etc/systemd/system/containerd.service")))
	refused("node1: /etc/systemd/system/containerd.service is missing", "node1: /etc/containerd/config.toml differs", "debug = true", "node2: /etc/mine is no longer part of it")
	build(true, false)
	secret := filepath.Join(dir, "node1/etc/crictl.yaml") // as if it had been one
	w.must(errors.Join(os.Remove(secret), os.WriteFile(secret, []byte("token: s3cret\n"), 0o600)))
	if err := install(); err == nil || !strings.Contains(err.Error(), "/etc/crictl.yaml differs") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a difference to a secret: %v", err)
	}
	build(true, false)
	w.must(os.Mkdir(filepath.Join(dir, "node9"), 0o700))
	w.records(func(_ string, st store.Store) { w.must(st.KeepBuilt([]string{"node1", "node9", "objects"})) })
	refused("node9: was built, but is no longer a host")
	build(true, false)
	if _, err := os.Stat(filepath.Join(dir, "node9")); err == nil {
		t.Error("what was built for a host that is gone stays")
	}
	w.must(install())
	compare(t, w, dir)
	a := w.attempt(t.Context())
	if res, err := a.Install(a.ctx, a.Request, a.Observer); err != nil || res.Summary.OK != res.Summary.Total {
		t.Errorf("second install: %+v, %v", res, err)
	}
	if _, err := w.attempt(t.Context()).delete(); err != nil {
		t.Fatal(err)
	}
	if left := tree(t, dir); strings.Contains(left, "node1") || strings.Contains(left, "objects") {
		t.Errorf("after delete there are\n%s", left)
	}
}

// tree describes what was built: paths and content.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := fs.WalkDir(os.DirFS(dir), ".", func(at string, e fs.DirEntry, err error) error {
		top, _, nested := strings.Cut(at, "/")
		if err != nil || e.IsDir() || !nested || top == "runs" || top == "certs" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, at))
		info, infoErr := e.Info()
		b.WriteString(at + " " + info.Mode().String() + "\n" + string(text))
		return errors.Join(err, infoErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// compare wants on hosts what was built for them, byte for byte; and in the cluster's
// directory no name that a host may have, but those that no host gets.
func compare(t *testing.T, w *world, dir string) {
	t.Helper()
	kept := []string{"certs", "lock", "objects", "runs"} // see pkg/config
	all, err := os.ReadDir(dir)
	w.must(err)
	for _, e := range all {
		h := w.hosts[e.Name()]
		if h == nil {
			if !strings.ContainsAny(e.Name(), "._") && !slices.Contains(kept, e.Name()) {
				t.Errorf("%s could be the name of a host", e.Name())
			}
			continue
		}
		root := filepath.Join(dir, e.Name())
		w.must(filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			at := strings.TrimPrefix(file, root)
			built, err := os.ReadFile(file)
			is, there := h.Get(at)
			joining := at == "/etc/kubernetes/kubeadm-join.yaml" && !there // taken away after the join
			kubeadms := at == "/var/lib/kubelet/config.yaml"               // with kubeadm it has the same fields in kubeadm's order
			_, byKubeadm := h.Get("/var/lib/kubexm/kubeadm")
			if !joining && (!kubeadms || !byKubeadm) && !strings.Contains(is, string(bytes.TrimSuffix(built, []byte("\n")))) {
				t.Errorf("%s of %s is not what was built:\n%s", at, h.Name, is)
			}
			return err
		}))
	}
}

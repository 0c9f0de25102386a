package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestUpgradePlan tells what is to be downloaded, which is nothing after a prefetch, and how long it takes by the last upgrade.
func TestUpgradePlan(t *testing.T) {
	server := resourcetest.New()
	defer server.Close()
	bubble(t, func(t *testing.T) {
		is := edited(t, row(t, "row2")+server.Mirrors(), "upgrade: {pause: 20m}")
		w := newWorld(t, ofRelease(t, is, "34"), " ")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		to := map[string]string{"spec.kubernetes.version": "v1.37.1"}
		plan := func() *app.Upgrading {
			t.Helper()
			a := w.attempt(t.Context())
			u, err := a.App.PlanUpgrade(a.ctx, a.Request, a.Observer, to)
			w.must(err)
			return u
		}
		before := w.snapshot()
		u := plan()
		if len(u.Path) != 3 || len(u.Fetched) != 3 || u.Lasts != 0 {
			t.Fatalf("path %v, %d downloads, takes %s", u.Path, len(u.Fetched), u.Lasts)
		}
		for i, f := range u.Fetched {
			lacks := map[string]bool{}
			for _, item := range f.Items {
				lacks[item.String()] = true
			}
			if want := "kubelet " + strings.TrimPrefix(u.Path[i].Kubernetes, "v") + " amd64"; !lacks[want] || f.Bytes <= 0 {
				t.Errorf("run %d: %d items, %d bytes, %s among them: %t", i+1, len(f.Items), f.Bytes, want, lacks[want])
			}
		}
		a := w.attempt(t.Context())
		d, err := a.App.Prefetch(a.ctx, a.Request, a.Observer, to)
		w.must(err)
		_, err = d.Run(app.Bundle{})(a.ctx, a.Request, a.Observer)
		w.must(err)
		same(t, "hosts", before, w.snapshot())
		for i, f := range plan().Fetched {
			if len(f.Items) > 0 {
				t.Errorf("run %d still downloads %v", i+1, f.Items)
			}
		}
		a = w.attempt(t.Context())
		_, err = a.App.Upgrade(a.ctx, a.Request, a.Observer, map[string]string{"spec.kubernetes.version": config.VersionsFor("v1.35.0").Kubernetes})
		w.must(err)
		if u = plan(); u.Lasts < 15*time.Minute || u.Lasts > 25*time.Minute {
			t.Errorf("two more runs, by one that paused for 20 minutes, take %s", u.Lasts)
		}
	})
}

// TestUpgradeTakesNoConfiguration has fields that the release at the end of the way, or one on it, does not take: nothing is touched.
func TestUpgradeTakesNoConfiguration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, ofRelease(t, row(t, "row1"), "35"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		before, objects := w.snapshot(), w.everything()
		for edit, wants := range map[string][]string{
			"kubernetes: {kubelet: {extraArgs: {boot-id-file: /x}}}": {"spec.kubernetes.kubelet.extraArgs[boot-id-file]: this flag was removed in Kubernetes v1.37.0"},
			"kubernetes: {featureGates: {SidecarContainers: true}}":  {"spec.kubernetes.featureGates[SidecarContainers]: Kubernetes 1.37 has no such gate"},
			"kubernetes: {apiServer: {extraArgs: {enable-admission-plugins: PersistentVolumeLabel}}}": {
				"spec.kubernetes.apiServer.extraArgs[enable-admission-plugins]", "1.37 has no such admission plugin",
			},
			"kubernetes: {controllerManager: {extraArgs: {concurrent-disruption-syncs: \"5\"}}}": {
				"passes through Kubernetes v1.36.4", "extraArgs[concurrent-disruption-syncs]: kube-controller-manager 1.36 has no such flag",
			},
			"runtime: {version: v1.7.29}": {"spec.runtime.version", "Kubernetes 1.35 is the last that supports containerd 1.x"},
		} {
			w.configure(edited(t, ofRelease(t, row(t, "row1"), "37"), edit))
			a := w.attempt(t.Context())
			_, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil)
			for _, want := range wants {
				if fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v", edit, err)
				}
			}
			same(t, "hosts", before, w.snapshot())
			same(t, "objects", objects, w.everything())
		}
	})
}

// TestUpgradeOffline lacks a program of the last release on the way: nothing is touched.
func TestUpgradeOffline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, ofRelease(t, row(t, "row2"), "34"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		packages := filepath.Join(w.dir, "packages")
		w.must(os.Remove(packages))
		for _, dir := range []string{"", "kubelet"} { // links to all but one
			entries, err := os.ReadDir(filepath.Join(filled(), dir))
			w.must(err)
			w.must(os.MkdirAll(filepath.Join(packages, dir), 0o700))
			for _, e := range entries {
				if name := filepath.Join(dir, e.Name()); name != "kubelet" && name != "kubelet/v1.37.1" && name != "kubelet/1.37.1" {
					w.must(os.Symlink(filepath.Join(filled(), name), filepath.Join(packages, name)))
				}
			}
		}
		before := w.snapshot()
		w.configure(edited(t, row(t, "row2"), "source: {offline: true}"))
		a := w.attempt(t.Context())
		_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		for _, want := range []string{"not in the store: kubelet 1.37.1 amd64;", "kubexm download --k8s v1.35.8,v1.36.4,v1.37.1 --os debian12 --export"} {
			if fault.ExitCode(err) != fault.ExitPreflight || !strings.Contains(err.Error(), want) {
				t.Errorf("apply: %v", err)
			}
		}
		same(t, "hosts", before, w.snapshot())
	})
}

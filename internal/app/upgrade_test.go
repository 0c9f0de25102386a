package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// ofRelease is a configuration with another version of Kubernetes.
func ofRelease(t testing.TB, text, minor string) string {
	t.Helper()
	return edited(t, text, kubernetesOf(minor))
}

// kubernetesOf is an edit to the newest known version of Kubernetes of a minor one.
func kubernetesOf(minor string) string {
	return "kubernetes: {version: " + config.VersionsFor("v1."+minor+".0").Kubernetes + "}"
}

// ways lead to newer releases, one and three minor versions away, and one back.
var ways = [][]string{{"34", "37"}, {"36", "37", "36"}, {"36", "37"}}

// TestUpgrade goes one of them with each cluster.
func TestUpgrade(t *testing.T) {
	upgrades(t, func(i int) [][]string { return ways[i%len(ways):][:1] })
}

// TestFaultsUpgrades goes all of them.
func TestFaultsUpgrades(t *testing.T) { upgrades(t, func(int) [][]string { return ways }) }

func upgrades(t *testing.T, of func(i int) [][]string) {
	for i, name := range []string{"row1", "row7", "row9", "row18"} {
		for _, way := range of(i) {
			t.Run(name+"/"+strings.Join(way, "-"), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) { upgraded(t, name, way) })
			})
		}
	}
}

func upgraded(t *testing.T, name string, way []string) {
	w := newWorld(t, ofRelease(t, row(t, name), way[0]), "")
	before := w.snapshot()
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	for _, to := range way[1:] {
		is := ofRelease(t, row(t, name), to)
		if to == "36" { // etcd stays what it is
			is = edited(t, is, "etcd: {version: v3.7.1}")
		}
		w.configure(is)
		chronicle := w.watched()
		w.apply()
		chronicle.apart(w)
		w.settled()
		w.released(config.VersionsFor("v1." + to + ".0"))
		born(t, name, is, w.certs(name)).same(t, "as if made so", w.image())
	}
	w.unwatched()
	_, err = w.attempt(t.Context()).delete()
	w.must(err)
	same(t, "hosts after delete", before, w.snapshot())
}

// released fails unless all of a cluster runs a release, and all nodes get pods.
func (w *world) released(v config.Versions) {
	w.Helper()
	for name := range w.servers {
		if is := release(w.hosts[name], "kube-apiserver"); is != v.Kubernetes {
			w.Errorf("the API server of %s is %s", name, is)
		}
	}
	for name := range w.kubelets {
		if is := release(w.hosts[name], "kubelet"); is != v.Kubernetes {
			w.Errorf("the kubelet of %s is %s", name, is)
		}
	}
	for _, o := range w.api.Objects() {
		if spec, _ := o.Object["spec"].(map[string]any); o.GetKind() == "Node" && spec["unschedulable"] == true {
			w.Errorf("node %s gets no pods", o.GetName())
		}
	}
}

// TestVersionStays leaves a cluster at the version that it has where its configuration says nothing, and upgrades it where it is asked to.
func TestVersionStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		silent := strings.Replace(row(t, "row1"), "version: v1.37.1, ", "", 1)
		w := newWorld(t, ofRelease(t, row(t, "row1"), "36"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.configure(silent)
		w.settled()
		w.apply()
		w.released(config.VersionsFor("v1.36.0"))
		a := w.attempt(t.Context())
		_, err = a.App.Upgrade(a.ctx, a.Request, a.Observer, map[string]string{"spec.kubernetes.version": "v1.37.1"})
		w.must(err)
		w.released(config.VersionsFor("v1.37.0"))
		text, err := os.ReadFile(w.file)
		w.must(err)
		if !strings.Contains(string(text), "version: v1.37.1") {
			t.Errorf("the configuration is\n%s", text)
		}
		w.settled()
	})
}

// TestRollBack goes back after an upgrade, as long as that is possible.
func TestRollBack(t *testing.T) {
	for _, name := range []string{"row7", "row9"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, ofRelease(t, row(t, name), "35"), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				upgrade := func(to string) {
					t.Helper()
					a := w.attempt(t.Context())
					_, err := a.App.Upgrade(a.ctx, a.Request, a.Observer, map[string]string{"spec.kubernetes.version": config.VersionsFor(to).Kubernetes})
					w.must(err)
					a.secured(t)
					w.released(config.VersionsFor(to))
				}
				back := func() error {
					a := w.attempt(t.Context())
					_, err := a.App.RollBack(a.ctx, a.Request, a.Observer)
					if err == nil {
						a.secured(t)
					}
					return err
				}
				if err := back(); err == nil || !strings.Contains(err.Error(), "had no older version") {
					t.Errorf("back from the first version: %v", err)
				}
				upgrade("v1.37.0")
				snapshots, err := filepath.Glob(filepath.Join(w.dir, name, "snapshots", "*.db"))
				if err != nil || len(snapshots) != 2 {
					t.Errorf("snapshots: %v, %v", snapshots, err)
				}
				w.must(back())
				w.released(config.VersionsFor("v1.36.0"))
				w.settled()
				if err := back(); err == nil || !strings.Contains(err.Error(), "cannot go back to Kubernetes v1.35.8: version 1.37 has run") {
					t.Errorf("back by two: %v", err)
				}
				text, err := os.ReadFile(w.file)
				w.must(err)
				w.configure(strings.Replace(string(text), "version: v1.36.4", "version: v1.35.8", 1))
				a := w.attempt(t.Context())
				if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil || !strings.Contains(err.Error(), "cannot go back to Kubernetes v1.35.8: version 1.37 has run") {
					t.Errorf("back by two, by an edit: %v", err)
				}
				w.configure(string(text))
				upgrade("v1.37.0")
				w.settled()
			})
		})
	}
}

// secured fails unless a snapshot of etcd was the first that happened to hosts.
func (a *attempt) secured(t *testing.T) {
	t.Helper()
	for _, ev := range a.Events {
		if ev.Status == engine.Changed && ev.Host != plan.Control {
			if ev.What != "snapshot of etcd" {
				t.Errorf("before the snapshot of etcd: %s", ev.Node)
			}
			return
		}
	}
	t.Error("nothing has changed")
}

// TestBackByEdit refuses what an older version cannot read.
func TestBackByEdit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row9"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		for to, want := range map[string]string{
			"kubernetes: {version: v1.35.8}":                             "go back by one minor version, to v1.36",
			"{kubernetes: {version: v1.36.4}, etcd: {version: v3.6.16}}": "write spec.etcd.version: v3.7.1",
		} {
			w.configure(edited(t, row(t, "row9"), to))
			before := w.snapshot()
			a := w.attempt(t.Context())
			_, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil)
			if err == nil || !strings.Contains(err.Error()+fault.Advice(err), want) {
				t.Errorf("%s: %v (%s)", to, err, fault.Advice(err))
			}
			same(t, "hosts", before, w.snapshot())
		}
		w.configure(row(t, "row9"))
		for to, want := range map[string]string{
			"v1.37.0": "has Kubernetes v1.37.1, which is newer than v1.37.0",
			"v1.39.0": "between Kubernetes v1.37.1 and v1.39.0 comes 1.38, of which this kubexm knows no release",
		} {
			a := w.attempt(t.Context())
			_, err := a.App.Upgrade(a.ctx, a.Request, a.Observer, map[string]string{"spec.kubernetes.version": to})
			if fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), want) {
				t.Errorf("to %s: %v", to, err)
			}
		}
	})
}

// upgradedBy is an upgrade by three minor versions, undisturbed.
func upgradedBy(t *testing.T, name string) changed {
	is := lone
	if name != "lone" {
		is = row(t, name)
	}
	return leadFrom(t, name, ofRelease(t, is, "34"), is)
}

// lone is a cluster of one host: while it is drained nothing that starts anew has a place.
const lone = `apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: lone}
spec:
  hosts:
  - {name: node1, address: 10.0.0.11, roles: [master, etcd, worker]}
  kubernetes: {type: kubexm, version: v1.37.1, autoRenewCerts: false}
  etcd: {type: kubexm}
  network: {plugin: flannel}
`

// TestFaultsKilledUpgrades kills kubexm when it begins a node of an upgrade.
func TestFaultsKilledUpgrades(t *testing.T) { killedUpgrades(t, 40) }

// TestKilledUpgrades does so at one node.
func TestKilledUpgrades(t *testing.T) {
	killedUpgrades(t, 1)
}

func killedUpgrades(t *testing.T, most int) {
	eachChange(t, upgradedBy, map[string]int{"row7": most, "row9": most, "lone": most}, func(c changed) int { return c.nodes }, killed)
}

// TestFaultsCutUpgrades cuts the power of a master or of a worker in the middle of a script of an upgrade.
func TestFaultsCutUpgrades(t *testing.T) {
	eachChange(t, upgradedBy, map[string]int{"row7": 15, "row9": 15}, commandsOfTwo, cut)
}

// ipAddressUse are metrics of an API server that was called for an API that is removed in 1.37.
const ipAddressUse = `apiserver_requested_deprecated_apis{group="networking.k8s.io",removed_release="1.37",resource="ipaddresses",subresource="",version="v1beta1"} 1` + "\n"

// TestUpgradeRefused has a cluster that uses an API which goes: it stays as it is, until the check is skipped. The last release counts, also of several.
func TestUpgradeRefused(t *testing.T) {
	for _, from := range []string{"36", "35"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, ofRelease(t, row(t, "row1"), from), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				w.api.Metrics = ipAddressUse
				before, objects := w.snapshot(), w.everything()
				w.configure(ofRelease(t, row(t, "row1"), "37"))
				a := w.attempt(t.Context())
				u, err := a.App.PlanUpgrade(a.ctx, a.Request, a.Observer, map[string]string{"spec.kubernetes.version": "v1.37.1"})
				if fault.ExitCode(err) != fault.ExitPreflight || u == nil || u.First == nil || u.First.Empty() || len(u.Drained) != 3 {
					t.Errorf("plan: %+v, %v", u, err)
				}
				a = w.attempt(t.Context())
				_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
				if fault.ExitCode(err) != fault.ExitPreflight || !strings.HasSuffix(fault.Advice(err), "--skip-preflight=removed-apis") {
					t.Fatalf("apply: %v", err)
				}
				golden.File(t, "testdata/TestUpgradeRefused.txt", err.Error()+"\n")
				same(t, "hosts", before, w.snapshot())
				same(t, "objects", objects, w.everything())
				a = w.attempt(t.Context())
				a.SkipPreflight = []string{"removed-apis"}
				_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
				w.must(err)
				w.released(config.VersionsFor("v1.37.0"))
			})
		})
	}
}

// TestUpgradeBegun goes on with an upgrade that was cut off, whatever is found now, and back again.
func TestUpgradeBegun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, ofRelease(t, row(t, "row1"), "36"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.configure(ofRelease(t, row(t, "row1"), "37"))
		a := w.attempt(t.Context())
		a.killAt(9)
		if _, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil {
			t.Fatal("the killed run ended well")
		}
		w.unfinished()
		w.api.Metrics = ipAddressUse
		a = w.attempt(t.Context())
		_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		w.must(err)
		if !strings.Contains(strings.Join(a.Notices, "\n"), "warning: api: networking.k8s.io/v1beta1 IPAddress, removed in 1.37") {
			t.Errorf("told: %q", a.Notices)
		}
		w.released(config.VersionsFor("v1.37.0"))

		hooks, err := kube.ReadObjects([]byte(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: policy}, webhooks: [
  {name: pods.policy.io, rules: [{operations: ["*"]}], clientConfig: {service: {namespace: policy, name: hook}}}]}`))
		w.must(err)
		w.api.Put(hooks[0])
		a = w.attempt(t.Context())
		_, err = a.App.RollBack(a.ctx, a.Request, a.Observer)
		w.must(err)
		if !strings.Contains(strings.Join(a.Notices, "\n"), "warning: api: webhook pods.policy.io") {
			t.Errorf("told: %q", a.Notices)
		}
		w.released(config.VersionsFor("v1.36.0"))
	})
}

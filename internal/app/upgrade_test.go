package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
	"github.com/kubexm/kubexm/pkg/util/racetest"
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
	racetest.Slow(t)
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
	racetest.Slow(t)
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
	racetest.Slow(t)
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
	racetest.Slow(t)
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
	racetest.Slow(t)
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

// TestHooks runs commands of the user's around each node that is drained: one after the other, and those after a node also when something of it failed, in the next run.
func TestHooks(t *testing.T) {
	racetest.Slow(t)
	bubble(t, func(t *testing.T) {
		is := row(t, "row2")
		w := newWorld(t, ofRelease(t, is, "36"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		told := filepath.Join(t.TempDir(), "told")
		hooks := func(fails string) string {
			return fmt.Sprintf(`hooks: {beforeNode: [{name: silence, command: 'echo before $KUBEXM_NODE $KUBEXM_ADDRESS >> %[1]s'}],
    afterNode: [{name: test, command: 'echo after $KUBEXM_NODE $KUBEXM_KUBERNETES_VERSION >> %[1]s%[2]s'}, {name: ticket, command: "false", failurePolicy: Ignore}]}`, told, fails)
		}
		w.configure(edited(t, is, hooks("; [ $KUBEXM_NODE != node2 ]")))
		a := w.attempt(t.Context())
		_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		if err == nil || !strings.Contains(err.Error(), "hook test of afterNode, on the control machine: ") {
			t.Fatalf("with a hook that fails: %v", err)
		}
		w.configure(edited(t, is, hooks("")))
		w.apply()
		w.released(config.VersionsFor("v1.37.0"))
		w.settled()
		text, err := os.ReadFile(told)
		w.must(err)
		want := `before node1 10.0.0.11
after node1 v1.37.1
before node2 10.0.0.12
after node2 v1.37.1
after node2 v1.37.1
before node3 10.0.0.13
after node3 v1.37.1
`
		if string(text) != want {
			t.Errorf("hooks:\n%s", text)
		}
	})
}

// TestOnly gives some nodes their new kubelets, and later the others, which wait while the first of them is watched.
func TestOnly(t *testing.T) {
	racetest.Slow(t)
	for _, name := range []string{"row2", "row7"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				is := edited(t, row(t, name), "upgrade: {pause: 20m}")
				w := newWorld(t, ofRelease(t, is, "34"), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				w.configure(is)
				some := func(only ...string) error {
					a := w.attempt(t.Context())
					a.Only = only
					_, err := a.App.Upgrade(a.ctx, a.Request, a.Observer, map[string]string{"spec.kubernetes.version": "v1.37.1"})
					return err
				}
				if err := some("worker", "node99"); fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), "--only node99") {
					t.Errorf("only a node that there is not: %v", err)
				}
				w.must(some("node2"))
				for name := range w.kubelets {
					want := config.VersionsFor("v1.34.0").Kubernetes
					if name == "node2" {
						want = "v1.37.1"
					}
					if is := release(w.hosts[name], "kubelet"); is != want {
						t.Errorf("the kubelet of %s is %s, not %s", name, is, want)
					}
				}
				begun := time.Now()
				w.apply()
				if took := time.Since(begun); took < 20*time.Minute {
					t.Errorf("the other nodes waited for %s", took)
				}
				w.released(config.VersionsFor("v1.37.0"))
				w.settled()
				born(t, name, is, w.certs(name)).same(t, "as if made so", w.image())
			})
		})
	}
}

// TestUpgradeStops has an upgrade over three minor versions stop in the second: the file has the goal, and kubexm apply goes on to it.
func TestUpgradeStops(t *testing.T) {
	racetest.Slow(t)
	bubble(t, func(t *testing.T) {
		w := newWorld(t, ofRelease(t, row(t, "row2"), "34"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		a := w.attempt(t.Context())
		runs, m := 0, 0
		a.onNode(&m, a.kill)
		a.Begin = func(_ string, g *plan.ExecutionGraph) {
			if runs++; runs == 2 {
				m = len(g.Nodes) / 2
			}
		}
		if _, err = a.App.Upgrade(a.ctx, a.Request, a.Observer, map[string]string{"spec.kubernetes.version": "v1.37.1"}); err == nil || runs != 2 {
			t.Fatalf("after %d runs: %v", runs, err)
		}
		text, err := os.ReadFile(w.file)
		w.must(err)
		if !strings.Contains(string(text), "version: v1.37.1") {
			t.Errorf("the configuration is\n%s", text)
		}
		back := w.attempt(t.Context())
		_, err = back.App.RollBack(back.ctx, back.Request, back.Observer)
		w.must(err)
		if is := drained(back); len(is) > 0 || release(w.hosts["node1"], "kube-apiserver") != "v1.35.8" || release(w.hosts["node1"], "kubelet") != "v1.34.11" {
			t.Errorf("drained for the way back: %v", is)
		}
		w.configure(string(text))
		w.apply()
		w.released(config.VersionsFor("v1.37.0"))
		w.settled()
	})
}

// TestEtcdAlong lets etcd go with Kubernetes, there and back, unless the file has a version of the user's own.
func TestEtcdAlong(t *testing.T) {
	racetest.Slow(t)
	bubble(t, func(t *testing.T) {
		is := ofRelease(t, row(t, "row2"), "35")
		w := newWorld(t, is, "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		plan := func() *app.Upgrading {
			t.Helper()
			a := w.attempt(t.Context())
			u, err := a.App.PlanUpgrade(a.ctx, a.Request, a.Observer, map[string]string{"spec.kubernetes.version": "v1.37.1"})
			w.must(err)
			return u
		}
		upgrade := func(field, to string) {
			t.Helper()
			a := w.attempt(t.Context())
			_, err := a.App.Upgrade(a.ctx, a.Request, a.Observer, map[string]string{field: to})
			w.must(err)
		}
		back := func() error {
			a := w.attempt(t.Context())
			_, err := a.App.RollBack(a.ctx, a.Request, a.Observer)
			return err
		}
		for written, want := range map[string]string{"": "v3.7.1", "v3.6.16": "v3.7.1", "v3.6.15": "v3.6.15"} {
			if w.configure(is); written != "" {
				w.configure(edited(t, is, "etcd: {version: "+written+"}"))
			}
			if u := plan(); u.Path[len(u.Path)-1].Etcd != want || u.BackTo != "v1.36.4" {
				t.Errorf("with etcd %q written: %v, back to %q", written, u.Path, u.BackTo)
			}
		}
		w.configure(is)
		upgrade("spec.kubernetes.version", "v1.36.4")
		w.must(back())
		text, err := os.ReadFile(w.file)
		w.must(err)
		if strings.Contains(string(text), "v3.6.16") {
			t.Errorf("etcd is written after the way back:\n%s", text)
		}
		upgrade("spec.kubernetes.version", "v1.36.4")
		upgrade("spec.etcd.version", "v3.7.1")
		if err := back(); err == nil || !strings.Contains(err.Error(), "the last upgrade was not one of Kubernetes (spec.etcd.version: v3.6.16 -> v3.7.1)") {
			t.Errorf("back from another etcd: %v", err)
		}
	})
}

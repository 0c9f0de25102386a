package app_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step/host"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

const newKernel = "6.1.0-40-amd64"

// outdate lets repositories have a newer kernel for all hosts, and a newer bash.
func (w *world) outdate() {
	for _, h := range w.hosts {
		h.Newer = map[string]runnertest.Package{
			"bash":              {Version: "5.2-16"},
			"linux-image-amd64": {Version: "6.1.140-1", Files: map[string]string{"/boot/vmlinuz-" + newKernel: "ELF"}},
		}
		h.Repo["linux-image-amd64"] = runnertest.Package{Files: map[string]string{"/boot/vmlinuz-" + h.Kernel: "ELF"}}
		w.sh(h.Name, "apt-get update && apt-get install -y linux-image-amd64")
	}
}

// upgradeSystem is one run that upgrades operating systems.
func (a *attempt) upgradeSystem(u host.Update) (*app.Result, error) {
	return a.App.UpgradeSystem(a.ctx, a.Request, a.Observer, u)
}

// restarted fails unless each host was restarted so often, with the new kernel, and all nodes get pods.
func (w *world) restarted(often int) {
	w.Helper()
	for name, h := range w.hosts {
		if h.Restarts() != often || h.Kernel != newKernel {
			w.Errorf("%s was restarted %d times, and runs kernel %s", name, h.Restarts(), h.Kernel)
		}
	}
	for _, is := range w.running() {
		if strings.HasSuffix(is, "takes no pods") {
			w.Error(is)
		}
	}
}

// TestSystem upgrades the operating systems of clusters: each machine is restarted once, never two of the control plane at a time, and drained before. The second time there is
// nothing to do.
func TestSystem(t *testing.T) {
	for _, name := range []string{"row1", "row7", "row9", "row21"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) { systemUpgraded(t, name) })
		})
	}
}

func systemUpgraded(t *testing.T, name string) {
	w := newWorld(t, row(t, name), "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	w.outdate()
	ran, before := w.running(), w.proposal()
	a := w.attempt(t.Context())
	a.DryRun = true
	res, err := a.upgradeSystem(host.Update{})
	w.must(err)
	seen := 0
	for _, ev := range a.Events {
		if strings.Contains(ev.Diff, "+ package linux-image-amd64 6.1.140-1, was 1.0") {
			seen++
		}
	}
	if seen != len(w.hosts) || res.Summary.Changed > 0 {
		t.Errorf("a dry run has seen the new kernel on %d hosts: %+v", seen, res.Summary)
	}
	if !before.Empty() {
		t.Errorf("before: %s", steps(before))
	}
	chronicle := w.watched()
	asked := 0
	a = w.attempt(t.Context())
	a.MayRestart = func(_ context.Context, p *app.Proposal) error {
		asked++
		for _, r := range p.Restarts {
			if strings.HasPrefix(r.Service, host.Machine) && len(r.Hosts) != len(w.hosts) {
				t.Errorf("asked for %v", r)
			}
		}
		return nil
	}
	_, err = a.upgradeSystem(host.Update{})
	w.must(err)
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	chronicle.apart(t)
	w.restarted(1)
	a.oneByOne(t)
	if now := w.running(); !slices.Equal(ran, now) {
		t.Errorf("ran: %v\nruns: %v", ran, now)
	}
	w.settled()
	a = w.attempt(t.Context())
	res, err = a.upgradeSystem(host.Update{})
	w.must(err)
	if res.Summary.OK != res.Summary.Total {
		t.Errorf("the second time: %+v", res.Summary)
	}
	w.restarted(1)
}

// oneByOne fails unless each machine was restarted while no other was, each node between its drain and its uncordon.
func (a *attempt) oneByOne(t *testing.T) {
	t.Helper()
	away, drained, restarts := "", map[string]bool{}, 0
	for _, ev := range a.Events {
		switch {
		case ev.What == "drain the node" && ev.Status == engine.Changed:
			drained[ev.Host] = true
		case ev.What == "uncordon the node" && ev.Status == engine.Changed:
			drained[ev.Host] = false
		case ev.What == "machine runs what is installed" && ev.Status == engine.Started:
			_, node := a.kubelets[ev.Host]
			if away != "" || node && !drained[ev.Host] {
				t.Errorf("%s restarts while %q does; it is drained: %t", ev.Host, away, drained[ev.Host])
			}
			away = ev.Host
		case ev.What == "machine runs what is installed" && ev.Status == engine.Changed:
			away = ""
			restarts++
		}
	}
	if restarts != len(a.hosts) {
		t.Errorf("%d machines were restarted", restarts)
	}
}

// TestSystemFails has machines that do not come back: a master, a worker and a load balancer. Nothing else is touched from there on, and once it is back the next run goes on.
func TestSystemFails(t *testing.T) {
	for name, victim := range map[string]string{"row7": "node2", "row9": "node4", "row21": "lb2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) { systemFails(t, name, victim) })
		})
	}
}

func systemFails(t *testing.T, name, victim string) {
	w := newWorld(t, row(t, name), "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	w.outdate()
	dead := w.hosts[victim]
	dead.BootTime = -1
	a := w.attempt(t.Context())
	_, err = a.upgradeSystem(host.Update{})
	if err == nil || !strings.Contains(err.Error(), "machine runs what is installed on "+victim+": the machine is not back 15m00s after it was told to restart: ") {
		t.Fatalf("it ended with %v", err)
	}
	began := false
	for _, ev := range a.Events {
		if ev.What == "machine runs what is installed" && ev.Host == victim && ev.Status == engine.Failed {
			began = true
		} else if began && ev.Host != victim && ev.Status == engine.Changed {
			t.Errorf("then %s changed", ev.Node)
		}
	}
	dead.BootTime = 0
	dead.Reboot()
	chronicle := w.watched()
	a = w.attempt(t.Context())
	_, err = a.upgradeSystem(host.Update{})
	w.must(err)
	chronicle.apart(t)
	w.restarted(1)
}

// TestFaultsKilledSystem kills kubexm when it begins a node of an upgrade of operating systems.
func TestFaultsKilledSystem(t *testing.T) { killedSystem(t, 30) }

// TestKilledSystem does so at one node.
func TestKilledSystem(t *testing.T) {
	killedSystem(t, 1)
}

func killedSystem(t *testing.T, most int) {
	for _, name := range []string{"row7", "row9", "row21"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := 0
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, name), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				w.outdate()
				a := w.attempt(t.Context())
				a.Begin = func(_ string, g *plan.ExecutionGraph) {
					for i := range g.Nodes {
						if !g.Nodes[i].Barrier() {
							nodes++
						}
					}
				}
				_, err = a.upgradeSystem(host.Update{})
				w.must(err)
			})
			for _, m := range moments(t, nodes, most) {
				t.Run(fmt.Sprint(m), func(t *testing.T) {
					bubble(t, func(t *testing.T) { systemKilled(t, name, m) })
				})
			}
		})
	}
}

// systemKilled kills a run, and lets the next one go on a while later: machines that were told to restart do so all the same.
func systemKilled(t *testing.T, name string, m int) {
	w := newWorld(t, row(t, name), "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	w.outdate()
	chronicle := w.watched()
	a := w.attempt(t.Context())
	begun := false
	a.Begin = func(string, *plan.ExecutionGraph) { begun = true }
	a.killAt(m)
	u := host.Update{}
	if m%2 == 0 { // what has restarted since the first run is right
		u.Reboot = host.RebootAlways
	}
	if _, err := a.upgradeSystem(u); err == nil {
		t.Fatal("the killed run ended well")
	}
	time.Sleep(time.Minute)
	a = w.attempt(t.Context())
	a.Resume = begun && m%2 == 0
	_, err = a.upgradeSystem(u)
	w.must(err)
	chronicle.apart(t)
	w.restarted(1)
	w.settled()
}

// TestSystemRefused does not begin where the cluster is not what its configuration says, where pods cannot move, or where nobody agrees.
func TestSystemRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row2"), "")
		refused := func(want string) {
			t.Helper()
			before := w.snapshot()
			a := w.attempt(t.Context())
			_, err := a.upgradeSystem(host.Update{})
			if err == nil || !strings.Contains(err.Error()+fault.Advice(err), want) {
				t.Errorf("not refused with %q: %v (%s)", want, err, fault.Advice(err))
			}
			same(t, "hosts", before, w.snapshot())
		}
		refused("there is no cluster")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.outdate()
		w.configure(edited(t, row(t, "row2"), edits["scheduler arguments"].set))
		refused("changes that are not applied yet")
		w.configure(row(t, "row2"))
		w.hosts["node3"].Offline = true
		refused("host node3: asking for newer packages: ")
		w.hosts["node3"].Offline = false
		id, err := os.ReadFile("/etc/machine-id")
		if err == nil && len(id) > 1 {
			was, _ := w.hosts["node2"].Get("/etc/machine-id")
			w.hosts["node2"].Put("/etc/machine-id", string(id), 0o644)
			refused("node2")
			w.hosts["node2"].Put("/etc/machine-id", was, 0o644)
		}
		a := w.attempt(t.Context())
		a.MayRestart = nil
		if _, err := a.upgradeSystem(host.Update{}); fault.ExitCode(err) != fault.ExitUsage {
			t.Errorf("nobody was asked: %v", err)
		}
	})
}

// TestSystemParts upgrades some packages, or the kernel alone, and restarts nothing, only what needs it, or everything.
func TestSystemParts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row2"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.outdate()
		use := func(u host.Update, restarts int, upgraded string) {
			t.Helper()
			for _, h := range w.hosts {
				h.ClearLog()
			}
			a := w.attempt(t.Context())
			_, err := a.upgradeSystem(u)
			w.must(err)
			for name, h := range w.hosts {
				var is []string
				for _, l := range h.Log() {
					if p, ok := strings.CutPrefix(l, "upgrade "); ok {
						is = append(is, p)
					}
				}
				if got := strings.Join(is, " "); h.Restarts() != restarts || got != upgraded && restarts == 0 {
					t.Errorf("%+v: %s was restarted %d times, and has got %q", u, name, h.Restarts(), got)
				}
			}
		}
		w.cordon("node2")
		use(host.Update{Packages: []string{"ba*", "nothing"}}, 0, "bash")
		use(host.Update{Kernel: true, Reboot: host.RebootNever}, 0, "linux-image-amd64")
		use(host.Update{Packages: []string{"bash"}}, 1, "")
		use(host.Update{Packages: []string{"bash"}}, 1, "")
		use(host.Update{Kernel: true, Reboot: host.RebootAlways}, 2, "")
		w.hosts["node3"].Put("/run/reboot-required", "", 0o644)
		a := w.attempt(t.Context())
		_, err = a.upgradeSystem(host.Update{})
		w.must(err)
		if w.hosts["node3"].Restarts() != 3 || w.hosts["node1"].Restarts() != 2 {
			t.Error("not only node3 was restarted")
		}
		if is := w.running(); !slices.Contains(is, "node2 takes no pods") || slices.Contains(is, "node1 takes no pods") {
			t.Errorf("it runs: %v", is)
		}
	})
}

// cordon lets a node get no pods, as somebody else does.
func (w *world) cordon(node string) {
	for _, o := range w.api.Objects() {
		if o.GetKind() == "Node" && o.GetName() == node {
			w.must(unstructured.SetNestedField(o.Object, true, "spec", "unschedulable"))
			w.api.Put(o)
		}
	}
}

// TestSystemWaves upgrades workers two at a time once the first one was well for a while, and leaves one alone that has nothing to change.
func TestSystemWaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var hosts []string
		for name := range addresses {
			if n, _ := strings.CutPrefix(name, "node"); n >= "4" && n <= "7" {
				hosts = append(hosts, "  - {name: "+name+", address: "+addresses[name]+", roles: [worker]}\n")
			}
		}
		slices.Sort(hosts)
		is := with("  kubernetes:", strings.Join(hosts, "")+"  kubernetes:")(row(t, "row2"))
		w := newWorld(t, edited(t, is, "upgrade: {maxUnavailable: 2, pause: 20m}"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.outdate()
		w.hosts["node5"].Newer = nil
		begun := time.Now()
		a := w.attempt(t.Context())
		_, err = a.upgradeSystem(host.Update{})
		w.must(err)
		if took := time.Since(begun); took < 20*time.Minute {
			t.Errorf("it took %s", took)
		}
		most, away := 0, map[string]bool{}
		for _, ev := range a.Events {
			switch {
			case ev.Host == "node5" && ev.Status == engine.Changed:
				t.Errorf("node5 changed: %s", ev.Node)
			case ev.What == "drain the node" && ev.Status == engine.Changed:
				away[ev.Host] = true
			case ev.What == "uncordon the node" && ev.Status == engine.Changed:
				delete(away, ev.Host)
			}
			most = max(most, len(away))
		}
		if most != 2 {
			t.Errorf("%d nodes were drained at a time", most)
		}
		for name, h := range w.hosts {
			if restarts := h.Restarts(); restarts != 1 && name != "node5" || name == "node5" && restarts != 0 {
				t.Errorf("%s was restarted %d times", name, restarts)
			}
		}
	})
}

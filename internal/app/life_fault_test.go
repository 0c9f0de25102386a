package app_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/plan"

	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestConfirm asks before something is restarted, and only then.
func TestConfirm(t *testing.T) {
	errNo := errors.New("no")
	bubble(t, func(t *testing.T) {
		was := row(t, "row2")
		w := newWorld(t, was, "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		for _, test := range []struct {
			set   string
			asked bool
		}{{"hosts: [{name: node2, labels: {zone: a}}]", false}, {edits["scheduler arguments"].set, true}} {
			w.configure(edited(t, was, test.set))
			for name, use := range map[string]func(*attempt) error{
				"apply":  func(a *attempt) error { _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); return err },
				"create": func(a *attempt) error { _, err := a.App.Create(a.ctx, a.Request, a.Observer); return err },
			} {
				before, asked := w.snapshot(), false
				a := w.attempt(t.Context())
				a.MayRestart = func(context.Context, *app.Proposal) error { asked = true; return errNo }
				if err := use(a); asked != test.asked || errors.Is(err, errNo) != test.asked {
					t.Errorf("%s, %s: asked %t: %v", name, test.set, asked, err)
				}
				if asked {
					same(t, "hosts after no", before, w.snapshot())
				}
			}
		}
	})
}

// argumentsOf is where the arguments of a host's service are, as a unit or as a static pod.
func argumentsOf(h *runnertest.Host, service string) string {
	unit, _ := h.Get("/etc/systemd/system/" + service + ".service.d/kubexm-" + service + ".conf")
	pod, _ := h.Get("/etc/kubernetes/manifests/" + service + ".yaml")
	return unit + pod
}

// TestBadArgument gives API servers an argument with which they do not start: the first one that gets it goes back to what it had,
// and the others are not touched.
func TestBadArgument(t *testing.T) {
	badArguments(t, "kube-apiserver", "kubernetes: {apiServer: %s}")
}

// TestFaultsBadArgument does so with members of etcd.
func TestFaultsBadArgument(t *testing.T) { badArguments(t, "etcd", "etcd: %s") }

func badArguments(t *testing.T, service, field string) {
	for _, name := range []string{"row7", "row9"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) { badArgument(t, name, service, field) })
		})
	}
}

func badArgument(t *testing.T, name, service, field string) {
	bad := "vmodule" // every program of Kubernetes takes it, but not any value of it
	if service == "etcd" {
		bad = "log-outputs"
	}
	was := row(t, name)
	w := newWorld(t, was, "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	first := w.image()
	for _, h := range w.hosts {
		for _, process := range []string{service + ".service", "pod " + service} {
			start := h.OnStart[process]
			h.OnStart[process] = func(h *runnertest.Host) error {
				if strings.Contains(argumentsOf(h, service), bad) {
					return errors.New("invalid value of --" + bad)
				}
				return start(h)
			}
		}
	}
	chronicle := w.watched()
	w.configure(edited(t, was, fmt.Sprintf(field, "{extraArgs: {"+bad+": x}}")))
	a := w.attempt(t.Context())
	if _, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil || !strings.Contains(err.Error(), service) {
		t.Errorf("apply: %v", err)
	}
	chronicle.apart(t)
	if hosts := chronicle.restarts()[service]; len(hosts) != 1 {
		t.Errorf("restarted on %v", hosts)
	}
	for _, m := range []string{"node1", "node2", "node3"} {
		if strings.Contains(argumentsOf(w.hosts[m], service), bad) {
			t.Errorf("%s has the bad argument", m)
		}
		if w.servers[m] == nil {
			t.Errorf("the API server of %s does not serve", m)
		}
	}
	w.configure(was)
	w.apply()
	w.settled()
	first.same(t, "when the argument is gone", w.image())
}

// changed is a cluster that a change leads to.
type changed struct {
	name, was, is string
	certs         string
	end           image
	nodes         int            // of the graphs of the change
	scripts       int            // sent to the hosts
	commands      map[string]int // run by them on each host
}

// lead makes the change undisturbed.
func lead(t *testing.T, name string, parts ...string) changed {
	return leadFrom(t, name, row(t, name), edited(t, row(t, name), parts...))
}

// leadFrom is lead from a configuration to another one.
func leadFrom(t *testing.T, name, was, is string) changed {
	c := changed{name: name, was: was, is: is, certs: t.TempDir(), commands: map[string]int{}}
	bubble(t, func(t *testing.T) {
		w := newWorld(t, c.was, "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		scripts := &runnertest.Kill{}
		for _, h := range w.hosts {
			h.Kill, h.Cut = scripts, &runnertest.Kill{}
		}
		w.configure(c.is)
		a := w.attempt(t.Context())
		a.Begin = func(_ string, g *plan.ExecutionGraph) {
			for i := range g.Nodes {
				if !g.Nodes[i].Barrier() {
					c.nodes++
				}
			}
		}
		_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		w.must(err)
		for n, h := range w.hosts {
			c.commands[n] = int(h.Cut.Count())
		}
		c.scripts, c.end = int(scripts.Count()), w.image()
		w.must(os.CopyFS(c.certs, os.DirFS(filepath.Join(w.dir, name, "certs"))))
	})
	return c
}

// again is a world before the change, in which it makes the same certificates.
func (c changed) again(t *testing.T) *world {
	w := newWorld(t, c.was, "")
	w.must(os.CopyFS(filepath.Join(w.dir, c.name, "certs"), os.DirFS(c.certs)))
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	w.configure(c.is)
	return w
}

// upheavals restart all of a control plane, and all nodes.
var upheavals = []string{edits["etcd arguments"].set, edits["port of the endpoint"].set, edits["API server arguments"].set, edits["kubelet's processors"].set, edits["first time servers"].set}

// eachLiving tests rows with several masters at some moments of a change.
func eachLiving(t *testing.T, change []string, most map[string]int, last func(changed) int, test func(*testing.T, *world, changed, int)) {
	eachChange(t, func(t *testing.T, name string) changed { return lead(t, name, change...) }, most, last, test)
}

// eachChange is eachLiving for a change that a function makes.
func eachChange(t *testing.T, make func(*testing.T, string) changed, most map[string]int, last func(changed) int, test func(*testing.T, *world, changed, int)) {
	for name, most := range most {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := make(t, name)
			for _, m := range moments(t, last(c), most) {
				t.Run(fmt.Sprint(m), func(t *testing.T) {
					bubble(t, func(t *testing.T) { test(t, c.again(t), c, m) })
				})
			}
		})
	}
}

// ends finishes what was cut off, and checks whether all is as it would be.
func (c changed) ends(t *testing.T, w *world, resume bool) {
	a := w.attempt(t.Context())
	a.Resume = resume
	if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err != nil {
		t.Fatalf("going on: %v", err)
	}
	w.settled()
	c.end.same(t, "in the end", w.image())
}

// TestFaultsKilledLiving kills kubexm when it begins a node of an apply, each on one row and some on another.
func TestFaultsKilledLiving(t *testing.T) {
	killedLiving(t, map[string]int{"row7": 60, "row9": math.MaxInt})
}

// TestKilledLiving does so at one node.
func TestKilledLiving(t *testing.T) {
	killedLiving(t, map[string]int{"row7": 1, "row9": 1})
}

func killedLiving(t *testing.T, most map[string]int) {
	eachLiving(t, upheavals, most, func(c changed) int { return c.nodes }, killed)
}

// killed kills kubexm when it begins a node of a change, and lets it go on.
func killed(t *testing.T, w *world, c changed, m int) {
	chronicle := w.watched()
	a := w.attempt(t.Context())
	begun := false
	a.Begin = func(string, *plan.ExecutionGraph) { begun = true }
	a.killAt(m)
	if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil {
		t.Fatal("the killed run ended well")
	}
	chronicle.apart(t)
	if begun {
		w.unfinished()
	}
	c.ends(t, w, begun)
	chronicle.apart(t)
}

// otherRuntime takes all containers of all nodes to another runtime.
var otherRuntime = []string{edits["runtime docker"].set}

// TestFaultsKilledLivingRuntime kills kubexm while nodes get another container runtime.
func TestFaultsKilledLivingRuntime(t *testing.T) {
	killedLivingRuntime(t, map[string]int{"row2": 20, "row7": 20, "row9": 40})
}

// TestKilledLivingRuntime does so at one node.
func TestKilledLivingRuntime(t *testing.T) {
	killedLivingRuntime(t, map[string]int{"row7": 1, "row9": 1})
}

func killedLivingRuntime(t *testing.T, most map[string]int) {
	eachLiving(t, otherRuntime, most, func(c changed) int { return c.nodes }, killed)
}

// TestDeletedWithTwoRuntimes takes clusters off their machines while some nodes still have the former runtime.
func TestDeletedWithTwoRuntimes(t *testing.T) {
	eachLiving(t, otherRuntime, map[string]int{"row2": 2, "row7": 2}, func(c changed) int { return c.nodes }, func(t *testing.T, _ *world, c changed, m int) {
		w := newWorld(t, c.was, "")
		before := w.snapshot()
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.live()
		w.configure(c.is)
		a := w.attempt(t.Context())
		a.killAt(m)
		_, _ = a.App.Apply(a.ctx, a.Request, a.Observer, nil) // ends well where it was quicker
		_, err = w.attempt(t.Context()).delete()
		w.must(err)
		same(t, "hosts", before, w.snapshot())
	})
}

// TestFaultsPowerCutLivingRuntime cuts the power of a machine meanwhile.
func TestFaultsPowerCutLivingRuntime(t *testing.T) {
	eachLiving(t, otherRuntime, map[string]int{"row2": 10, "row7": 10, "row9": 10}, commandsOfTwo, cut)
}

// TestFaultsStoppedLiving stops kubexm, as the first Ctrl-C does, when it begins a node of an apply.
func TestFaultsStoppedLiving(t *testing.T) {
	stoppedLiving(t, map[string]int{"row7": 40, "row9": 80})
}

// TestStoppedLiving does so at a few nodes.
func TestStoppedLiving(t *testing.T) {
	stoppedLiving(t, map[string]int{"row9": 2})
}

// stoppedLiving wants all that ran to run when a run has stopped, and pods on all nodes.
func stoppedLiving(t *testing.T, most map[string]int) {
	eachLiving(t, append(upheavals, edits["balancer nginx"].set), most, func(c changed) int { return c.nodes }, func(t *testing.T, w *world, c changed, m int) {
		ran, chronicle := w.running(), w.watched()
		a := w.attempt(t.Context())
		stop := make(chan struct{})
		a.Stop = stop
		a.onNode(&m, func() { close(stop) })
		if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err != nil && !errors.Is(err, app.ErrStopped) {
			t.Fatal(err)
		}
		chronicle.apart(t)
		if diff := cmp.Diff(ran, w.running()); diff != "" {
			t.Errorf("what ran before (-) and runs after (+): %s", diff)
		}
		c.ends(t, w, false)
		chronicle.apart(t)
	})
}

// running lists what runs on all hosts, proxies by one name, and the nodes that take no pods.
func (w *world) running() (all []string) {
	w.Helper()
	for name, h := range w.hosts {
		facts, err := h.Runner().Facts(w.Context())
		w.must(err)
		for _, s := range []string{"containerd", "crio", "docker", "cri-docker", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet"} {
			if facts.Runs(s) {
				all = append(all, name+" "+s)
			}
		}
		if facts.Runs("haproxy") || facts.Runs("nginx") {
			all = append(all, name+" proxy")
		}
	}
	for _, o := range w.api.Objects() {
		if cordoned, _, _ := unstructured.NestedBool(o.Object, "spec", "unschedulable"); o.GetKind() == "Node" && cordoned {
			all = append(all, o.GetName()+" takes no pods")
		}
	}
	slices.Sort(all)
	return all
}

// TestFaultsLostLiving lets one command of an apply fail for a passing reason, before or after it has run.
func TestFaultsLostLiving(t *testing.T) {
	eachLiving(t, upheavals, map[string]int{"row7": 20, "row9": 20}, func(c changed) int { return 2 * c.scripts }, func(t *testing.T, w *world, c changed, m int) {
		chronicle := w.watched()
		a := w.attempt(t.Context())
		var n atomic.Int64
		a.around = func(h *runnertest.Host, ctx context.Context, cmd connector.Cmd) error {
			if n.Add(1) != int64(m+1)/2 {
				return h.Exec(ctx, cmd)
			}
			if m%2 == 0 {
				_ = h.Exec(ctx, cmd) // nobody hears how it ended
			}
			return fault.Transient(fmt.Errorf("%s: %w", h.Name, runnertest.ErrLost))
		}
		if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err != nil && !errors.Is(err, runnertest.ErrLost) {
			t.Errorf("failed for another reason: %v", err)
		}
		chronicle.apart(t)
		c.ends(t, w, false)
	})
}

// TestFaultsPowerCutLiving cuts the power of a master or of a worker in the middle of a script of an apply. The host boots, and the
// next apply ends it.
func TestFaultsPowerCutLiving(t *testing.T) {
	eachLiving(t, upheavals, map[string]int{"row7": 20, "row9": 20}, commandsOfTwo, cut)
}

// commandsOfTwo are those that a master and a worker run in a change.
func commandsOfTwo(c changed) int { return c.commands["node2"] + c.commands["node4"] }

// cut cuts the power of one of them at a command, boots it, and lets kubexm go on.
func cut(t *testing.T, w *world, c changed, m int) {
	chronicle := w.watched()
	host := "node2"
	if m > c.commands[host] {
		host, m = "node4", m-c.commands[host]
	}
	h, a := w.hosts[host], w.attempt(t.Context())
	h.Cut = &runnertest.Kill{After: int64(m), Then: func() {
		h.SetDown(true)
		w.down(h)
		a.hangUp()
	}}
	if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil {
		t.Log("it was quicker")
	}
	w.unwatched()
	chronicle.apart(t)
	h.Reboot()
	c.ends(t, w, false)
}

// TestFaultsBrokenParts changes a cluster of which something does not run: it starts, and all is changed.
func TestFaultsBrokenParts(t *testing.T) {
	for name, test := range map[string]struct{ row, host, stop, change string }{
		"an API server, etcd changes":        {"row9", "node2", "kube-apiserver", "etcd arguments"},
		"an etcd member, API server changes": {"row9", "node2", "etcd", "API server arguments"},
		"a member of kubeadm's, it changes":  {"row7", "node2", "kubelet", "etcd arguments"},
		"a kubelet of a master":              {"row7", "node2", "kubelet", "API server arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				was := row(t, test.row)
				w := newWorld(t, was, "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				w.sh(test.host, "systemctl stop "+test.stop)
				is := edited(t, was, edits[test.change].set)
				w.configure(is)
				chronicle := w.watched()
				w.apply()
				chronicle.apart(t)
				w.settled()
				born(t, test.row, is, w.certs(test.row)).same(t, "as if made so", w.image())
			})
		})
	}
}

// TestLeaderLast changes all members of etcd: the one that leads comes last.
func TestLeaderLast(t *testing.T) {
	for _, name := range []string{"row7", "row9"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				was := row(t, name)
				w := newWorld(t, was, "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				w.etcds.Lead(w.members["node2"])
				w.configure(edited(t, was, edits["etcd arguments"].set))
				chronicle := w.watched()
				w.apply()
				chronicle.apart(t)
				if order := chronicle.restarts()["etcd"]; len(order) != 3 || order[2] != "node2" || slices.Contains(order[:2], "node2") {
					t.Errorf("members were changed in the order %v", order)
				}
			})
		})
	}
}

package app_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// theirs is what others have in a cluster of kubexm's, which stays as it is.
func (w *world) theirs() {
	for _, h := range w.hosts {
		h.Put("/etc/theirs.conf", "x\n", 0o600)
		text, _ := h.Get("/etc/hosts")
		h.Put("/etc/hosts", text+"192.0.2.99 theirs\n", 0o644)
		if len(h.Images()) > 0 {
			h.AddImage("theirs.example.com/x:1", "sha256:1")
			w.sh(h.Name, "/usr/local/bin/ctr -n k8s.io images label theirs.example.com/x:1 io.cri-containerd.pinned=pinned")
		}
	}
	w.api.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "theirs", "namespace": "kube-system"}, "data": map[string]any{"a": "b"},
	}})
	w.editNode("node4", func(node *unstructured.Unstructured) {
		labels := node.GetLabels()
		labels["theirs"] = "x"
		node.SetLabels(labels)
		taints, _, _ := unstructured.NestedSlice(node.Object, "spec", "taints")
		w.must(unstructured.SetNestedSlice(node.Object, append([]any{map[string]any{"key": "theirs", "effect": "NoSchedule"}}, taints...), "spec", "taints"))
	})
}

// editNode changes a node behind kubexm's back.
func (w *world) editNode(name string, change func(*unstructured.Unstructured)) {
	for _, o := range w.api.Objects() {
		if o.GetKind() == "Node" && o.GetName() == name {
			change(o)
			w.api.Put(o)
		}
	}
}

// sh runs a script of somebody else on a host.
func (w *world) sh(host, script string) {
	w.Helper()
	_, err := w.hosts[host].Runner().Sh(w.Context(), script)
	w.must(err)
}

// rewrite edits a file of a host by hand.
func rewrite(h *runnertest.Host, path, old, now string) {
	text, _ := h.Get(path)
	h.Put(path, strings.Replace(text, old, now, 1), h.Mode(path))
}

// drifts are what somebody may do to a cluster.
var drifts = map[string]struct {
	do func(w *world)
	on func(config string) bool // nil: all with several masters
}{
	"file edited":        {do: func(w *world) { w.hosts["node4"].Put("/etc/crictl.yaml", "debug: true\n", 0o644) }},
	"file removed":       {do: func(w *world) { w.hosts["node2"].Remove("/etc/security/limits.d/kubexm.conf") }},
	"mode of a file":     {do: func(w *world) { w.sh("node1", "chmod 644 /etc/kubernetes/pki/sa.key") }},
	"runtime stopped":    {do: func(w *world) { w.sh("node2", "systemctl stop containerd") }},
	"unit stopped":       {do: func(w *world) { w.sh("node3", "systemctl stop kube-scheduler") }, on: units},
	"API server stopped": {do: func(w *world) { w.sh("node1", "systemctl stop kube-apiserver") }, on: units},
	"etcd stopped":       {do: func(w *world) { w.sh("node1", "systemctl stop etcd") }, on: units},
	"kubelet stopped":    {do: func(w *world) { w.sh("node4", "systemctl stop kubelet") }},
	"unit disabled":      {do: func(w *world) { w.sh("node4", "systemctl disable kubelet") }},
	"drop-in edited": {do: func(w *world) {
		rewrite(w.hosts["node4"], "/etc/systemd/system/kubelet.service.d/kubexm-kubelet.conf", "--node-ip=10.0.0.14", "--node-ip=10.0.0.99")
	}},
	"object deleted": {do: func(w *world) { w.deleteObject("Deployment", "coredns") }},
	"object edited":  {do: func(w *world) { w.editObject("ConfigMap", "coredns", "data", "Corefile", "nothing") }},
	"label removed":  {do: func(w *world) { w.editNode("node4", func(n *unstructured.Unstructured) { unlabel(n, "disk") }) }},
	"taint removed":  {do: func(w *world) { w.editNode("node4", func(n *unstructured.Unstructured) { untaint(n, "dedicated") }) }},
	"static pod edited": {do: func(w *world) {
		rewrite(w.hosts["node2"], "/etc/kubernetes/manifests/kube-apiserver.yaml", "# of", "# by hand of")
	}, on: kubeadmPods},
	"static pod removed": {do: func(w *world) { w.hosts["node3"].Remove("/etc/kubernetes/manifests/kube-scheduler.yaml") }, on: kubeadmPods},
	"etcd's pod edited": {do: func(w *world) {
		rewrite(w.hosts["node1"], "/etc/kubernetes/manifests/etcd.yaml", "# of", "# by hand of")
	}, on: kubeadmEtcd},
	"kubelet configured": {do: func(w *world) {
		rewrite(w.hosts["node4"], "/var/lib/kubelet/config.yaml", "maxPods: 110", "maxPods: 7")
	}},
	"sysctl":           {do: func(w *world) { w.sh("node2", "echo 0 >/proc/sys/net/ipv4/ip_forward") }},
	"module unloaded":  {do: func(w *world) { w.hosts["node2"].Remove("/etc/modules-load.d/kubexm.conf") }},
	"hosts edited":     {do: func(w *world) { rewrite(w.hosts["node4"], "/etc/hosts", "10.0.0.12 node2", "10.0.0.77 node2") }},
	"program replaced": {do: func(w *world) { w.hosts["node4"].Put("/usr/local/bin/runc", "ELF of somebody else", 0o755) }},
	"image removed":    {do: func(w *world) { w.images("node4", "rm", "/coredns:", "") }},
	"image unpinned": {do: func(w *world) {
		w.images("node3", "label", "/pause:", "io.cri-containerd.pinned=")
	}},
	"certificate replaced": {do: func(w *world) { w.hosts["node2"].Put("/etc/kubernetes/pki/apiserver.crt", "rubbish", 0o644) }},
}

// images does something to the images of a host that are named so.
func (w *world) images(host, do, named, args string) {
	w.Helper()
	for name := range w.hosts[host].Images() {
		if strings.Contains(name, named) {
			w.sh(host, "/usr/local/bin/ctr -n k8s.io images "+do+" "+name+" "+args)
		}
	}
}

func (w *world) deleteObject(kind, name string) {
	for _, o := range w.api.Objects() {
		if o.GetKind() == kind && o.GetName() == name {
			w.api.Delete(o)
		}
	}
}

func (w *world) editObject(kind, name string, pathAndValue ...string) {
	for _, o := range w.api.Objects() {
		if o.GetKind() == kind && o.GetName() == name {
			last := len(pathAndValue) - 1
			w.must(unstructured.SetNestedField(o.Object, pathAndValue[last], pathAndValue[:last]...))
			w.api.Put(o)
		}
	}
}

func unlabel(node *unstructured.Unstructured, key string) {
	labels := node.GetLabels()
	delete(labels, key)
	node.SetLabels(labels)
}

func untaint(node *unstructured.Unstructured, key string) {
	taints, _, _ := unstructured.NestedSlice(node.Object, "spec", "taints")
	var left []any
	for _, t := range taints {
		if t.(map[string]any)["key"] != key {
			left = append(left, t)
		}
	}
	_ = unstructured.SetNestedSlice(node.Object, left, "spec", "taints") // strings alone
}

// marked is a row whose last node has a label and a taint.
func marked(t *testing.T, name string) string {
	return edited(t, row(t, name), "hosts: [{name: node4, labels: {disk: ssd}, taints: [{key: dedicated, value: db, effect: NoExecute}]}]")
}

func units(config string) bool { return !kubeadmPods(config) && ownEtcd(config) }

// TestDrift has somebody change what kubexm made, all at one time, and then kubexm bring it back. What others own stays.
func TestDrift(t *testing.T) {
	drifted(t, []string{"row7", "row9"}, func(w *world, all map[string]func(*world)) {
		w.drift("all", func(w *world) {
			for _, do := range all {
				do(w)
			}
		})
	})
}

// TestFaultsDrift has somebody change one thing after the other.
func TestFaultsDrift(t *testing.T) {
	drifted(t, []string{"row4", "row7", "row9", "row14", "row15", "row18", "row20", "row22"}, func(w *world, all map[string]func(*world)) {
		for what, do := range all {
			w.drift(what, do)
		}
	})
}

func drifted(t *testing.T, names []string, try func(w *world, all map[string]func(*world))) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, marked(t, name), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				w.theirs()
				w.settled()
				all := map[string]func(*world){}
				for what, d := range drifts {
					if d.on == nil || d.on(row(t, name)) {
						all[what] = d.do
					}
				}
				try(w, all)
			})
		})
	}
}

func (w *world) drift(what string, do func(*world)) {
	w.Helper()
	well := w.image()
	do(w)
	for host := range w.hosts {
		w.sh(host, "true") // kubelets tend to their static pods whenever something runs
	}
	p := w.proposal()
	if p.Empty() || len(p.Changes) > 0 {
		w.Errorf("%s: changes %v, steps %v", what, p.Changes, p.Steps)
	}
	for _, s := range p.Steps {
		if s.Why != app.WhyDrift {
			w.Errorf("%s: why %s: %s", what, s.Why, s.Node)
		}
	}
	chronicle := w.watched()
	w.apply()
	chronicle.apart(w)
	w.unwatched()
	w.settled()
	well.same(w, "after "+what, w.image())
}

// TestDriftAndChange has the file change, too, what somebody has changed by hand.
func TestDriftAndChange(t *testing.T) {
	for _, name := range []string{"row1", "row2"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, name), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				rewrite(w.hosts["node2"], "/var/lib/kubelet/config.yaml", "maxPods: 110", "maxPods: 7")
				rewrite(w.hosts["node3"], "/etc/hosts", "10.0.0.12 node2", "10.0.0.77 node2")
				w.configure(edited(t, row(t, name), "kubernetes: {maxPods: 50}"))
				want := map[string]string{"kubelet@node2": app.WhyBoth, "kubelet@node3": app.WhyFile, "hosts@node3": app.WhyDrift}
				files := regexp.MustCompile(`(kubelet-configuration|files-kubelet)@`)
				for _, s := range w.proposal().Steps {
					at := files.ReplaceAllString(filepath.Base(string(s.Node)), "kubelet@")
					if why, ok := want[at]; ok {
						if s.Why != why {
							t.Errorf("%s: why %s, not %s", s.Node, s.Why, why)
						}
						delete(want, at)
					}
				}
				if len(want) > 0 {
					t.Errorf("not proposed: %v", want)
				}
				w.apply()
				w.settled()
			})
		})
	}
}

// TestSavedPlan saves plans, and applies them while they are still what is to be done.
func TestSavedPlan(t *testing.T) {
	was := row(t, "row2")
	is := edited(t, was, edits["API server arguments"].set)
	for name, test := range map[string]struct {
		meanwhile func(w *world)
		spoil     func(p *app.Proposal)
		refused   string // empty: it is not
	}{
		"as it was": {},
		"drift": {meanwhile: func(w *world) {
			w.hosts["node2"].Put("/etc/crictl.yaml", "debug: true\n", 0o644)
		}, refused: "new: files "},
		"another configuration": {meanwhile: func(w *world) { w.configure(edited(w, is, "kubernetes: {maxPods: 50}")) }, refused: "new: "},
		"credentials":           {meanwhile: func(w *world) { w.configure(edited(w, is, "global: {user: ops}")) }, refused: "the configuration changed"},
		"done meanwhile":        {meanwhile: func(w *world) { w.apply() }, refused: "gone: service kube-apiserver on node1"},
		"another cluster":       {spoil: func(p *app.Proposal) { p.ID, p.Hash = "another", "another" }, refused: "it was made for another cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, was, "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				w.configure(is)
				file := filepath.Join(t.TempDir(), "plan.json")
				p := w.proposal()
				if test.spoil != nil {
					test.spoil(p)
				}
				w.must(app.SavePlan(file, p))
				saved, err := app.LoadPlan(file)
				w.must(err)
				if test.meanwhile != nil {
					test.meanwhile(w)
				}
				before := w.snapshot()
				a := w.attempt(t.Context())
				_, err = a.App.Apply(a.ctx, a.Request, a.Observer, saved)
				switch {
				case test.refused == "" && err != nil:
					t.Errorf("refused: %v", err)
				case test.refused == "":
					w.settled()
				case err == nil || !strings.Contains(err.Error(), test.refused):
					t.Errorf("got %v, wanted %q", err, test.refused)
				default:
					same(t, "hosts after a refusal", before, w.snapshot())
				}
			})
		})
	}
	file := filepath.Join(t.TempDir(), "none.json")
	if _, err := app.LoadPlan(file); err == nil {
		t.Error("a plan that is not there")
	}
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := app.LoadPlan(file); err == nil || !strings.Contains(err.Error(), "is not a plan that kubexm has saved") {
		t.Errorf("not a plan: %v", err)
	}
}

// TestNothingToApply has a cluster that is as configured: apply asks each step once, as create does, and tells and records it.
func TestNothingToApply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row2"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		want, err := w.attempt(t.Context()).create()
		w.must(err)
		a, res, err := w.applyTo(t, false)
		w.must(err)
		if res.Summary != want.Summary || res.RoundTrips["node2"] != want.RoundTrips["node2"] {
			t.Errorf("apply: %+v\ncreate: %+v", res, want)
		}
		path, err := a.App.CriticalPath(app.Request{Name: res.Cluster}, res.Run)
		if w.must(err); len(a.Events) != 2*res.Summary.Total || len(path) == 0 {
			t.Errorf("%d events of %d steps, critical path %v", len(a.Events), res.Summary.Total, path)
		}
	})
}

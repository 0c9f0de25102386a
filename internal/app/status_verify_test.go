package app_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubexm/kubexm/pkg/etcd/etcdtest"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/observe"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// verify goes through all checks.
func (w *world) verify() []observe.Check {
	w.Helper()
	a := w.attempt(w.Context())
	a.Request.Verify = true
	is, err := a.App.Status(a.ctx, a.Request, a.Observer)
	w.must(err)
	return is.Checks
}

// checked shows checks, those alone that are not ok where that is wanted.
func checked(checks []observe.Check, all bool) string {
	var b strings.Builder
	for _, c := range checks {
		if all || c.Result != observe.OK {
			fmt.Fprintf(&b, "%s | %s | %s | %s | %s\n", c.What, c.Where, c.Result, c.Found, c.Wanted)
		}
	}
	return b.String()
}

// elected plays the programs of which one leads, on a host.
func (w *world) elected(host string) {
	text := ""
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "plndr-cp-lock"} {
		text += "---\n{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: " + name + ", namespace: kube-system}, spec: {holderIdentity: " + host + "_4f}}\n"
	}
	w.put(text)
}

// verified fails where a check does not pass, leases aside: those that a host holds are put there for it, and taken away.
func (w *world) verified() {
	w.Helper()
	objects := w.api.Objects()
	defer w.restore(objects)
	w.elected(slices.Sorted(maps.Keys(w.servers))[0])
	if text := checked(w.verify(), false); text != "" {
		w.Errorf("these checks do not pass:\n%s", text)
	}
}

func (w *world) put(text string) {
	w.Helper()
	objects, err := kube.ReadObjects([]byte(text))
	w.must(err)
	for _, o := range objects {
		w.api.Put(o)
	}
}

// spoiler leaves something behind, and takes it back.
type spoiler struct {
	*world
	undo []func()
}

// lay writes a file, or removes it where it has no text.
func (w *spoiler) lay(host, file, text string) {
	h := w.hosts[host]
	put := func(text string) {
		h.Remove(file)
		if text != "" {
			h.Put(file, text, 0o644)
		}
	}
	was, _ := h.Get(file)
	w.undo = append(w.undo, func() { put(was) })
	put(text)
}

// member changes the member of etcd on a host.
func (w *spoiler) member(host string, change func(*etcdtest.Member)) {
	w.etcds.Set(w.members[host], func(m *etcdtest.Member) {
		was := *m
		w.undo = append(w.undo, func() {
			w.etcds.Set(m, func(m *etcdtest.Member) { m.Learner, m.Alarm, m.PeerURL = was.Learner, was.Alarm, was.PeerURL })
		})
		change(m)
	})
}

// replace changes a file of a host.
func (w *spoiler) replace(host, file, old, with string) {
	w.Helper()
	text, _ := w.hosts[host].Get(file)
	if !strings.Contains(text, old) {
		w.Fatalf("%s of %s has no %q:\n%s", file, host, old, text)
	}
	w.lay(host, file, strings.ReplaceAll(text, old, with))
}

// restore brings the API back to objects that it had.
func (w *world) restore(objects []*unstructured.Unstructured) {
	for _, o := range w.api.Objects() {
		w.api.Delete(o)
	}
	for _, o := range objects {
		w.api.Put(o)
	}
}

// turn changes an object.
func (w *world) turn(kind, name, old, with string) {
	w.Helper()
	for _, o := range w.api.Objects() {
		if o.GetKind() != kind || o.GetName() != name {
			continue
		}
		text, err := o.MarshalJSON()
		w.must(err)
		if !strings.Contains(string(text), old) {
			w.Fatalf("%s %s has no %q:\n%s", kind, name, old, text)
		}
		w.must(o.UnmarshalJSON([]byte(strings.ReplaceAll(string(text), old, with))))
		w.api.Put(o)
		return
	}
	w.Fatalf("no %s %s", kind, name)
}

// cmdline changes how the process of an API server was started.
func (w *spoiler) cmdline(host, old, with string) {
	w.Helper()
	for pid := 1000; pid < 1200; pid++ {
		file := fmt.Sprintf("/proc/%d/cmdline", pid)
		if text, _ := w.hosts[host].Get(file); strings.Contains(text, "--etcd-servers=") {
			w.replace(host, file, old, with)
			return
		}
	}
	w.Fatalf("no API server runs on %s", host)
}

const hostsFile = "/etc/hosts"

// former gives a host an address by which another knows it, and the route to one of that.
func (w *spoiler) former(host, address string) {
	w.sh(host, runner.FormerMark.Add(address)+w.like("; ip route replace 10.0.0.18/32 via 10.0.0.19 proto 157 src "+address))
	w.undo = append(w.undo, func() { w.sh(host, runner.FormerMark.Flush()+"; for f in -4 -6; do ip $f route flush proto 157; done") })
}

// aFence keeps a machine out that nobody has given up.
const aFence = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: kubexm-lost-machines}
spec: {validations: [{expression: "!(object.status.nodeInfo.machineID in ['1234', '5678'])"}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: kubexm-lost-machines}
spec: {policyName: kubexm-lost-machines, validationActions: [Deny]}
`

// stale are what is left behind when hosts come and go, by the rows of the deployment matrix that have it.
var stale = map[string]map[string]func(w *spoiler){
	"row7": {
		"etcd learner": func(w *spoiler) { w.member("node2", func(m *etcdtest.Member) { m.Learner = true }) },
		"etcd alarm":   func(w *spoiler) { w.member("node2", func(m *etcdtest.Member) { m.Alarm = "NOSPACE" }) },
		"etcd stranger": func(w *spoiler) {
			m := w.etcds.Add("node9", "https://10.0.0.19:2379")
			w.undo = append(w.undo, func() { w.etcds.Remove(m) })
		},
		"etcd peer":       func(w *spoiler) { w.member("node3", func(m *etcdtest.Member) { m.PeerURL = "https://10.0.0.19:2380" }) },
		"API server":      func(w *spoiler) { w.cmdline("node2", "127.0.0.1", "10.0.0.19") },
		"API server gone": func(w *spoiler) { w.cmdline("node2", "secure-port=6443", "secure-port=7443") },
		"back ends":       func(w *spoiler) { w.replace("node4", "/etc/haproxy/haproxy.cfg", "10.0.0.13:6443", "10.0.0.19:6443") },
		"kubeadm-config": func(w *spoiler) {
			w.turn("ConfigMap", "kubeadm-config", "controlPlaneEndpoint: lb", "controlPlaneEndpoint: old")
		},
		"cluster-info": func(w *spoiler) {
			w.put("{apiVersion: v1, kind: ConfigMap, metadata: {name: cluster-info, namespace: kube-public}, data: {kubeconfig: " +
				`"{clusters: [{name: '', cluster: {server: 'https://10.0.0.19:6443'}}]}"}}`)
		},
		"kube-proxy": func(w *spoiler) { w.turn("ConfigMap", "kube-proxy", "lb.kubexm.local:6443", "10.0.0.19:6443") },
		"names": func(w *spoiler) {
			w.replace("node4", hostsFile, "10.0.0.13 node3", "10.0.0.19 node9.row7.cluster.local node9\n10.0.0.13 node3")
		},
		"other address": func(w *spoiler) { w.replace("node4", hostsFile, "10.0.0.13 node3", "10.0.0.19 node3") },
		"endpoint": func(w *spoiler) {
			w.replace("node4", hostsFile, "127.0.0.1 lb.kubexm.local", "10.0.0.19 lb.kubexm.local")
		},
		"endpoint of owner": func(w *spoiler) { w.replace("node4", hostsFile, "# BEGIN", "10.0.0.12 lb.kubexm.local\n# BEGIN") },
		"endpoint in pods":  func(w *spoiler) { w.lay("node4", "/var/lib/kubelet/pods/x/etc-hosts", "10.0.0.19 lb.kubexm.local\n") },
		"kubelet.conf":      func(w *spoiler) { w.replace("node4", "/etc/kubernetes/kubelet.conf", "lb.kubexm.local", "10.0.0.19") },
		"no kubelet.conf":   func(w *spoiler) { w.lay("node4", "/etc/kubernetes/kubelet.conf", "") },
		"former endpoint":   func(w *spoiler) { w.lay("node1", "/etc/kubernetes/old.conf", "    server: https://old:6443\n") },
		"node stranger":     func(w *spoiler) { w.api.AddNode("node9", true) },
		"node gone":         func(w *spoiler) { w.put("{apiVersion: v1, kind: Node, metadata: {name: node4}}") },
		"cordon":            func(w *spoiler) { w.lay("node4", "/var/lib/kubexm/drained", "\n") },
		"service":           func(w *spoiler) { w.turn("EndpointSlice", "kubernetes", "10.0.0.13", "10.0.0.19") },
		"lease":             func(w *spoiler) { w.turn("Lease", "kube-scheduler", "node1_", "node9_") },
		"lease of a killed run": func(w *spoiler) {
			w.put("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: kubexm, namespace: kube-system}, spec: " +
				`{holderIdentity: "ann on laptop, process 7, since 1999-12-31 23:00:00 #token", leaseDurationSeconds: 60, renewTime: "1999-12-31T23:50:00.000000Z"}}` + "\n")
		},
		"former address":        func(w *spoiler) { w.former("node2", "10.0.0.19") },
		"fence":                 func(w *spoiler) { w.put(aFence) },
		"fence without binding": func(w *spoiler) { w.put(strings.Split(aFence, "---")[0]) }, // denies nobody
		"no lease":              func(w *spoiler) { w.turn("Lease", "kube-scheduler", "node1_4f", "") },
	},
	"row9": {
		"API server":        func(w *spoiler) { w.cmdline("node2", ",https://10.0.0.13:2379", ",https://10.0.0.19:2379") },
		"API server's port": func(w *spoiler) { w.cmdline("node2", "https://10.0.0.13:2379", "https://10.0.0.13:2380") },
		"kube-proxy": func(w *spoiler) {
			w.replace("node4", "/var/lib/kube-proxy/kubeconfig.conf", "lb.kubexm.local", "10.0.0.19")
		},
		"own API server": func(w *spoiler) { w.replace("node1", "/etc/kubernetes/scheduler.conf", "lb.kubexm.local", "10.0.0.11") },
	},
	"row15": {
		"lease of the address": func(w *spoiler) { w.turn("Lease", "plndr-cp-lock", "node1_4f", "node9") },
		"member gone":          func(w *spoiler) { w.etcds.Remove(w.members["node3"]) }, // for good
	},
	"row21": {
		"back ends": func(w *spoiler) {
			w.replace("lb2", "/etc/nginx/nginx.conf", "    server 10.0.0.13:6443", "    # server 10.0.0.13:6443")
		},
		"peers": func(w *spoiler) {
			w.replace("lb1", "/etc/keepalived/keepalived.conf", "    10.0.0.22\n", "    10.0.0.22\n    10.0.0.29\n")
		},
		"certificate": func(w *spoiler) { w.reissued("node2") },
	},
	"row18-ipv6": {
		"API server": func(w *spoiler) { w.cmdline("node2", ",https://[fd00::13]:2379", ",https://[fd00::19]:2379") },
		"back ends":  func(w *spoiler) { w.replace("lb2", "/etc/haproxy/haproxy.cfg", "[fd00::13]:6443", "[fd00::19]:6443") },
		"peers": func(w *spoiler) {
			w.replace("lb1", "/etc/keepalived/keepalived.conf", "    fd00::22\n", "    fd00::29\n")
		},
		"other address":  func(w *spoiler) { w.replace("node4", hostsFile, "fd00::13 node3", "fd00::19 node3") },
		"kubelet.conf":   func(w *spoiler) { w.replace("node4", "/etc/kubernetes/kubelet.conf", "lb.kubexm.local", "[fd00::19]") },
		"former address": func(w *spoiler) { w.former("node2", "fd00::19") },
	},
	"row1-dual": {
		"other address": func(w *spoiler) { w.replace("node2", hostsFile, "fd00::11 node1", "fd00::19 node1") },
		"node":          func(w *spoiler) { w.turn("Node", "node2", "fd00::12", "fd00::19") },
	},
	"row22": {
		"etcd out of reach": func(w *spoiler) { w.hosts["node2"].Serve(externalEtcd, nil) }, // for good
	},
}

// reissued gives the API server of a master the certificate of its kubelet, which has fewer names.
func (w *spoiler) reissued(host string) {
	for _, ext := range []string{"crt", "key"} {
		text, _ := w.hosts[host].Get("/var/lib/kubelet/pki/kubelet." + ext)
		w.lay(host, "/etc/kubernetes/pki/apiserver."+ext, text)
	}
}

// TestVerify finds all that is left behind, and nothing in a cluster that was just made.
func TestVerify(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(stale)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, name), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				w.elected("node1")
				text := "well:\n" + checked(w.verify(), true)
				for _, what := range slices.Sorted(maps.Keys(stale[name])) {
					objects, s := w.api.Objects(), &spoiler{world: w}
					stale[name][what](s)
					text += "\n" + what + ":\n" + checked(w.verify(), false)
					for _, undo := range s.undo {
						undo()
					}
					w.restore(objects)
				}
				golden.Equal(t, text)
			})
		})
	}
}

// TestVerifyUnknown tells what cannot be asked, which is not passed.
func TestVerifyUnknown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row21"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.elected("node2")
		w.turn("Lease", "kube-scheduler", "node2_", "machine-of-node9_")
		for _, host := range []string{"node2", "lb2"} {
			w.hosts[host].SetDown(true)
		}
		text := "hosts out of reach:\n" + checked(w.verify(), false)
		for _, m := range []string{"node1", "node3"} {
			w.down(w.hosts[m])
		}
		golden.Equal(t, text+"\nand no API server:\n"+checked(w.verify(), false))
	})
}

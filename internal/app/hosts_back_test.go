package app_test

import (
	"os"
	"strings"
	"testing"

	kubexm "github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestUncleaned gives up machines that come back with all that they had, and are put into the configuration again, or cleaned before.
func TestUncleaned(t *testing.T) {
	for i, is := range [][2]string{{"row2", "node4"}, {"row7", "node1"}, {"row9", "node3"}, {"row22", "node3"}} {
		back(t, is[0], is[1], i%2 == 0)
	}
}

// TestFaultsUncleaned does so with hosts of all kinds, in both ways.
func TestFaultsUncleaned(t *testing.T) {
	for _, name := range []string{"row7", "row9"} {
		for _, host := range []string{"node1", "node3", "node4"} {
			for _, delete := range []bool{false, true} {
				back(t, name, host, delete)
			}
		}
	}
}

func back(t *testing.T, name, host string, delete bool) {
	t.Run(strings.Join([]string{name, host, map[bool]string{true: "deleted", false: "put back"}[delete]}, "/"), func(t *testing.T) {
		t.Parallel()
		bubble(t, func(t *testing.T) { uncleaned(t, name, host, delete) })
	})
}

func uncleaned(t *testing.T, name, host string, delete bool) {
	config := joinedBy(row(t, name), "node5 worker")
	if name == "row2" {
		config = joinedBy(row(t, name), "node4 worker")
	}
	w := newWorld(t, config, "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	back := w.away(host)
	_, err = w.removes(true, host)
	w.must(err)
	back()
	w.settled()
	if nodes := w.everything(); strings.Contains(nodes, "kind: Node\nmetadata:\n  annotations:\n  name: "+host) {
		t.Errorf("it is a node again:\n%s", nodes)
	}
	if delete {
		_, err = w.removes(false, host)
		w.must(err)
		w.settled()
	}
	w.configure(config)
	w.apply()
	w.settled()
	w.verified()
	if strings.Contains(w.everything(), "kubexm-lost-machines") {
		t.Error("there is still a fence")
	}
}

// TestUncleanedInPlace brings back a machine whose place another one has taken. It is refused until it is deleted, and the other one is kept out then.
func TestUncleanedInPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		config := joinedBy(row(t, "row9"), "node5 worker")
		w := newWorld(t, config, "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		back := w.away("node4")
		w.fresh("node4", machineID(1))
		a := w.attempt(t.Context())
		_, err = a.App.ReplaceNode(a.ctx, a.Request, a.Observer, "node4", kubexm.Addresses{})
		w.must(err)
		w.burn("node4")
		back()
		before := w.snapshot()
		for _, make := range []func(*attempt) error{
			func(a *attempt) error { _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); return err },
			func(a *attempt) error { _, err := a.create(); return err },
		} {
			err := make(w.attempt(t.Context()))
			if err == nil || err.Error() != "host node4 was given up and is not cleaned" || !strings.Contains(fault.Advice(err), "kubexm delete node node4") {
				t.Errorf("%v: %s", err, fault.Advice(err))
			}
		}
		same(t, "machines", before, w.snapshot())
		_, err = w.removes(false, "node4")
		w.must(err)
		w.configure(config)
		w.apply()
		w.settled()
		w.verified()
		if !strings.Contains(w.everything(), machineID(1)) {
			t.Error("the other machine may come back")
		}
	})
}

// TestTakenBack takes back the deletion of hosts which a disruption budget has stopped: they stay what they are, and get pods again.
func TestTakenBack(t *testing.T) {
	for _, name := range []string{"row7", "row9", "etcd-elsewhere"} {
		for _, host := range []string{"node1", "node4"} {
			if name == "etcd-elsewhere" && host == "node1" {
				continue // the only master
			}
			t.Run(name+"/"+host, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) { takenBack(t, name, host) })
			})
		}
	}
}

func takenBack(t *testing.T, name, host string) {
	config := joinedBy(row(t, name), "node5 worker")
	w := newWorld(t, config, "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	w.put("{apiVersion: v1, kind: Pod, metadata: {namespace: default, name: kept, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: kept, uid: a, controller: true}]}, spec: {nodeName: " + host + "}}")
	w.api.Budget = func(pod string) bool { return pod != "kept" }
	cordoned := func() bool { return strings.Contains(w.everything(), "unschedulable: true") }
	if _, err := w.removes(false, host); err == nil || !strings.Contains(err.Error(), "default/kept") || !cordoned() {
		t.Fatalf("cordoned: %t; %v", cordoned(), err)
	}
	w.configure(config)
	a := w.attempt(t.Context())
	if _, err := a.create(); err == nil || !strings.Contains(err.Error(), "host "+host+" was to leave the cluster") || !strings.Contains(fault.Advice(err), "kubexm apply") {
		t.Errorf("create: %v: %s", err, fault.Advice(err))
	}
	chronicle := w.moving(config)
	w.apply()
	if chronicle.restarts()["kubelet"] != nil || cordoned() {
		t.Errorf("restarted: %v, cordoned: %t", chronicle.restarts(), cordoned())
	}
	text, err := os.ReadFile(w.file)
	w.must(err)
	if string(text) != config {
		t.Errorf("the configuration is\n%s", text)
	}
	w.settled()
	w.verified()
}

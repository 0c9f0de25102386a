package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// onNode makes pods of a node in memory: name, owner's kind or "", and more.
func onNode(t *testing.T, server *kubetest.Server, pods ...string) {
	t.Helper()
	for _, p := range pods {
		f := strings.Fields(p)
		owner, more := "", strings.Join(f[2:], " ")
		if f[1] != "-" {
			owner = fmt.Sprintf(", ownerReferences: [{apiVersion: apps/v1, kind: %s, name: x, uid: x, controller: true}]", f[1])
		}
		server.Put(read(t, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default%s%s}\nspec: {nodeName: node1}\n", f[0], owner, more))[0])
	}
}

// TestDrain drains a node with pods of every sort, one of which may not go at first.
func TestDrain(t *testing.T) {
	ctx := within(t)
	server := kubetest.New()
	server.AddNode("node1", true)
	asked := 0
	server.Budget = func(pod string) bool {
		if pod == "kept" {
			asked++
		}
		return pod != "kept" || asked > 1
	}
	c, _ := inMemory(t, server)
	onNode(t, server, "web ReplicaSet", "kept StatefulSet", "agent DaemonSet", "static Node , annotations: {kubernetes.io/config.mirror: x}")
	if err := c.Cordon(ctx, "node1", true); err != nil {
		t.Fatal(err)
	}
	if is, err := c.Cordoned(ctx, "node1"); err != nil || !is {
		t.Errorf("cordoned: %t, %v", is, err)
	}
	if names, err := c.Evictable(ctx, "node1", Lose{}); err != nil || !slices.Equal(names, []string{"default/kept", "default/web"}) {
		t.Errorf("evictable: %v, %v", names, err)
	}
	if err := c.Drain(ctx, "node1", func(string) {}); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, obj := range server.Objects() {
		if obj.GetKind() == "Pod" {
			left = append(left, obj.GetName())
		}
	}
	if !slices.Equal(left, []string{"agent", "static"}) || asked != 2 {
		t.Errorf("left: %v; asked %d times", left, asked)
	}

	onNode(t, server, "lone -")
	if _, err := c.Evictable(ctx, "node1", Lose{}); err == nil || !strings.Contains(err.Error(), "on another node: default/lone") {
		t.Errorf("a pod without an owner: %v", err)
	}
	if is, err := c.PodsToEvict(ctx, "node1"); err != nil || !slices.Equal(is.Lone, []string{"default/lone"}) {
		t.Errorf("pods without an owner: %v, %v", is.Lone, err)
	}
	scratch := read(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: scratch, namespace: default}\nspec: {nodeName: node1, volumes: [{name: x, emptyDir: {}}]}\n")[0]
	server.Put(scratch)
	if _, err := c.Evictable(ctx, "node1", Lose{Lone: true}); err == nil || !strings.Contains(err.Error(), "would lose data in volumes of type emptyDir: default/scratch") {
		t.Errorf("a pod with data: %v", err)
	}
	if names, err := c.Evictable(ctx, "node1", Lose{Lone: true, Local: true}); err != nil || len(names) != 2 {
		t.Errorf("what may be lost: %v, %v", names, err)
	}
	server.Delete(scratch)
	server.Budget = func(string) bool { return false }
	soon, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	err := c.Drain(soon, "node1", func(string) {})
	if err == nil || !strings.Contains(err.Error(), "default/lone stays: Cannot evict pod") || !strings.Contains(fault.Advice(err), "pdb") {
		t.Errorf("a budget: %v: %s", err, fault.Advice(err))
	}
}

// TestDrainTells has pods that stay for a while: people hear which ones, and why.
func TestDrainTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := within(t)
		server := kubetest.New()
		server.AddNode("node1", true)
		end := time.Now().Add(50 * time.Second)
		server.Budget = func(string) bool { return time.Now().After(end) }
		c, _ := inMemory(t, server)
		onNode(t, server, "web ReplicaSet")
		var told []string
		if err := c.Drain(ctx, "node1", func(text string) { told = append(told, text) }); err != nil {
			t.Fatal(err)
		}
		if len(told) != 2 || !strings.Contains(told[0], "waiting for default/web stays: Cannot evict pod") {
			t.Errorf("told: %q", told)
		}
	})
}

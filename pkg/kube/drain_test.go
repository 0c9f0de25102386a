package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
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
	if names, err := c.Evictable(ctx, "node1", false); err != nil || !slices.Equal(names, []string{"default/kept", "default/web"}) {
		t.Errorf("evictable: %v, %v", names, err)
	}
	if err := c.Drain(ctx, "node1"); err != nil {
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
	if _, err := c.Evictable(ctx, "node1", false); err == nil || !strings.Contains(err.Error(), "on another node: default/lone") {
		t.Errorf("a pod without an owner: %v", err)
	}
	if names, err := c.Lone(ctx, "node1"); err != nil || !slices.Equal(names, []string{"default/lone"}) {
		t.Errorf("pods without an owner: %v, %v", names, err)
	}
	server.Budget = func(string) bool { return false }
	soon, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	err := c.Drain(soon, "node1")
	if err == nil || !strings.Contains(err.Error(), "default/lone stays: Cannot evict pod") || !strings.Contains(fault.Advice(err), "pdb") {
		t.Errorf("a budget: %v: %s", err, fault.Advice(err))
	}
}

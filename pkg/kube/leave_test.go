package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/kube/kubetest"
)

// TestLeavable asks whether nodes may leave that have volumes with affinities of every sort.
func TestLeavable(t *testing.T) {
	for name, test := range map[string]struct {
		terms   string // of the volume's affinity
		leaving []string
		want    bool // node1 may leave
	}{
		"the hostname":              {"[{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1]}]}]", nil, false},
		"the name":                  {"[{matchFields: [{key: metadata.name, operator: In, values: [node1]}]}]", nil, false},
		"another node":              {"[{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node2]}]}]", nil, true},
		"a driver's own label":      {"[{matchExpressions: [{key: topology.topolvm.io/node, operator: In, values: [node1]}]}]", nil, false},
		"a zone":                    {"[{matchExpressions: [{key: zone, operator: In, values: [a]}]}]", nil, true},
		"a zone that leaves":        {"[{matchExpressions: [{key: zone, operator: In, values: [a]}]}]", []string{"node1", "node2"}, false},
		"two nodes, one of which":   {"[{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1, node2]}]}]", nil, true},
		"two nodes, which leave":    {"[{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1, node2]}]}]", []string{"node2", "node1"}, false},
		"one of two terms":          {"[{matchFields: [{key: metadata.name, operator: In, values: [node1]}]}, {matchExpressions: [{key: zone, operator: In, values: [b]}]}]", nil, true},
		"a term that is both":       {"[{matchExpressions: [{key: zone, operator: In, values: [a]}], matchFields: [{key: metadata.name, operator: In, values: [node1]}]}]", nil, false},
		"others leave, not this":    {"[{matchExpressions: [{key: zone, operator: In, values: [b]}]}]", []string{"node3"}, true},
		"not a node":                {"[{matchExpressions: [{key: kubernetes.io/hostname, operator: NotIn, values: [node2, node3]}]}]", nil, false},
		"a term that says too much": {"[{matchExpressions: [{key: zone, operator: Gt, values: [x]}]}]", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := kubetest.New()
			c, _ := inMemory(t, server)
			for node, zone := range map[string]string{"node1": "a", "node2": "a", "node3": "b"} {
				server.Put(read(t, fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %[1]s, labels: {kubernetes.io/hostname: %[1]s, topology.topolvm.io/node: %[1]s, zone: %s}}\n", node, zone))[0])
			}
			server.Put(read(t, `apiVersion: v1
kind: PersistentVolume
metadata: {name: pv1}
spec: {claimRef: {namespace: default, name: data}, nodeAffinity: {required: {nodeSelectorTerms: `+test.terms+`}}}
status: {phase: Bound}
`)[0])
			err := c.Leavable(within(t), "node1", test.leaving)
			if test.want != (err == nil) || err != nil && !strings.Contains(err.Error(), "no node that stays can use these volumes: pv1 (default/data)") {
				t.Error(err)
			}
		})
	}
}

// TestFormer tells nodes and pods of machines that are gone from those that have come since, and removes them.
func TestFormer(t *testing.T) {
	server := kubetest.New()
	c, _ := inMemory(t, server)
	taken := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	put := func(form string, args ...any) { server.Put(read(t, fmt.Sprintf(form, args...))[0]) }
	for name, created := range map[string]time.Time{"old": taken, "kept": taken, "new": taken.Add(time.Minute), "gone": taken.Add(time.Minute)} {
		put("{apiVersion: v1, kind: Node, metadata: {name: %s, creationTimestamp: %q}}", name, created.Format(time.RFC3339))
	}
	const owned = "ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: x, uid: one, controller: true}]"
	for name, p := range map[string]struct {
		created     time.Time
		owner, node string
	}{
		"old": {taken, owned, "kept"}, "elsewhere": {taken, owned, "survivor"}, "alone": {taken, "labels: {}", "old"}, "new": {taken.Add(2 * time.Second), owned, "old"}, "waiting": {taken, owned, `""`},
	} {
		put("{apiVersion: v1, kind: Pod, metadata: {namespace: default, name: %s, creationTimestamp: %q, %s}, spec: {nodeName: %s}}", name, p.created.Format(time.RFC3339), p.owner, p.node)
	}
	for name, renewed := range map[string]time.Time{"kube-scheduler": taken, "kube-controller-manager": taken.Add(time.Minute)} {
		put("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {namespace: kube-system, name: %s}, spec: {holderIdentity: one, renewTime: %q}}", name, renewed.Format(metav1.RFC3339Micro))
	}
	is := func() (nodes, pods, leases []string) {
		f, err := c.Former(within(t), []string{"old", "new"}, []string{"gone", "never"}, "kept", taken.Add(time.Second))
		if err == nil && len(f.Nodes)+len(f.Pods)+len(f.Leases) > 0 {
			err = c.Forget(within(t), f)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Pods {
			pods = append(pods, p.Name)
		}
		for _, l := range f.Leases {
			leases = append(leases, l.Name)
		}
		return f.Nodes, pods, leases
	}
	if nodes, pods, leases := is(); !slices.Equal(nodes, []string{"gone", "old"}) || !slices.Equal(pods, []string{"old"}) || !slices.Equal(leases, []string{"kube-scheduler"}) {
		t.Errorf("former are nodes %q, pods %q and leases %q", nodes, pods, leases)
	}
	if nodes, pods, leases := is(); nodes != nil || pods != nil || leases != nil {
		t.Errorf("they stay: nodes %q, pods %q and leases %q", nodes, pods, leases)
	}
	if nodes, err := c.Nodes(within(t)); err != nil || len(nodes) != 2 {
		t.Errorf("%d nodes stay, %v", len(nodes), err)
	}
}

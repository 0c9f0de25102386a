package kube

import (
	"fmt"
	"strings"
	"testing"

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

package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestUpgradePlan shows what an upgrade would do.
func TestUpgradePlan(t *testing.T) {
	image := func(name string, size int64) resource.Stock {
		return resource.Stock{Item: resource.ImageItem("registry.k8s.io/"+name, "amd64"), Size: size}
	}
	for name, u := range map[string]*app.Upgrading{
		"nothing": {Runs: []app.Running{{Program: "kubelet", Version: "v1.37.1", Hosts: []string{"node1"}}}},
		"two runs": {
			Runs: []app.Running{{Program: "etcd", Version: "v3.6.16", Hosts: []string{"node1"}}, {Program: "kubelet", Version: "v1.35.8", Hosts: []string{"node1", "node2"}}},
			Path: []config.Release{{Kubernetes: "v1.36.4", Etcd: "v3.6.16"}, {Kubernetes: "v1.37.1", Etcd: "v3.7.1"}},
			Fetched: []app.Fetching{
				{Items: []resource.Stock{image("kube-apiserver:v1.36.4", 28<<20), image("kube-proxy:v1.36.4", -1)}, Bytes: 28 << 20}, {},
			},
			Drained: []string{"node1", "node2"}, Snapshot: ".kubexm/prod/snapshots/a.db", Lasts: 370 * time.Second, Back: "kubexm upgrade rollback --name prod", BackTo: "v1.36.4", AtATime: 2,
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			var out strings.Builder
			if err := writeUpgrade(&out, u); err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, out.String())
		})
	}
}

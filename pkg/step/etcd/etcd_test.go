package etcd_test

import (
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/step/etcd"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestRendered(t *testing.T) {
	for name, spec := range map[string]string{
		"defaults":   "",
		"extra args": "  etcd: {type: kubexm, dataDir: /data/etcd, extraArgs: {quota-backend-bytes: \"4294967296\", log-level: warn}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(t, spec, nil)
			golden.Equal(t, clustertest.Text(etcd.DataDir(c), etcd.MemberCerts(c, "node1"), etcd.ClientCerts(c, "node1"), etcd.Service(c, "node1")))
		})
	}
}

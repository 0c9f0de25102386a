package flannel_test

import (
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/step/flannel"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestFamilies shows what IPv6 changes.
func TestFamilies(t *testing.T) {
	golden.Equal(t, clustertest.Families(t, "", func(c *cluster.Cluster) string { return clustertest.Text(flannel.Steps(c)...) }))
}

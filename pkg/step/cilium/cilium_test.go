package cilium_test

import (
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/cilium"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestFamilies shows which values of the chart IPv6 changes.
func TestFamilies(t *testing.T) {
	golden.Equal(t, clustertest.Families(t, "  network: {plugin: cilium}\n", func(c *cluster.Cluster) string {
		return strings.ReplaceAll(string(cilium.Steps(c)[0].(step.ApplyChart).Values), ",", "\n") + "\n"
	}))
}

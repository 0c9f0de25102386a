package containerd_test

import (
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step/containerd"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestRendered(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		edit func(string, *runner.Facts)
	}{
		"2.x":                 {},
		"1.7":                 {spec: "  kubernetes: {version: v1.34.11}\n  runtime: {version: v1.7.33}\n"},
		"own root":            {spec: "  runtime: {dataRoot: /data/containerd}\n"},
		"cannot raise limits": {edit: func(_ string, f *runner.Facts) { f.Capabilities = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			k := clustertest.New(t, c.spec, c.edit)
			golden.Equal(t, clustertest.Text(containerd.Config(k, "node2"), containerd.Service(k, "node2"), containerd.Programs(k, "node2")))
		})
	}
}

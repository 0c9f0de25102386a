package registry_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/registry"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// random is what differs from cluster to cluster.
var random = regexp.MustCompile(`\$2a\$\S+|\b[A-Z2-7]{26}\b|\b[0-9a-f]{16}\b`)

// TestRendered shows what the registry's host gets. The hash of a password is the same from run to run.
func TestRendered(t *testing.T) {
	for name, spec := range map[string]string{
		"defaults": "",
		"configured": "  registry: {privateRegistry: \"images.example.com:5000\", dataDir: /data/registry, " +
			"auth: {\"images.example.com:5000\": {username: nodes, password: hunter2}}}\n",
		"harbor": "  registry: {type: harbor, privateRegistry: \"images.example.com:5000\", auth: {\"images.example.com:5000\": {username: admin, password: hunter2}}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.Parse(t, strings.Replace(clustertest.Alone, "master, worker]}]", "master, etcd, worker]}, {name: node2, address: 10.0.0.12, roles: [registry]}]", 1)+spec, nil)
			text := func() string {
				if plugin.RegistryOf(c.Spec).Docker {
					files := step.Unwrap(registry.Harbor(c, "node2"))
					return clustertest.Text(registry.HarborInstaller(c, "node2"), registry.DataDir(c), files, files.(step.Files).Also[0], files.(step.Files).Also[1],
						registry.HarborService(c, "node2"), registry.Answers(c, c.Registry()), registry.HarborGone())
				}
				return clustertest.Text(append(registry.Steps(c, "node2"), registry.Images(c, c.AllImages()))...)
			}
			once := text()
			if again := text(); again != once {
				t.Errorf("not the same twice:\n%s\n%s", once, again)
			}
			golden.Equal(t, random.ReplaceAllString(once, "(random)"))
		})
	}
}

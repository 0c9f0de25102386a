package registry_test

import (
	"regexp"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/step/registry"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// random is what differs from cluster to cluster.
var random = regexp.MustCompile(`\$2a\$\S+|\b[A-Z2-7]{26}\b`)

// TestRendered shows what the registry's host gets. The hash of a password is the same from run to run.
func TestRendered(t *testing.T) {
	for name, spec := range map[string]string{
		"defaults": "",
		"configured": "  registry: {privateRegistry: \"images.example.com:5000\", dataDir: /data/registry, " +
			"auth: {\"images.example.com:5000\": {username: nodes, password: hunter2}}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(t, "  roleGroups: {registry: [node2]}\n"+spec, nil)
			text := func() string {
				return clustertest.Text(registry.Programs(c, "node2"), registry.DataDir(c), registry.Service(c, "node2"), registry.Answers(c), registry.Images(c, c.AllImages()))
			}
			once := text()
			if again := text(); again != once {
				t.Errorf("not the same twice:\n%s\n%s", once, again)
			}
			golden.Equal(t, random.ReplaceAllString(once, "(random)"))
		})
	}
}

package plugin

import "github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"

// distribution is the registry of the project Distribution.
var distribution = Registry{
	Plugin: Plugin{
		Name: v1alpha1.RegistryDistribution, Unit: "registry",
		Parts: []Component{{
			Name: "registry", Version: "v3.1.2",
			Base:     GitHub + "distribution/distribution/releases/download/v{version}/",
			File:     "registry_{version}_linux_{arch}.tar.gz",
			Sums:     "{file}.sha256",
			Programs: []string{"registry"},
		}},
	},
	Title:   "the registry",
	DataDir: "/var/lib/registry",
	Ports:   []int{5001},
	Push:    5001,
}

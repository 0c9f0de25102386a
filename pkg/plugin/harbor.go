package plugin

import (
	"cmp"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

var harbor = Registry{
	Plugin: Plugin{
		Name: v1alpha1.RegistryHarbor, Unit: "harbor",
		Parts: []Component{{
			Name: "harbor", Version: "v2.15.2",
			Base: GitHub + "goharbor/harbor/releases/download/v{version}/",
			File: "harbor-offline-installer-v{version}.tgz",
			// https://docs.github.com/en/rest/releases/releases#get-a-release-by-tag-name: nothing with a SHA-256 is beside it.
			Sums:     "https://api.github.com/repos/goharbor/harbor/releases/tags/v{version}",
			AMD64:    true,
			Programs: []string{"harbor/harbor.v{version}.tar.gz", "harbor/prepare", "harbor/common.sh"},
		}},
		Version: Field{"spec.registry.harbor.version", func(s *v1alpha1.Spec) *string {
			if s.Registry == nil || s.Registry.Harbor == nil {
				return nil
			}
			return &s.Registry.Harbor.Version
		}},
		Section: &Section{
			Path: "spec.registry.harbor", Only: "is only for type harbor",
			Given: func(s *v1alpha1.Spec) bool { return s.Registry != nil && s.Registry.Harbor != nil },
		},
		Default: func(s *v1alpha1.Spec) { s.Registry.Harbor = cmp.Or(s.Registry.Harbor, &v1alpha1.Harbor{}) },
	},
	Title: "Harbor", DataDir: "/data/harbor", User: "admin",
	Ports:  []int{80, 1514}, // one that leads to its own, and one for the logs of its containers
	Docker: true,
	// What its installer can write, unquoted, into the environment of its containers.
	Letters: "._~@%+=:,/-",
}

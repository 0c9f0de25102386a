package task

import (
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/containerd"
)

const downloadTimeout = 2 * time.Hour

// Download fetches everything that clusters need into the store, several things
// at a time, what they share once.
func Download(clusters ...*cluster.Cluster) plan.Part {
	var all plan.Parallel
	seen := map[resource.Item]bool{}
	for _, c := range clusters {
		for _, item := range c.Needs() {
			if !seen[item] {
				seen[item] = true
				all = append(all, on("download", []string{plan.Control}, func(string) []step.Step {
					return []step.Step{step.With(fetch(c.Store, item), step.Options{Timeout: downloadTimeout, Retries: -1})} // the store itself tries again
				}))
			}
		}
	}
	return all
}

func fetch(s *resource.Store, item resource.Item) step.Step {
	if item.Image != "" {
		return containerd.Pull{Image: item.Image, Arch: item.Arch, Store: s}
	}
	return step.Fetch{Artifact: item.Artifact, Store: s}
}

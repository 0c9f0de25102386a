package task

import (
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/containerd"
)

const downloadTimeout = 2 * time.Hour

// Download fetches everything that the hosts need into the store, several
// things at a time.
func Download(c *cluster.Cluster) plan.Part {
	var all plan.Parallel
	seen := map[string]bool{}
	add := func(s step.Step) {
		if !seen[s.String()] {
			seen[s.String()] = true
			all = append(all, on("download", []string{plan.Control}, func(string) []step.Step {
				return []step.Step{step.With(s, step.Options{Timeout: downloadTimeout, Retries: -1})} // the store itself tries again
			}))
		}
	}
	for _, h := range c.Hosts(v1alpha1.RoleMaster, v1alpha1.RoleWorker, v1alpha1.RoleEtcd) {
		for _, name := range c.Components(h) {
			add(step.Fetch{Artifact: c.Artifact(name, h), Store: c.Store})
		}
	}
	for _, h := range c.Nodes() {
		for _, image := range c.Images(h) {
			add(containerd.Pull{Image: image, Arch: c.Arch(h), Store: c.Store})
		}
	}
	return all
}

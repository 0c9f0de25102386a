package loadbalancer

import (
	"context"
	"fmt"
	"slices"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// Former stops the proxy that kubexm runs on a host until another one listens at its port. What else there is of it is removed later.
func Former(c *cluster.Cluster, host string) (steps []step.Step) {
	facts := c.FactsOf(host)
	for _, p := range plugin.Proxies() {
		pod := runner.ManifestDir + "/" + p.Name + ".yaml"
		switch {
		case p.Name == plugin.ProxyOf(c.Spec).Name || !facts.Runs(p.Unit):
		case slices.Contains(facts.Inventory, "unit "+p.Unit):
			steps = append(steps, step.Command{
				What: "stop " + p.Unit, Unless: "! systemctl is-active -q " + p.Unit, Run: "systemctl stop " + p.Unit, Undo: "systemctl start " + p.Unit,
				Restarts: []string{p.Unit},
			})
		case slices.Contains(facts.Inventory, "path "+pod):
			steps = append(steps, FormerPod{Name: p.Name, Path: pod})
		}
	}
	return steps
}

// FormerPod is a static pod that runs no more.
type FormerPod struct{ Name, Path string }

func (p FormerPod) String() string { return "stop " + p.Name }

// Precheck reads the manifest, which comes back if the step is undone.
func (p FormerPod) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	files, err := r.ReadFiles(ctx, p.Path)
	was, there := files[p.Path]
	if err != nil || !there {
		return nil, err
	}
	return &step.Change{
		Diff: "stop the pod of " + p.Path, Restarts: []string{p.Name},
		Run: func(ctx context.Context) error {
			_, err := r.Sh(ctx, fmt.Sprintf(`rm -f %s
i=0
while [ -n "$(crictl ps -q --name '^%s$')" ] && [ $i -lt 150 ]; do i=$((i+1)); sleep 0.2; done`, p.Path, p.Name))
			return err
		},
		Rollback: func(ctx context.Context) error { return r.WriteFiles(ctx, was) },
	}, nil
}

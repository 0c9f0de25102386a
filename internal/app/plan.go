package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pipeline"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// converge is what brings the cluster to its configuration: its birth, or once it runs its life.
func converge(c *cluster.Cluster) plan.Pipeline {
	if c.Lives() {
		return pipeline.Apply(c)
	}
	return pipeline.Create(c)
}

// planned makes the graph of a pipeline.
func planned(c *cluster.Cluster, make func(*cluster.Cluster) plan.Pipeline) (*plan.ExecutionGraph, error) {
	pipe := make(c)
	key, err := c.Certs.PlanKey()
	c.Check(err)
	pipe.Key = key
	graph, err := plan.New(pipe)
	if err := errors.Join(c.Err(), err); err != nil {
		return nil, fmt.Errorf("planning: %w", err)
	}
	return graph, nil
}

// Plan makes the graph of creating (or deleting) a cluster.
func (a *App) Plan(ctx context.Context, r Request, o Observer, pipe string) (*plan.ExecutionGraph, error) {
	make := map[string]func(*cluster.Cluster) plan.Pipeline{"create": converge, "delete": pipeline.Delete}[pipe]
	if make == nil {
		return nil, fault.Exit(fmt.Errorf("no pipeline is named %q: create or delete", pipe), fault.ExitUsage)
	}
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	s, err := w.connect(ctx, false, false)
	if err != nil {
		return nil, err
	}
	if _, err := s.checkOwner(false); err != nil { // the plan would be for other keys than the machines have
		return nil, err
	}
	return planned(s.cluster, make)
}

package app

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/pipeline"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step"
)

// past is the graph of the configuration that was last applied.
type past struct {
	unknown bool // nobody can tell
	nodes   map[plan.ID]*plan.Node
}

// before plans for the configuration that was last applied.
func (s *site) before(changed bool) past {
	if !changed {
		return past{}
	}
	was, _, err := s.configs()
	if err != nil || was == nil {
		return past{unknown: true}
	}
	conf, err := config.Recorded(was)
	if err != nil {
		return past{unknown: true}
	}
	then := cluster.New(conf, s.dir, s.cluster.Store, s.cluster.Facts)
	then.Certs = &pki.Store{Dir: s.cluster.Certs.Dir, Validity: then.Certs.Validity, Existing: true}
	then.Observed = s.cluster.Observed.Of(then.All())
	then.LeaveOut(s.cluster.Missing()...)
	key, err1 := then.Certs.PlanKey()
	p := pipeline.Apply(then)
	p.Key = key
	graph, err2 := plan.New(p)
	if err := errors.Join(err1, err2); err != nil {
		return past{unknown: true}
	}
	nodes := make(map[plan.ID]*plan.Node, len(graph.Nodes))
	for i := range graph.Nodes {
		nodes[graph.Nodes[i].ID] = &graph.Nodes[i]
	}
	return past{nodes: nodes}
}

// explain tells why each step of a proposal, of these nodes, has something to do; changed: so has the configuration.
func (s *site) explain(ctx context.Context, p *Proposal, nodes []*plan.Node, changed bool) {
	if s.why != "" {
		for i := range p.Steps {
			p.Steps[i].Why = s.why
		}
		return
	}
	was := s.before(changed)
	var asks errgroup.Group
	asks.SetLimit(connecting)
	for i, n := range nodes {
		asks.Go(func() error { p.Steps[i].Why = was.why(ctx, s, n); return nil })
	}
	_ = asks.Wait() // it is no error not to know
}

// why tells what made the host of a node differ from what the node wants.
func (p past) why(ctx context.Context, s *site, n *plan.Node) string {
	switch was := p.nodes[n.ID]; {
	case p.unknown, keepsConfiguration(n):
		return WhyFile
	case p.nodes != nil && (n.Host == plan.Control || n.Role == plan.RoleBegin || n.Role == plan.RoleEnd): // they follow from others
		return WhyFile
	case p.nodes == nil, was != nil && was.Digest == n.Digest:
		return WhyDrift
	case was == nil || was.Step == nil || s.hosts[n.Host] == nil:
		return WhyFile
	default:
		if c, err := was.Step.Precheck(kube.Impatient(ctx), s.hosts[n.Host]); err == nil && c != nil {
			return WhyBoth
		}
		return WhyFile
	}
}

// keepsConfiguration tells whether a node keeps what is written in the configuration. That changes also where it comes to the same, as when a default is
// written out.
func keepsConfiguration(n *plan.Node) bool {
	s, ok := n.Step.(step.Apply)
	return ok && s.What == "configuration"
}

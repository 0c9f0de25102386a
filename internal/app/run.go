package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/pipeline"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// transfers is how many hosts get large files at a time.
const transfers = 16

// ErrStopped is a run that was stopped by its user before all was tried.
var ErrStopped = errors.New("stopped before the end")

// Result is how a use case that runs a pipeline ended.
type Result struct {
	Run        string           `json:"run,omitempty"` // name of the run; empty for a dry run
	Cluster    string           `json:"cluster"`
	Kubeconfig string           `json:"kubeconfig,omitempty"` // path, where the cluster has one
	Missing    []string         `json:"missing,omitempty"`    // hosts that could not be reached and were left out
	Summary    engine.Summary   `json:"summary"`
	RoundTrips map[string]int64 `json:"roundTrips"`     // by host
	Elapsed    time.Duration    `json:"elapsed"`        // nanoseconds
	Away       time.Duration    `json:"away,omitempty"` // for how long the API server did not answer at most, nanoseconds; 0: nobody asked

	Bundle   []resource.Volume   `json:"bundle,omitempty"`   // files that were written
	Signer   string              `json:"signer,omitempty"`   // fingerprint of the key that the bundle is signed with
	SBOM     string              `json:"sbom,omitempty"`     // file with the list of what was downloaded
	Imported []resource.Imported `json:"imported,omitempty"` // of each bundle
}

// Create makes a cluster, or brings one that is begun or there to what the
// configuration says: it downloads, builds and installs.
func Create(ctx context.Context, o Options) (*Result, error) { return o.create(ctx, false) }

// Install is Create of what was downloaded and built before: nothing is fetched, and
// what it writes to hosts is what Build wrote here, or it refuses to begin.
func Install(ctx context.Context, o Options) (*Result, error) { return o.create(ctx, true) }

func (o Options) create(ctx context.Context, built bool) (*Result, error) {
	s, err := begin(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.built, s.exclusive = built, !o.DryRun
	if err := s.checkBegin(ctx, "create"); err != nil {
		return nil, err
	}
	if err := s.lockFresh(ctx); err != nil {
		return nil, err
	}
	graph, err := s.plan(converge)
	if err != nil {
		return nil, err
	}
	files, err := s.render()
	switch {
	case err != nil:
	case built:
		err = s.checkBuilt(files)
	case !o.DryRun:
		_, err = s.writeBuilt(files)
	}
	if err != nil {
		return nil, err
	}
	res, err := s.run(ctx, "create", graph)
	if res == nil || o.DryRun {
		return res, err
	}
	path, failed := s.writeKubeconfig() // what is there can be looked at, after a failure too
	if err == nil {
		res.Kubeconfig, err = path, failed
	}
	return res, err
}

// checkBegin connects to the machines and checks whether the cluster may be made of them, or may follow its configuration.
func (s *session) checkBegin(ctx context.Context, pipe string) error {
	if err := s.checkUnchanged(refused); err != nil {
		return err
	}
	if s.Resume {
		if err := s.checkUnfinished(pipe); err != nil {
			return err
		}
		if err := s.sameConfig(); err != nil {
			return err
		}
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	return s.preflight(ctx)
}

// converge is what brings the cluster to its configuration: its birth, or once it runs its life.
func converge(c *cluster.Cluster) plan.Pipeline {
	if c.Lives() {
		return pipeline.Apply(c)
	}
	return pipeline.Create(c)
}

// Delete takes a cluster off its machines, and its secrets off the control
// machine. Machines that cannot be reached keep theirs, and so does the control
// machine, until a later delete has seen them all. With Force it does not wait for them: what
// would be removed from the control machine is archived there, and where no machine at all was
// reached, Confirm is asked before.
func Delete(ctx context.Context, o Options) (*Result, error) {
	s, err := begin(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.exclusive = !o.DryRun
	if err := s.checkUnchanged(erased); err != nil {
		return nil, err
	}
	failed, err := s.reach(ctx)
	if err == nil && len(failed) == len(s.config.Spec.Hosts) {
		err = s.confirmUnseen(ctx, failed)
	}
	if err == nil {
		var untouched []string
		if untouched, err = s.checkOwner(o.Force); untouched != nil {
			s.notice("not part of the cluster, left alone: %s", human.Names(untouched, 10))
		}
	}
	if err != nil {
		return nil, err
	}
	for _, f := range failed {
		s.notice("warning: left out: %v", f)
	}
	graph, err := s.plan(pipeline.Delete)
	if err != nil {
		return nil, err
	}
	res, err := s.run(ctx, "delete", graph)
	if err != nil || o.DryRun {
		return res, err
	}
	left, err := s.left(failed)
	if err == nil && len(left) > 0 && !o.Force {
		err = fmt.Errorf("the cluster was not removed from %s: not reached, not in the configuration, or without kubexm's record; its keys are kept in %s", human.Names(left, 10), s.cluster.Certs.Dir)
		err = fault.Advise(err, "bring them up and delete again; if they are gone for good or were reinstalled: kubexm delete cluster"+s.Which()+" --force")
	}
	if err != nil {
		return res, err
	}
	s.tellEtcd()
	for _, f := range failed {
		if !slices.Contains(left, f.Host) {
			left = append(left, f.Host)
		}
	}
	if len(left) > 0 {
		if err := s.archive(left); err != nil {
			return res, err
		}
	}
	return res, s.forget()
}

// left lists the hosts on which something of the cluster may still be.
func (s *session) left(unreached []*HostError) (hosts []string, err error) {
	cleaned, err := s.touched()
	for h, done := range cleaned {
		if !done || slices.ContainsFunc(unreached, func(e *HostError) bool { return e.Host == h }) {
			hosts = append(hosts, h)
		}
	}
	slices.Sort(hosts)
	return hosts, err
}

// Plan makes the graph of creating (or deleting) a cluster.
func Plan(ctx context.Context, o Options, pipe string) (*plan.ExecutionGraph, error) {
	make := map[string]func(*cluster.Cluster) plan.Pipeline{"create": converge, "delete": pipeline.Delete}[pipe]
	if make == nil {
		return nil, fault.Exit(fmt.Errorf("no pipeline is named %q: create or delete", pipe), fault.ExitUsage)
	}
	s, err := begin(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	if _, err := s.checkOwner(false); err != nil { // the plan would be for other keys than the machines have
		return nil, err
	}
	return s.plan(make)
}

// begin opens a session and takes the cluster's lock.
func begin(ctx context.Context, o *Options) (*session, error) {
	s, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.lock(); err != nil {
		return nil, err
	}
	return s, nil
}

func (o *Options) rollback() engine.Rollback {
	if o.NoRollBack {
		return engine.RollbackNone
	}
	return cmp.Or(o.Rollback, engine.RollbackHost)
}

func (s *session) engine() *engine.Engine {
	return &engine.Engine{
		Hosts: func(name string) (*runner.Runner, error) {
			if r := s.hosts[name]; r != nil {
				return r, nil
			}
			return nil, fmt.Errorf("host %s is not connected", name)
		},
		Sink: s.Sink, Stop: s.Stop, DryRun: s.DryRun, Rollback: s.rollback(), LookAhead: s.cluster.Lives(),
		Impatient: kube.Impatient, Limits: engine.Limits{Global: s.Parallel, Named: map[string]int{step.LimitTransfer: transfers}},
	}
}

// run runs the graph of a pipeline, and records it.
func (s *session) run(ctx context.Context, name string, graph *plan.ExecutionGraph) (*Result, error) {
	return s.runBy(ctx, name, graph, time.Now(), (*engine.Engine).Run)
}

// runBy is run by a function, which may have begun before.
func (s *session) runBy(ctx context.Context, name string, graph *plan.ExecutionGraph, start time.Time,
	run func(*engine.Engine, context.Context, *plan.ExecutionGraph) (engine.Summary, error),
) (res *Result, err error) {
	res = &Result{Cluster: s.config.Metadata.Name, Missing: s.cluster.Missing()}
	e := s.engine()
	var rec *record
	if s.DryRun {
		ctx = kube.Impatient(ctx) // a cluster that is not there yet is no trouble
	}
	if !s.DryRun {
		if rec, err = s.record(name, graph); err != nil {
			return nil, err
		}
		res.Run = rec.ID
		e.Sink = rec.sink(s.Sink)
	}
	if s.Begin != nil { // once there is something to go on with
		s.Begin(s.config.Metadata.Name, graph)
	}
	res.Summary, err = run(e, ctx, graph)
	res.RoundTrips, res.Elapsed = s.roundTrips(), time.Since(start)
	if res.Summary.Interrupted || ctx.Err() != nil {
		err = fault.Exit(errors.Join(ErrStopped, err), fault.ExitInterrupted)
	}
	if rec != nil {
		err = errors.Join(err, rec.finish(res, err))
	}
	return res, err
}

// writeKubeconfig keeps the administrator's kubeconfig on the control machine.
func (s *session) writeKubeconfig() (string, error) {
	if s.cluster.Certs.Pending() != nil {
		return "", nil // the run ended before there were keys
	}
	path := filepath.Join(s.dir, "admin.conf")
	conf, err := s.cluster.AdminConfig()
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(path, []byte(conf.Reveal()), 0o600); err != nil {
		return "", durable.Advise(fmt.Errorf("writing the kubeconfig: %w", err))
	}
	return path, nil
}

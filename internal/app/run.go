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

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/observe"
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
	Log        string           `json:"log,omitempty"` // path of its log
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

	kept config.Kept // what the cluster keeps of the configuration that was applied
}

// Create makes a cluster, or brings one that is begun or there to what the
// configuration says, as Apply does: it downloads, builds and installs.
func (a *App) Create(ctx context.Context, r Request, o Observer) (*Result, error) {
	return a.create(ctx, r, o, false)
}

// Install is Create of what was downloaded and built before: nothing is fetched, and
// what it writes to hosts is what Build wrote here, or it refuses to begin.
func (a *App) Install(ctx context.Context, r Request, o Observer) (*Result, error) {
	return a.create(ctx, r, o, true)
}

func (a *App) create(ctx context.Context, r Request, o Observer, built bool) (*Result, error) {
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	s, err := w.enter(ctx, "create", built)
	if err != nil {
		return nil, err
	}
	if s.cluster.Lives() {
		if err := w.checkBack(); err != nil {
			return nil, err
		}
		return s.bring(ctx, "create", nil, built)
	}
	if len(s.cluster.All(v1alpha1.RoleMaster)) == 2 { // which a cluster that runs may come to have, while one is exchanged
		return nil, fault.Exit(fault.Advise(errors.New("a cluster of 2 masters survives no failure: it is not created"), "use 1 master, or 3 or more"), fault.ExitUsage)
	}
	graph, err := planned(s.cluster, pipeline.Create)
	if err == nil {
		err = s.files(built)
	}
	if err != nil {
		return nil, err
	}
	res, err := s.run(ctx, "create", graph)
	return s.configured(ctx, res, err)
}

// site is a cluster with its hosts: all that is needed to plan and to run.
type site struct {
	*work
	*fleet
	cluster *cluster.Cluster
	why     string            // all that it does is for this; empty: it is for what differs
	own     map[string]string // former addresses that machines have again, by host; nil: no machine is to know of any
}

// files writes what hosts get to the build directory; built: it must be there.
func (s *site) files(built bool) error {
	files, err := render(s.cluster)
	switch {
	case err != nil:
	case built:
		err = s.checkBuilt(s.cluster, files)
	case !s.DryRun:
		_, err = s.writeBuilt(s.cluster, files)
	}
	return err
}

// enter connects to the machines and looks whether the cluster may be made of them, or may follow its configuration.
// Where something is to be changed, their locks are taken, and the lease of a cluster that runs. built: nothing is to be fetched.
func (w *work) enter(ctx context.Context, pipe string, built bool) (*site, error) {
	if err := cmp.Or(w.checkRestored(), w.checkUnchanged(impossible(pipe)), w.checkReadable()); err != nil {
		return nil, err
	}
	if err := w.findLeavers(ctx); err != nil {
		return nil, err
	}
	if w.Resume {
		if err := cmp.Or(w.checkUnfinished(pipe), w.sameConfig()); err != nil {
			return nil, err
		}
	}
	return w.alone(ctx, func() (*site, error) {
		s, err := w.connect(ctx, !w.DryRun, built)
		if err == nil {
			err = s.preflight(ctx, built)
		}
		if err == nil {
			err = s.lockFresh(ctx)
		}
		return s, err
	})
}

// connect is reach for what needs all hosts that may not be missing. It looks how the control plane is.
func (w *work) connect(ctx context.Context, exclusive, built bool) (_ *site, err error) {
	src := v1alpha1.Source{Offline: true}
	if !w.config.Spec.Source.Offline && !built {
		if src, err = w.resolveSource(ctx, w.config); err != nil {
			return nil, err
		}
	}
	s, failed, err := w.reach(ctx, exclusive, src)
	if err != nil {
		return nil, errors.Join(joined(failed), err)
	}
	s.observe(ctx) // what is left out depends on it
	if err := s.versions(ctx); err != nil {
		return nil, errors.Join(joined(failed), err)
	}
	failed, err = s.giveUp(failed)
	if err != nil {
		return nil, err
	}
	needed, err := s.leaveOut(failed)
	for _, e := range failed {
		if slices.Contains(s.cluster.Missing(), e.Host) {
			s.notice("warning: left out: %v", e)
		}
	}
	return s, errors.Join(joined(needed), err)
}

// reach connects to all hosts, gathers their facts and puts the cluster together; exclusive: their locks are taken. Hosts
// that cannot be reached or asked are left out, and returned.
func (w *work) reach(ctx context.Context, exclusive bool, src v1alpha1.Source) (_ *site, failed []*HostError, err error) {
	s := &site{work: w}
	s.fleet, failed = w.dialAll(ctx)
	forgotten, err := w.forgetReplaced(failed)
	if forgotten {
		s.hangUp()
		s.fleet, failed = w.dialAll(ctx)
	}
	w.ends = append(w.ends, s.hangUp)
	if err != nil {
		return nil, failed, err
	}
	if exclusive {
		if err := s.fleet.lock(ctx, w.holder); err != nil {
			return nil, nil, err
		}
	}
	facts, mute := s.gather(ctx)
	if back, err := s.keepFormer(ctx, facts); err != nil {
		return nil, append(failed, mute...), err
	} else if back {
		facts, mute = s.gather(ctx)
	}
	failed = append(failed, mute...)
	if w.records != nil {
		if w.restore == nil || w.restore.InPlace { // else they are others, or nobody knows yet
			if err := cmp.Or(w.knowMachines(facts), w.stillThere(facts)); err != nil {
				return nil, failed, err
			}
		}
		if err := w.records.KeepFacts(facts); err != nil { // nothing is owed to it: install looks itself
			s.notice(unkept, err)
		}
	}
	if s.cluster, err = w.planning(ctx, facts, src); err != nil {
		return nil, failed, err
	}
	s.cluster.Forced, s.cluster.Fenced, s.cluster.Replaced = w.Force, w.fenced(facts), w.replaced(facts)
	s.cluster.Unfenced, s.cluster.Restore = w.unfenced(facts), w.restore
	for _, l := range w.leaves {
		s.cluster.Leave(l.Host)
	}
	s.cluster.Moving, s.cluster.Passing, s.cluster.Back = inPlace(w.moves), w.pass, w.backward
	if s.cluster.Only, err = w.only(); err != nil {
		return nil, failed, err
	}
	if w.records != nil {
		if s.cluster.Complete, err = w.completed(); err != nil {
			return nil, failed, err
		}
		s.cluster.Complete = s.cluster.Complete && (w.restore == nil || w.restore.InPlace)
	}
	s.hosts[plan.API] = runner.New(plan.API, apiPlace{s})
	return s, failed, nil
}

// unkept is the notice of facts that cannot be recorded.
const unkept = "warning: the facts of the hosts cannot be kept for a later build: %v"

// planning puts the cluster together, with the store that all clusters share.
func (s *session) planning(ctx context.Context, facts map[string]*runner.Facts, src v1alpha1.Source) (*cluster.Cluster, error) {
	store, err := openStore(filepath.Dir(s.dir), src)
	if err != nil {
		return nil, err
	}
	c := cluster.New(s.config, s.dir, store, facts)
	c.Kubexm = s.app.Version
	if !src.Offline {
		fetchAddons(ctx, c)
	}
	return c, nil
}

// fetchAddons fetches charts and manifests of addons: what is planned follows from them. Where they cannot be had, whoever needs them says so.
func fetchAddons(ctx context.Context, c *cluster.Cluster) {
	for _, a := range c.Fetched() {
		if _, err := c.Store.Fetch(ctx, a, nil); err != nil {
			c.Unfetched = errors.Join(c.Unfetched, err)
		}
	}
}

// observe looks at the control plane of a cluster that runs.
func (s *site) observe(ctx context.Context) {
	if s.cluster.Lives() {
		s.cluster.Observed = observe.ControlPlane(ctx, s.cluster, s.hosts)
	}
}

// Delete takes a cluster off its machines, and its secrets off the control
// machine. Machines that cannot be reached keep theirs, and so does the control
// machine, until a later delete has seen them all. With Force it does not wait for them: what
// would be removed from the control machine is archived there, and where no machine at all was
// reached, MayForget is asked before.
func (a *App) Delete(ctx context.Context, r Request, o Observer) (*Result, error) {
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := cmp.Or(w.checkUnchanged(erased), w.findLeavers(ctx)); err != nil {
		return nil, err
	}
	var failed []*HostError
	s, err := w.alone(ctx, func() (s *site, err error) {
		s, failed, err = w.reach(ctx, !r.DryRun, v1alpha1.Source{Offline: true})
		if err == nil && len(failed) == len(w.config.Spec.Hosts) {
			err = w.confirmUnseen(ctx, failed)
		}
		if err == nil {
			var untouched []string
			if untouched, err = s.checkOwner(r.Force); untouched != nil {
				s.notice("not part of the cluster, left alone: %s", human.Names(untouched, 10))
			}
		}
		return s, err
	})
	if err != nil {
		return nil, err
	}
	for _, f := range failed {
		s.notice("warning: left out: %v", f)
	}
	graph, err := planned(s.cluster, pipeline.Delete)
	if err != nil {
		return nil, err
	}
	res, err := s.run(ctx, "delete", graph)
	if err != nil || r.DryRun {
		return res, err
	}
	w.tellJobs(ctx)
	left, err := w.left(failed)
	if err == nil && len(left) > 0 && !r.Force {
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
		if err := w.archive(left); err != nil {
			return res, err
		}
	}
	return res, w.forget(s.cluster)
}

// left lists the hosts on which something of the cluster may still be.
func (w *work) left(unreached []*HostError) (hosts []string, err error) {
	cleaned, err := w.records.touched()
	for h, done := range cleaned {
		if !done || slices.ContainsFunc(unreached, func(e *HostError) bool { return e.Host == h }) {
			hosts = append(hosts, h)
		}
	}
	slices.Sort(hosts)
	return hosts, err
}

func (r *Request) rollback() engine.Rollback {
	if r.NoRollBack {
		return engine.RollbackNone
	}
	return cmp.Or(r.Rollback, engine.RollbackHost)
}

func (s *site) engine() *engine.Engine {
	return &engine.Engine{
		Hosts: func(name string) (*runner.Runner, error) {
			if r := s.hosts[name]; r != nil {
				return r, nil
			}
			return nil, fmt.Errorf("host %s is not connected", name)
		},
		Sink: s.Event, Stop: s.Stop, DryRun: s.DryRun, Rollback: s.rollback(), LookAhead: s.cluster.Lives(),
		Impatient: kube.Impatient, Limits: engine.Limits{Global: s.Parallel, Named: map[string]int{step.LimitTransfer: transfers}, Process: s.app.Steps},
	}
}

// stop is closed when the run is to stop cleanly: it was told to, or its locks are another's. ended is to be called at its end.
func (s *site) stop() (stop <-chan struct{}, ended func()) {
	either, end := make(chan struct{}), make(chan struct{})
	go func() {
		select {
		case <-s.Stop:
		case <-s.taken:
		case <-end:
		}
		close(either)
	}()
	return either, func() { close(end) }
}

// run runs the graph of a pipeline, and records it.
func (s *site) run(ctx context.Context, name string, graph *plan.ExecutionGraph) (*Result, error) {
	return s.runSeen(ctx, name, graph, &Proposal{})
}

// runSeen is run after a look. Where that found nothing to do, to look again would cost as much, and find the same: it stands for the run.
func (s *site) runSeen(ctx context.Context, name string, graph *plan.ExecutionGraph, seen *Proposal) (res *Result, err error) {
	start := time.Now()
	res = &Result{Cluster: s.config.Metadata.Name, Missing: s.cluster.Missing()}
	e := s.engine()
	var rec *record
	if s.DryRun {
		ctx = kube.Impatient(ctx) // a cluster that is not there yet is no trouble
	}
	if !s.DryRun {
		if applies(name) {
			err = s.keepLeavers()
		}
		if err == nil {
			rec, err = s.record(name, graph, res.Missing)
		}
		if err != nil {
			return nil, err
		}
		res.Run, res.Log = rec.ID, s.logFile(rec.Run)
		e.Sink = rec.sink(s.Event)
	}
	if s.Begin != nil { // once there is something to go on with
		s.Begin(s.config.Metadata.Name, graph)
	}
	if len(seen.events) > 0 && seen.summary.OK == seen.summary.Total {
		start, res.Summary = seen.began, seen.summary
		for _, ev := range seen.events {
			if e.Sink != nil {
				e.Sink(ev)
			}
		}
	} else {
		var ended func()
		e.Stop, ended = s.stop()
		e.Right = seen.right()
		res.Summary, err = e.Run(ctx, graph)
		ended()
	}
	res.RoundTrips, res.Elapsed = s.roundTrips(), time.Since(start)
	if lost := s.lost(); lost != nil {
		err = errors.Join(lost, err)
	} else if res.Summary.Interrupted || ctx.Err() != nil {
		err = fault.Exit(errors.Join(ErrStopped, err), fault.ExitInterrupted)
	}
	if rec != nil {
		err = errors.Join(err, rec.finish(res, err))
	}
	if rec != nil && err == nil && applies(name) {
		err = s.farewell()
	}
	return res, err
}

// configured completes a run that brings a cluster to its configuration: there is a kubeconfig then.
func (s *site) configured(ctx context.Context, res *Result, err error) (*Result, error) {
	if res == nil || s.DryRun {
		return res, err
	}
	path, failed := writeKubeconfig(s.cluster) // what is there can be looked at, after a failure too
	if err == nil {
		res.Kubeconfig, err = path, failed
	}
	if ctx.Err() == nil {
		s.escrow(ctx, res)
	}
	return res, err
}

// writeKubeconfig keeps the administrator's kubeconfig on the control machine.
func writeKubeconfig(c *cluster.Cluster) (string, error) {
	if c.Certs.Pending() != nil {
		return "", nil // the run ended before there were keys
	}
	path := filepath.Join(c.Dir, cluster.AdminConf)
	conf, err := c.AdminConfig()
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(path, []byte(conf.Reveal()), 0o600); err != nil {
		return "", durable.Advise(fmt.Errorf("writing the kubeconfig: %w", err))
	}
	return path, nil
}

// Kubeconfig returns the administrator's kubeconfig and the name of the cluster.
func (a *App) Kubeconfig(r Request, o Observer) (name string, conf []byte, err error) {
	u := a.use(r, o)
	if name = r.Name; name == "" {
		_, c, err := u.read()
		if err != nil {
			return "", nil, err
		}
		name = c.Metadata.Name
	}
	conf, err = os.ReadFile(filepath.Join(a.Workdir, name, cluster.AdminConf))
	if missing(err) {
		err = fault.Advise(fmt.Errorf("cluster %s has no kubeconfig in %s yet", name, a.Workdir), "create the cluster with: kubexm create cluster"+u.Which())
	}
	return name, conf, err
}

// Package app holds what kubexm can do, one use case a function: load the
// configuration, lock the cluster, connect, gather facts, plan, run, record.
// The command line and the REST API both call it.
package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Options are what every use case can be told.
type Options struct {
	Name          string // of the cluster; its configuration is conf/<name>/cluster.yaml
	File          string // configuration file, instead of Name
	Workdir       string // of kubexm on the control machine
	Parallel      int    // hosts and steps at a time; 0: the engine's default
	DryRun        bool
	Resume        bool
	NoRollBack    bool
	Rollback      engine.Rollback // when a step fails; "": RollbackHost
	Force         bool            // delete: also without the cluster's keys, and without machines that cannot be reached
	SkipPreflight []string        // names of checks
	AllowMissing  bool            // create, plan, apply, preflight: without hosts that cannot be reached, where the others can do without them

	// Confirm asks whether to delete a cluster of which no machine was reached; an error is a no. nil: no.
	Confirm func(ctx context.Context, cluster, why string) error

	Notice func(text string)                            // told what is going on aside from events, at any time; nil: nobody
	Begin  func(cluster string, g *plan.ExecutionGraph) // told the plan before it runs; nil: nobody
	Sink   func(engine.Event)                           // told every event of the run, one at a time; nil: nobody
	Stop   <-chan struct{}                              // closed: stop cleanly

	Store store.Options // how what is remembered of clusters is opened

	// Here reaches the machine that finds out which packages operating systems have. nil: this one.
	Here connector.Connector
	// Dial reaches a host. nil: by SSH, as configured.
	Dial func(ctx context.Context, h *v1alpha1.Host, knownHosts string) (connector.Connector, error)
}

func (o *Options) notice(format string, args ...any) {
	if o.Notice != nil {
		o.Notice(human.Clean(fmt.Sprintf(format, args...))) // it may have words of a host
	}
}

// session is one use of a cluster.
type session struct {
	*Options
	config  *v1alpha1.Cluster
	file    string          // the configuration was read from
	given   []byte          // its text, where it was read from the records
	built   bool            // all is there that hosts get from this machine: nothing is to be fetched
	dir     string          // of the cluster on the control machine
	alone   bool            // the cluster's lock is held
	records store.Store     // nil: not opened
	source  v1alpha1.Source // with its secrets, once something may be fetched
	cluster *cluster.Cluster
	mu      sync.Mutex // guards what many goroutines gather
	hosts   map[string]*runner.Runner
	release func()

	exclusive bool          // hosts are changed: their locks are taken
	holder    runner.Holder // of the locks, once the local one is taken

	bastions map[connector.SSHConfig]func() (connector.Connector, error)
}

// DefaultWorkdir is the work directory of who names none.
const DefaultWorkdir = ".kubexm"

// Which names the cluster, and the work directory where it is none that goes without saying, on a command line.
func (o *Options) Which() string { return o.which() + o.where() }

func (o *Options) which() string {
	if o.File != "" {
		return " -f " + runner.Quote(o.File)
	}
	return " --name " + runner.Quote(o.Name)
}

func (o *Options) where() string {
	if o.Workdir == DefaultWorkdir {
		return ""
	}
	return " --workdir " + runner.Quote(o.Workdir)
}

// configFile finds the configuration: the file asked for, else that of the
// name, else the one the cluster was last made with, whose text it returns.
func (o *Options) configFile() (file string, given []byte, err error) {
	if o.File != "" {
		return o.File, nil, nil
	}
	if o.Name == "" {
		return "", nil, fault.Exit(errors.New("no cluster is named: give --name NAME (for conf/NAME/cluster.yaml) or -f FILE"), fault.ExitUsage)
	}
	file = filepath.Join("conf", o.Name, "cluster.yaml")
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return file, nil, nil
	}
	is, err := o.applied(o.Name)
	if is == nil || len(is.Given) == 0 {
		return file, nil, err
	}
	return "configuration of " + is.Run.ID, is.Given, nil
}

// applied is the configuration that a cluster was last made with; nil where there is none.
func (o *Options) applied(name string) (*store.Revision, error) {
	records, err := o.openRecords(filepath.Join(o.Workdir, name), false, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is no cluster
	}
	if err != nil {
		return nil, err
	}
	defer records.Close()
	return records.Applied()
}

// Config reads and checks the configuration, and returns where it is. No host is
// asked, no password is looked up.
func Config(o *Options) (file string, conf *v1alpha1.Cluster, err error) {
	file, _, conf, err = o.read()
	return file, conf, err
}

// read is Config that returns the text, too, where that is in the records.
func (o *Options) read() (file string, given []byte, conf *v1alpha1.Cluster, err error) {
	if file, given, err = o.configFile(); err != nil {
		return "", nil, nil, err
	}
	var warnings config.Errors
	if given == nil {
		conf, warnings, err = config.Load(file)
	} else {
		conf, warnings, err = config.Parse(file, given)
	}
	for _, w := range warnings {
		o.notice("warning: %s", w)
	}
	if err == nil && o.Name != "" && conf.Metadata.Name != o.Name {
		err = fault.Exit(fmt.Errorf("%s describes cluster %q, --name says %q", file, conf.Metadata.Name, o.Name), fault.ExitUsage)
	}
	return file, given, conf, err
}

// open loads the configuration. It asks no host.
func open(ctx context.Context, o *Options) (*session, error) {
	if err := o.checkSkipped(); err != nil {
		return nil, err
	}
	file, given, conf, err := o.read()
	if err != nil {
		return nil, err
	}
	warnings, err := config.ResolveSecrets(ctx, conf, localOutput)
	for _, w := range warnings {
		o.notice("warning: %s", w)
	}
	if err != nil {
		return nil, fault.Exit(err, fault.ExitUsage)
	}
	work, err := filepath.Abs(o.Workdir)
	if err != nil {
		return nil, fmt.Errorf("finding the work directory: %w", err)
	}
	return &session{Options: o, config: conf, file: file, given: given, dir: filepath.Join(work, conf.Metadata.Name), source: v1alpha1.Source{Offline: true}, release: func() {}}, nil
}

// resolveSource reads the secrets of a source, which only what fetches needs.
func (o *Options) resolveSource(ctx context.Context, conf *v1alpha1.Cluster) (v1alpha1.Source, error) {
	src, warnings, err := config.ResolveSource(ctx, conf, localOutput)
	for _, w := range warnings {
		o.notice("warning: %s", w)
	}
	return src, err
}

// connect reaches all hosts that may not be missing, gathers their facts, puts the
// cluster together and looks how its control plane is.
func (s *session) connect(ctx context.Context) (err error) {
	if !s.config.Spec.Source.Offline && !s.built {
		if s.source, err = s.resolveSource(ctx, s.config); err != nil {
			return err
		}
	}
	failed, err := s.reach(ctx)
	if err != nil {
		return errors.Join(joined(failed), err)
	}
	s.observe(ctx) // what is left out depends on it
	needed, err := s.leaveOut(failed)
	for _, e := range failed {
		if slices.Contains(s.cluster.Missing(), e.Host) {
			s.notice("warning: left out: %v", e)
		}
	}
	return errors.Join(joined(needed), err)
}

// reach is connect, with the hosts that cannot be reached or asked left out.
func (s *session) reach(ctx context.Context) (failed []*HostError, err error) {
	failed, facts, err := s.ask(ctx)
	if err != nil {
		return nil, err
	}
	store, err := openStore(filepath.Dir(s.dir), s.source)
	if err != nil {
		return failed, err
	}
	s.cluster = cluster.New(s.config, s.dir, store, facts)
	return failed, nil
}

// ask connects to all hosts and gathers their facts.
func (s *session) ask(ctx context.Context) (failed []*HostError, facts map[string]*runner.Facts, err error) {
	failed = s.dialAll(ctx)
	if err := s.lockHosts(ctx); err != nil {
		return nil, nil, err
	}
	facts, mute := s.gather(ctx)
	err = s.remember(true)
	if err == nil { // nothing is owed to it: install looks itself
		err = s.records.KeepFacts(facts)
	}
	if err != nil {
		s.notice("warning: the facts of the hosts cannot be kept for a later build: %v", err)
	}
	return append(failed, mute...), facts, nil
}

// plan makes the graph of a pipeline.
func (s *session) plan(make func(*cluster.Cluster) plan.Pipeline) (*plan.ExecutionGraph, error) {
	pipe := make(s.cluster)
	key, err := s.cluster.Certs.PlanKey()
	s.cluster.Check(err)
	pipe.Key = key
	graph, err := plan.New(pipe)
	if err := errors.Join(s.cluster.Err(), err); err != nil {
		return nil, fmt.Errorf("planning: %w", err)
	}
	return graph, nil
}

// close lets go of the locks and ends all connections.
func (s *session) close() {
	if s.records != nil {
		if s.alone {
			_ = s.records.Release(leaseCluster, holder()) // the next one takes it in any case
		}
		_ = s.records.Close() // all was committed
	}
	s.release()
	for _, h := range s.hosts {
		_ = h.Close() // nothing is owed to a connection that is given up
	}
	for _, dial := range s.bastions { // all were dialled
		if c, err := dial(); err == nil {
			_ = c.Close()
		}
	}
}

// RoundTrips returns how often each host was asked something.
func (s *session) roundTrips() map[string]int64 {
	trips := map[string]int64{}
	for name, h := range s.hosts {
		if name != plan.API { // its connections are those of masters
			trips[name] = h.RoundTrips()
		}
	}
	return trips
}

func localOutput(ctx context.Context, line string) (string, error) {
	return runner.New("control", connector.Local()).User(ctx, line, nil)
}

package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// openRecords opens what is remembered of the cluster in a directory; alone tells that its lock is held here.
func (o *Options) openRecords(dir string, create, alone bool) (store.Store, error) {
	opened := o.Store
	opened.Create = create
	if !alone {
		opened.Busy = func() bool { return locked(dir) }
	}
	return store.Open(dir, opened)
}

// remember opens what is remembered of the cluster, for as long as the session lasts.
func (s *session) remember(create bool) (err error) {
	if s.records == nil {
		s.records, err = s.openRecords(s.dir, create, s.alone)
	}
	return err
}

// record is the record of a run that goes on.
type record struct {
	store.Run
	journal *store.Journal
	records store.Store
}

// record begins the record of a run: its plan, its configuration, its events.
func (s *session) record(pipe string, graph *plan.ExecutionGraph) (*record, error) {
	now := time.Now().UTC()
	run := store.Run{ID: store.ID(now, pipe), Cluster: s.config.Metadata.Name, Pipeline: pipe, Started: now, Missing: s.cluster.Missing()}
	var rev *store.Revision
	if pipe != "delete" { // what is deleted may differ from what was made
		given, err := s.given, error(nil)
		if given == nil {
			given, err = os.ReadFile(s.file)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the configuration: %w", err)
		}
		resolved, err := s.resolved(true)
		if err != nil {
			return nil, err
		}
		rev = &store.Revision{Given: given, Secret: config.HasSecrets(given), Resolved: resolved}
	}
	run, err := s.records.Begin(run, graph, rev)
	if err != nil {
		return nil, err
	}
	return &record{run, store.NewJournal(s.records, run), s.records}, nil
}

// sink hands events to the journal before it passes them on.
func (r *record) sink(next func(engine.Event)) func(engine.Event) {
	return func(ev engine.Event) {
		r.journal.Add(ev)
		if next != nil {
			next(ev)
		}
	}
}

// Outcome says how a run ended: ok, failed or interrupted.
func Outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case fault.ExitCode(err) == fault.ExitInterrupted:
		return "interrupted"
	}
	return "failed"
}

func (r *record) finish(res *Result, runErr error) error {
	now := time.Now().UTC()
	r.Ended, r.Summary, r.Result = &now, res.Summary, Outcome(runErr)
	if runErr != nil {
		r.Error = runErr.Error()
	}
	if err := r.journal.Close(); err != nil { // one cause needs to be told once
		return err
	}
	return r.records.End(r.Run)
}

// checkUnfinished refuses to resume what is not there to be resumed.
func (s *session) checkUnfinished(pipe string) error {
	runs, err := s.records.Runs()
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return fault.Exit(fault.Advise(errors.New("there is no earlier run to resume"), "run the same command without --resume"), fault.ExitUsage)
	}
	last := runs[len(runs)-1]
	if last.Result == "" {
		last.Result = cutOff // the lock is ours
	}
	if last.Pipeline != pipe || last.Result == "ok" {
		err := fmt.Errorf("the last run, %s, ended %q: there is nothing to resume", last.ID, last.Result)
		return fault.Exit(fault.Advise(err, "run the same command without --resume"), fault.ExitUsage)
	}
	s.notice("resuming %s, begun %s", last.ID, last.Started.Local().Format(time.DateTime))
	return nil
}

// Clusters are those that are known in a work directory.
func Clusters(workdir string) ([]string, error) {
	entries, err := os.ReadDir(workdir)
	if missing(err) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if store.Exists(filepath.Join(workdir, e.Name())) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, err
}

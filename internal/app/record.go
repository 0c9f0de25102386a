package app

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// record is the record of a run that goes on.
type record struct {
	store.Run
	journal *store.Journal
	records store.Store
	log     *runLog
}

// record begins the record of a run: its plan, its configuration, its events.
func (w *work) record(pipe string, graph *plan.ExecutionGraph, missing []string) (*record, error) {
	now := time.Now().UTC()
	run := store.Run{ID: store.ID(now, pipe), Cluster: w.config.Metadata.Name, Pipeline: pipe, Started: now, Missing: missing, Partial: w.pass || w.backward || len(w.Only) > 0}
	var rev *store.Revision
	if pipe != "delete" && applies(pipe) { // what is deleted may differ from what was made
		given, err := w.given, error(nil)
		if given == nil {
			given, err = os.ReadFile(w.file)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the configuration: %w", err)
		}
		resolved, err := w.resolved(true)
		if err != nil {
			return nil, err
		}
		rev = &store.Revision{Given: given, Secret: config.HasSecrets(given), Resolved: resolved}
	}
	run, err := w.records.Begin(run, graph, rev)
	if err != nil {
		return nil, err
	}
	if err := w.logRun(run); err != nil {
		w.notice("warning: this run has no log: %v", err)
	}
	return &record{run, store.NewJournal(w.records, run), w.records, w.log}, nil
}

// applies reports whether a run of a pipeline brings about the configuration, and with it what was noted of hosts that leave.
func applies(pipe string) bool {
	return !slices.Contains([]string{systemPipe, defragPipe, restorePipe}, pipe)
}

// sink hands events to the journal before it passes them on.
func (r *record) sink(next func(engine.Event)) func(engine.Event) {
	return func(ev engine.Event) {
		r.journal.Add(ev)
		r.log.event(ev)
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
		r.log.Error(r.Error)
	}
	r.log.Info("run ended: "+r.Result, "duration_ms", now.Sub(r.Started).Milliseconds(), "changed", r.Summary.Changed, "ok", r.Summary.OK, "failed", r.Summary.Failed, "skipped", r.Summary.Skipped)
	if err := r.journal.Close(); err != nil { // one cause needs to be told once
		return err
	}
	return r.records.End(r.Run)
}

// checkUnfinished refuses to resume what is not there to be resumed.
func (w *work) checkUnfinished(pipe string) error {
	runs, err := w.records.Runs()
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
	w.notice("resuming %s, begun %s", last.ID, last.Started.Local().Format(time.DateTime))
	return nil
}

// completed reports whether a run has made the whole cluster that there is.
func (w *work) completed() (complete bool, err error) {
	runs, err := w.records.Runs()
	for _, r := range runs {
		if r.Result == "ok" {
			complete = r.Pipeline != "delete"
		}
	}
	return complete, err
}

// onward reports whether there is no way but on: the cluster goes back to an older version, or a run has begun to bring about this configuration, and has not
// ended well.
func (w *work) onward() (bool, error) {
	if w.records == nil { // they cannot be kept
		return false, nil
	}
	applied, err := w.records.Applied()
	if err != nil || applied == nil || len(applied.Resolved) == 0 {
		return false, err
	}
	has, err := releaseOf(*applied)
	is := config.ReleaseOf(&w.config.Spec)
	if back := !config.Same(has.Kubernetes, is.Kubernetes) && config.Older(has.Kubernetes, is.Kubernetes) == is.Kubernetes; back || err != nil || applied.Run.Result == "ok" {
		return back, err
	}
	changes, err := w.changes()
	return !slices.ContainsFunc(changes, func(c config.Change) bool { return c.Policy.Way != config.None }), err
}

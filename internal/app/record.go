package app

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// adoptedFile is the configuration that the cluster was last made with, as it was given.
const adoptedFile = "cluster.yaml"

// stamp is the form of the time that the name of a run begins with.
const stamp = "20060102T150405.000Z"

// Run is the record of one run, in runs/<id>/run.json of the cluster's directory.
type Run struct {
	ID       string         `json:"id"`
	Cluster  string         `json:"cluster"`
	Pipeline string         `json:"pipeline"`
	Started  time.Time      `json:"started"`
	Ended    *time.Time     `json:"ended,omitempty"`   // nil: running, or cut off
	Result   string         `json:"result,omitempty"`  // ok, failed, interrupted; not in the file: running, cut off
	Missing  []string       `json:"missing,omitempty"` // hosts that could not be reached and were left out
	Summary  engine.Summary `json:"summary"`
	Error    string         `json:"error,omitempty"`
}

type record struct {
	Run
	dir     string
	events  *os.File
	pending bytes.Buffer // events that are still to be written
}

// record begins the record of a run: its plan, its configuration, its events.
func (s *session) record(pipe string, graph *plan.ExecutionGraph) (*record, error) {
	now := time.Now().UTC()
	r := &record{Run: Run{ID: now.Format(stamp) + "-" + pipe, Cluster: s.config.Metadata.Name, Pipeline: pipe, Started: now, Missing: s.cluster.Missing()}}
	r.dir = filepath.Join(s.dir, "runs", r.ID)
	conf, err1 := os.ReadFile(s.file)
	resolved, err2 := s.resolved(true)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	data, err := json.MarshalIndent(graph, "", " ")
	if err = errors.Join(err, os.MkdirAll(r.dir, 0o700)); err != nil {
		return nil, err
	}
	err = cmp.Or( // one cause needs to be told once
		os.WriteFile(filepath.Join(r.dir, "graph.json"), data, 0o600),
		os.WriteFile(filepath.Join(r.dir, resolvedFile), resolved, 0o600),
		r.save())
	if pipe == "create" || pipe == "apply" { // what is deleted may differ from what was made
		err = cmp.Or(err, durable.Write(filepath.Join(s.dir, adoptedFile), conf), durable.Write(filepath.Join(s.dir, resolvedFile), resolved))
	}
	if err != nil {
		return nil, err
	}
	r.events, err = os.OpenFile(filepath.Join(r.dir, "events.jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return r, err
}

func (r *record) save() error {
	data, err := json.MarshalIndent(r.Run, "", " ")
	if err != nil {
		return err
	}
	return durable.Write(filepath.Join(r.dir, "run.json"), data)
}

// sink writes events to the record before it passes them on.
func (r *record) sink(next func(engine.Event)) func(engine.Event) {
	enc := json.NewEncoder(&r.pending)
	return func(ev engine.Event) {
		if ev.Status != engine.Progress {
			_ = enc.Encode(ev)
			_, _ = r.pending.WriteTo(r.events) // a full disk must not stop the run: what is left goes with the next event, or finish reports it
		}
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
	_, err := r.pending.WriteTo(r.events)
	if err = cmp.Or(err, r.events.Sync(), r.events.Close(), r.save()); err != nil {
		return durable.Advise(fmt.Errorf("recording the run: %w", err))
	}
	return nil
}

// checkUnfinished refuses to resume what is not there to be resumed.
func (s *session) checkUnfinished(pipe string) error {
	runs, err := runsIn(s.dir)
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return fault.Exit(fault.Advise(errors.New("there is no earlier run to resume"), "run the same command without --resume"), fault.ExitUsage)
	}
	last := runs[len(runs)-1]
	if last.Result == "running" { // but the lock is ours
		last.Result = "cut off"
	}
	if last.Pipeline != pipe || last.Result == "ok" {
		err := fmt.Errorf("the last run, %s, ended %q: there is nothing to resume", last.ID, last.Result)
		return fault.Exit(fault.Advise(err, "run the same command without --resume"), fault.ExitUsage)
	}
	s.notice("resuming %s, begun %s", last.ID, last.Started.Local().Format(time.DateTime))
	return nil
}

package store

import (
	"bufio"
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Files in which versions before the database kept their records: a directory for each run, where now logs of runs are; what was last
// applied, as it was given and with defaults; what was seen of hosts, and what was built.
const (
	olderRuns     = "runs"
	olderGiven    = "cluster.yaml"
	olderResolved = "resolved.yaml"
	olderFacts    = "facts.json"
	olderBuilt    = "built.json"
)

// olderFiles are those that no user has made: a cluster.yaml alone may be a user's.
func olderFiles() []string { return []string{olderFacts, olderBuilt, olderResolved} }

// runsOf are the directories of runs, in the order of their names, which begin with the time.
func runsOf(dir string) (runs []string, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, olderRuns))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() {
			runs = append(runs, filepath.Join(dir, olderRuns, e.Name()))
		}
	}
	return runs, err
}

// older reports whether there are records of an older version.
func older(dir string) bool {
	for _, name := range olderFiles() {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	runs, err := runsOf(dir)
	return err != nil || len(runs) > 0
}

// takeOver moves the records of older versions into the database. Files go once what was in them is committed; a run
// that is there already only goes. So it may be cut off anywhere.
func (d *database) takeOver(busy func() bool) error {
	if !older(d.dir) {
		return nil
	}
	const doing = "taking over the records of an older version"
	if busy != nil && busy() {
		return fault.Advise(fmt.Errorf("%s: another kubexm is at work on the cluster", doing), "wait until it has ended")
	}
	runs, err := runsOf(d.dir)
	if err != nil {
		return d.fail(doing, err)
	}
	for _, at := range runs {
		err := d.update(func(tx *sql.Tx) error { return takeRun(tx, at) })
		if err == nil {
			err = os.RemoveAll(at)
		}
		if err != nil {
			return d.fail(doing, err)
		}
	}
	gone := olderFiles()
	err = d.update(func(tx *sql.Tx) error {
		applied, err := d.takeNotes(tx)
		if applied { // last: it is of use with the other one only
			gone = append(gone, olderGiven)
		}
		return err
	})
	for _, name := range gone {
		if err == nil {
			err = os.RemoveAll(filepath.Join(d.dir, name))
		}
	}
	_ = os.Remove(filepath.Join(d.dir, olderRuns)) // unless logs are in it
	return d.fail(doing, err)
}

// takeRun takes over the directory of a run.
func takeRun(tx *sql.Tx, at string) error {
	text, err := os.ReadFile(filepath.Join(at, "run.json"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil // no run, or one that was cut off before it began, or gone by another process
	}
	if err != nil {
		return err
	}
	var run Run
	if json.Unmarshal(text, &run) != nil || run.ID == "" { // a power cut took it: its name tells the rest
		run = Run{ID: filepath.Base(at)}
		var began string
		began, run.Pipeline, _ = strings.Cut(run.ID, "-")
		run.Started, _ = time.Parse(stamp, began) // of a directory that no run has made: not known
	}
	var taken int
	if err := tx.QueryRow("SELECT count(*) FROM run WHERE id = ?", run.ID).Scan(&taken); err != nil || taken > 0 {
		return err
	}
	graph, err := optional(filepath.Join(at, "graph.json"))
	if err != nil {
		return err
	}
	if graph, err = compress(graph); err == nil {
		run, err = insert(tx, run, graph)
	}
	if err != nil {
		return err
	}
	events, err := takeEvents(filepath.Join(at, "events.jsonl"))
	if err == nil {
		err = appendTo(tx, run.Seq, events)
	}
	if err != nil || run.Pipeline == "delete" {
		return err
	}
	resolved, err := optional(filepath.Join(at, olderResolved))
	if err != nil || len(resolved) == 0 {
		return err
	}
	_, err = tx.Exec("INSERT INTO revision (run, applied, secret, resolved) VALUES (?, 0, 0, ?)", run.Seq, resolved)
	return err
}

// takeEvents reads events but for those that a crash has cut short.
func takeEvents(file string) (all []engine.Event, err error) {
	text, err := optional(file)
	for lines := bufio.NewReader(bytes.NewReader(text)); err == nil; {
		line, end := lines.ReadBytes('\n')
		if end != nil {
			break
		}
		var ev engine.Event
		if json.Unmarshal(line, &ev) == nil {
			all = append(all, ev)
		}
	}
	return all, err
}

// takeNotes takes over what was last applied, seen and built, and reports whether anything was applied. An empty
// resolved configuration is of a power cut: the cluster is there all the same.
func (d *database) takeNotes(tx *sql.Tx) (applied bool, err error) {
	facts, err1 := damaged[map[string]*runner.Facts](filepath.Join(d.dir, olderFacts))
	built, err2 := damaged[[]string](filepath.Join(d.dir, olderBuilt))
	given, err3 := optional(filepath.Join(d.dir, olderGiven)) // before the other, which another process would remove first
	if err := errors.Join(err1, err2, err3, keepFacts(tx, facts)); err != nil {
		return false, err
	}
	if built != nil {
		if err := note(tx, noteBuilt, "", built); err != nil {
			return false, err
		}
	}
	resolved, err := os.ReadFile(filepath.Join(d.dir, olderResolved))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = takeApplied(tx, given, resolved)
	}
	return true, err
}

// damaged reads a note; one that is not there, or that a crash has damaged, is empty: the next command makes it again.
func damaged[T any](file string) (value T, err error) {
	text, err := optional(file)
	if json.Unmarshal(text, &value) != nil {
		var empty T
		value = empty
	}
	return value, err
}

// takeApplied notes what was applied last, by the last run that could.
func takeApplied(tx *sql.Tx, given, resolved []byte) error {
	var seq sql.NullInt64
	err := tx.QueryRow("SELECT max(seq) FROM run WHERE record ->> '$.pipeline' <> 'delete'").Scan(&seq)
	if err == nil && !seq.Valid { // its record is gone
		var run Run
		run, err = insert(tx, Run{ID: ID(time.Now(), "create"), Pipeline: "create", Started: time.Now().UTC()}, nil)
		seq.Int64 = run.Seq
	}
	if err == nil {
		_, err = tx.Exec("DELETE FROM revision WHERE run = ?", seq.Int64)
	}
	if err != nil {
		return err
	}
	return apply(tx, seq.Int64, &Revision{Given: given, Secret: config.HasSecrets(given), Resolved: resolved})
}

// optional reads a file; one that is not there is empty.
func optional(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

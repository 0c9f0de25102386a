package store

import (
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
)

// Begin implements Runs.
func (d *database) Begin(run Run, graph *plan.ExecutionGraph, rev *Revision) (Run, error) {
	const doing = "recording the run"
	packed, err := pack(graph)
	if err != nil {
		return run, fmt.Errorf("%s: %w", doing, err)
	}
	err = d.update(func(tx *sql.Tx) (err error) {
		if run, err = insert(tx, run, packed); err != nil || rev == nil {
			return err
		}
		return apply(tx, run.Seq, rev)
	})
	return run, d.fail(doing, err)
}

// insert adds a run under an ID that no other has: a clock that was set back gives the same time twice.
func insert(tx *sql.Tx, run Run, graph []byte) (Run, error) {
	for id, n := run.ID, 2; ; n++ {
		var taken int
		if err := tx.QueryRow("SELECT count(*) FROM run WHERE id = ?", run.ID).Scan(&taken); err != nil {
			return run, err
		}
		if taken == 0 {
			break
		}
		run.ID = fmt.Sprintf("%s-%d", id, n)
	}
	record, err := json.Marshal(run)
	if err != nil {
		return run, err
	}
	res, err := tx.Exec("INSERT INTO run (id, record, graph) VALUES (?, ?, ?)", run.ID, string(record), graph)
	if err == nil {
		run.Seq, err = res.LastInsertId()
	}
	return run, err
}

// apply notes a configuration as the one that is applied. The one before keeps its secrets until the run has ended well: it may be
// the way back.
func apply(tx *sql.Tx, run int64, rev *Revision) error {
	if err := disapply(tx); err != nil {
		return err
	}
	_, err := tx.Exec("INSERT INTO revision (run, applied, secret, given, resolved) VALUES (?, 1, ?, ?, ?)", run, rev.Secret, rev.Given, append([]byte{}, rev.Resolved...))
	return err
}

// lapse removes the texts of configurations with secrets that are not applied any more.
const lapse = "UPDATE revision SET given = NULL WHERE secret AND NOT applied"

// disapply notes that no configuration is applied.
func disapply(tx *sql.Tx) error {
	_, err := tx.Exec("UPDATE revision SET applied = 0 WHERE applied")
	return err
}

func pack(graph *plan.ExecutionGraph) ([]byte, error) {
	if graph == nil {
		return nil, nil
	}
	text, err := json.Marshal(graph)
	if err != nil {
		return nil, err
	}
	return compress(text)
}

func compress(text []byte) ([]byte, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return z.EncodeAll(text, nil), z.Close()
}

// End implements Runs.
func (d *database) End(run Run) error {
	record, err := json.Marshal(run)
	if err == nil {
		_, err = d.write.Exec("UPDATE run SET record = ? WHERE seq = ?", string(record), run.Seq)
	}
	if err == nil && run.Result == "ok" {
		_, err = d.write.Exec(lapse)
	}
	return d.fail("recording the run", err)
}

// Append implements Runs.
func (d *database) Append(run Run, events []engine.Event) error {
	return d.fail("recording the run", d.update(func(tx *sql.Tx) error { return appendTo(tx, run.Seq, events) }))
}

func appendTo(tx *sql.Tx, run int64, events []engine.Event) error {
	var number int64
	if err := tx.QueryRow("SELECT coalesce(max(number), 0) FROM event WHERE run = ?", run).Scan(&number); err != nil {
		return err
	}
	insert, err := tx.Prepare("INSERT INTO event (run, number, body) VALUES (?, ?, ?)")
	if err != nil {
		return err
	}
	defer insert.Close()
	for _, ev := range events {
		body, err := json.Marshal(ev)
		if err != nil {
			return err
		}
		number = max(number+1, ev.Seq) // what is not kept leaves gaps
		if _, err := insert.Exec(run, number, string(body)); err != nil {
			return err
		}
	}
	return nil
}

// Runs implements Runs.
func (d *database) Runs() (all []Run, err error) {
	err = each(d.read, func(rows *sql.Rows) error {
		var seq int64
		var record string
		var run Run
		err := rows.Scan(&seq, &record)
		if err == nil {
			err = json.Unmarshal([]byte(record), &run)
		}
		run.Seq = seq
		all = append(all, run)
		return err
	}, "SELECT seq, record FROM run ORDER BY seq")
	return all, d.fail("listing runs", err)
}

// each calls use for each row of a query.
func each(db *sql.DB, use func(*sql.Rows) error, query string, args ...any) error {
	rows, err := db.Query(query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := use(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Graph implements Runs.
func (d *database) Graph(run Run) (*plan.ExecutionGraph, error) {
	const doing = "reading the plan of a run"
	var packed []byte
	if err := d.read.QueryRow("SELECT graph FROM run WHERE seq = ?", run.Seq).Scan(&packed); err != nil {
		return nil, d.fail(doing, err)
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	defer z.Close()
	graph := &plan.ExecutionGraph{}
	text, err := z.DecodeAll(packed, nil)
	if err == nil {
		err = json.Unmarshal(text, graph)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return graph, nil
}

// Events implements Runs. Events are read in pieces, so that a slow reader keeps no old state of the database alive.
func (d *database) Events(run Run, after int64, use func(number int64, ev engine.Event) error) error {
	const piece = 1000
	for {
		type numbered struct {
			number int64
			body   []byte
		}
		var some []numbered
		err := each(d.read, func(rows *sql.Rows) error {
			var n numbered
			err := rows.Scan(&n.number, &n.body)
			some = append(some, n)
			return err
		}, "SELECT number, body FROM event WHERE run = ? AND number > ? ORDER BY number LIMIT ?", run.Seq, after, piece)
		if err != nil {
			return d.fail("reading events", err)
		}
		for _, n := range some {
			var ev engine.Event
			if err := json.Unmarshal(n.body, &ev); err != nil {
				return fmt.Errorf("reading events: %w", err)
			}
			if err := use(n.number, ev); err != nil {
				return err
			}
			after = n.number
		}
		if len(some) < piece {
			return nil
		}
	}
}

// Applied implements Revisions.
func (d *database) Applied() (*Revision, error) {
	all, err := d.revisions("WHERE applied")
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[len(all)-1], nil
}

// History implements Revisions.
func (d *database) History() ([]Revision, error) { return d.revisions("") }

func (d *database) revisions(which string) (all []Revision, err error) {
	err = each(d.read, func(rows *sql.Rows) error {
		var r Revision
		var seq int64
		var record string
		err := rows.Scan(&seq, &record, &r.Given, &r.Secret, &r.Resolved)
		if err == nil {
			err = json.Unmarshal([]byte(record), &r.Run)
		}
		r.Run.Seq = seq
		all = append(all, r)
		return err
	}, "SELECT seq, record, given, secret, resolved FROM revision JOIN run ON seq = run "+which+" ORDER BY seq")
	return all, d.fail("reading the configurations that were applied", err)
}

// Forget implements Revisions.
func (d *database) Forget() error {
	return d.fail("forgetting the cluster", d.update(func(tx *sql.Tx) error {
		if err := disapply(tx); err != nil {
			return err
		}
		_, err := tx.Exec("DELETE FROM note; " + lapse)
		return err
	}))
}

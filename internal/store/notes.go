package store

import (
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/kubexm/kubexm/pkg/runner"
)

// Kinds of notes. The names of facts and inventories are those of hosts.
const (
	noteFacts     = "facts"
	noteInventory = "inventory"
	noteBuilt     = "built"
	noteDeparted  = "departed"
)

// notes reads all values of a kind, by name.
func notes[T any](d *database, doing, kind string) (map[string]T, error) {
	all := map[string]T{}
	err := each(d.read, func(rows *sql.Rows) error {
		var name string
		var text []byte
		err := rows.Scan(&name, &text)
		var value T
		if err == nil {
			err = json.Unmarshal(text, &value)
		}
		all[name] = value
		return err
	}, "SELECT name, value FROM note WHERE kind = ?", kind)
	return all, d.fail(doing, err)
}

// note replaces a value.
func note[T any](tx *sql.Tx, kind, name string, value T) error {
	text, err := json.Marshal(value)
	if err == nil {
		_, err = tx.Exec("INSERT INTO note (kind, name, value) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", kind, name, text)
	}
	return err
}

// Facts implements Hosts.
func (d *database) Facts() (map[string]*runner.Facts, error) {
	return notes[*runner.Facts](d, "reading the last known facts of the hosts", noteFacts)
}

// KeepFacts implements Hosts.
func (d *database) KeepFacts(facts map[string]*runner.Facts) error {
	return d.fail("recording the facts of the hosts", d.update(func(tx *sql.Tx) error { return keepFacts(tx, facts) }))
}

func keepFacts(tx *sql.Tx, facts map[string]*runner.Facts) error {
	for host, f := range facts {
		if f == nil {
			if _, err := tx.Exec("DELETE FROM note WHERE kind = ? AND name = ?", noteFacts, host); err != nil {
				return err
			}
			continue
		}
		if err := note(tx, noteFacts, host, f); err != nil {
			return err
		}
	}
	return nil
}

// Inventory implements Hosts.
func (d *database) Inventory() (map[string][]string, error) {
	return notes[[]string](d, "reading what hosts owe to kubexm", noteInventory)
}

// KeepInventory implements Hosts.
func (d *database) KeepInventory(host string, items []string) error {
	return d.fail("noting what host "+host+" owes to kubexm", d.update(func(tx *sql.Tx) error {
		if len(items) > 0 {
			return note(tx, noteInventory, host, items)
		}
		_, err := tx.Exec("DELETE FROM note WHERE kind = ? AND name = ?", noteInventory, host)
		return err
	}))
}

// Departed implements Hosts.
func (d *database) Departed() (map[string]Departed, error) {
	return notes[Departed](d, "reading which hosts leave", noteDeparted)
}

// KeepDeparted implements Hosts.
func (d *database) KeepDeparted(host string, is *Departed) error {
	return d.fail("noting that host "+host+" leaves", d.update(func(tx *sql.Tx) error {
		if is != nil {
			return note(tx, noteDeparted, host, is)
		}
		_, err := tx.Exec("DELETE FROM note WHERE kind = ? AND name = ?", noteDeparted, host)
		return err
	}))
}

// Built implements Hosts.
func (d *database) Built() ([]string, error) {
	all, err := notes[[]string](d, "reading what was built", noteBuilt)
	return all[""], err
}

// KeepBuilt implements Hosts.
func (d *database) KeepBuilt(dirs []string) error {
	return d.fail("noting what is built", d.update(func(tx *sql.Tx) error { return note(tx, noteBuilt, "", dirs) }))
}

// Lease implements Leases.
func (d *database) Lease(name, holder string, ttl time.Duration) error {
	now := time.Now()
	return d.fail("taking the lease of "+name, d.update(func(tx *sql.Tx) error {
		held, err := lease(tx.QueryRow, name)
		if err != nil {
			return err
		}
		if held != nil && held.Holder != holder && now.Before(held.Until) {
			return &HeldError{*held}
		}
		_, err = tx.Exec("INSERT INTO lease (name, holder, since, until) VALUES (?, ?, ?, ?) "+
			"ON CONFLICT DO UPDATE SET since = iif(holder = excluded.holder, since, excluded.since), holder = excluded.holder, until = excluded.until",
			name, holder, now.UnixMilli(), now.Add(ttl).UnixMilli())
		return err
	}))
}

// Holder implements Leases.
func (d *database) Holder(name string) (*Held, error) {
	held, err := lease(d.read.QueryRow, name)
	return held, d.fail("reading who holds "+name, err)
}

func lease(query func(query string, args ...any) *sql.Row, name string) (*Held, error) {
	held := &Held{Name: name}
	var since, until int64
	err := query("SELECT holder, since, until FROM lease WHERE name = ?", name).Scan(&held.Holder, &since, &until)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // nobody holds it
	}
	held.Since, held.Until = time.UnixMilli(since), time.UnixMilli(until)
	return held, err
}

// Release implements Leases.
func (d *database) Release(name, holder string) error {
	_, err := d.write.Exec("DELETE FROM lease WHERE name = ? AND holder = ?", name, holder)
	return d.fail("giving back the lease of "+name, err)
}

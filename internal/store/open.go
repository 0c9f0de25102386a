package store

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// File is the name of the database in a cluster's directory.
const File = "kubexm.db"

// Options say how a store is opened. The zero value opens one that is there.
type Options struct {
	Create     bool                             // make it where there is none
	NoSync     bool                             // what was written is lost by a power cut: for tests
	Busy       func() bool                      // reports whether another process works on the cluster: records of older versions wait; nil: none does
	FileSystem func(dir string) (string, error) // kind of the file system of a directory; nil: asks the kernel
}

// busyTimeout is how long a transaction waits for that of another process. Transactions take milliseconds;
// taking over the records of an older version may take seconds.
const busyTimeout = 20 * time.Second

// Exists reports whether a cluster's directory has a store, or records of older versions.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, File))
	return err == nil || older(dir)
}

// Open opens the store in a cluster's directory, and takes over what older versions kept in files there. The error is
// fs.ErrNotExist where there is nothing and nothing is to be made.
func Open(dir string, o Options) (_ Store, err error) {
	if !o.Create && !Exists(dir) {
		return nil, fmt.Errorf("opening the records of the cluster: %w", &fs.PathError{Op: "open", Path: filepath.Join(dir, File), Err: fs.ErrNotExist})
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("opening the records of the cluster: %w", err)
	}
	if err := checkFileSystem(dir, o.FileSystem); err != nil {
		return nil, err
	}
	d := &database{dir: dir, path: filepath.Join(dir, File)}
	defer func() {
		if err != nil {
			_ = d.Close()
		}
	}()
	if err := d.connect(o.NoSync); err != nil {
		return nil, d.fail("opening the records of the cluster", err)
	}
	if err := d.takeOver(o.Busy); err != nil {
		return nil, err
	}
	return d, nil
}

// database is a Store in a file of SQLite.
type database struct {
	dir, path   string
	write, read *sql.DB
}

// connect opens the file, brings its schema up to date and checks it.
func (d *database) connect(noSync bool) error {
	err := d.make()
	if err != nil {
		return err
	}
	sync := "full"
	if noSync {
		sync = "off"
	}
	// One connection writes; others read at the same time what was committed when they began (https://www.sqlite.org/wal.html).
	// Pages that are freed are overwritten, for they may have held secrets.
	if d.write, err = connection(d.path, 1, "immediate", "journal_mode(wal)", "synchronous("+sync+")", "wal_autocheckpoint(256)", "secure_delete(1)"); err != nil {
		return err
	}
	if d.read, err = connection(d.path, 4, "deferred", "query_only(1)"); err != nil {
		return err
	}
	// SQLite does not wait for others where it would first turn a new file to the log, or a file back that its last user
	// is closing (https://www.sqlite.org/wal.html#sometimes_queries_return_sqlite_busy_in_wal_mode).
	for since := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if err = d.migrate(); !busy(err) || time.Since(since) > busyTimeout {
			return err
		}
	}
}

// make makes an empty file for its owner alone where there is none. It is not opened by its name: to close any descriptor
// of a file gives up the locks that the process has on it (fcntl(2)), those of SQLite too.
func (d *database) make() error {
	if _, err := os.Stat(d.path); !errors.Is(err, fs.ErrNotExist) {
		return nil // SQLite finds out the rest
	}
	f, err := os.CreateTemp(d.dir, "."+File+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err = errors.Join(f.Close(), os.Link(f.Name(), d.path)); errors.Is(err, fs.ErrExist) {
		return nil // by another process
	}
	return err
}

// connection is a pool of at most n connections, each set up with pragmas.
func connection(path string, n int, lock string, pragmas ...string) (*sql.DB, error) {
	values := url.Values{"_txlock": {lock}, "_pragma": append([]string{fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds())}, pragmas...)}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: values.Encode()}).String())
	if err == nil {
		db.SetMaxOpenConns(n)
		db.SetMaxIdleConns(n)
	}
	return db, err
}

// Copy writes all of it to a file (https://www.sqlite.org/lang_vacuum.html#vacuuminto).
func (d *database) Copy(path string) error {
	_, err := d.write.Exec("VACUUM INTO ?", path)
	return d.fail("copying the records of the cluster", err)
}

// Close ends the use of the store. The last one to do so merges the log into the file.
func (d *database) Close() error {
	var err error
	for _, db := range []*sql.DB{d.read, d.write} {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	return err
}

// application marks a file as kubexm's: "kxm" and a zero byte.
const application = 0x6b786d00

// migrations bring a database from the version that is their index to the next one.
func migrations() []string { return []string{tables} }

const tables = `
CREATE TABLE run (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, record TEXT NOT NULL, graph BLOB);
CREATE TABLE event (run INTEGER NOT NULL, number INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (run, number)) WITHOUT ROWID;
CREATE TABLE revision (run INTEGER PRIMARY KEY, applied INTEGER NOT NULL, secret INTEGER NOT NULL, given BLOB, resolved BLOB NOT NULL);
CREATE TABLE note (kind TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, name)) WITHOUT ROWID;
CREATE TABLE lease (name TEXT PRIMARY KEY, holder TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID`

// migrate brings the schema up to date. Reading it finds files that are no database, cut short or damaged where it counts most.
func (d *database) migrate() error {
	steps := migrations()
	version, err := d.version(d.write)
	if err != nil || version == len(steps) {
		return err
	}
	return d.update(func(tx *sql.Tx) error {
		version, err := d.version(tx) // another process may have been quicker
		for ; err == nil && version < len(steps); version++ {
			_, err = tx.Exec(steps[version] + fmt.Sprintf("; PRAGMA application_id = %d; PRAGMA user_version = %d", application, version+1))
		}
		return err
	})
}

// version is that of the schema; it refuses a file of another program and one of a newer kubexm.
func (d *database) version(db interface {
	QueryRow(query string, args ...any) *sql.Row
},
) (version int, err error) {
	var id, tables int
	// One statement, for another process may be making the tables.
	err = db.QueryRow("SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version, pragma_application_id").
		Scan(&version, &id, &tables)
	switch {
	case err != nil:
	case tables > 0 && id != application:
		err = fault.Advise(fmt.Errorf("%s is not a database of kubexm", d.path), "move it away")
	case version > len(migrations()):
		err = fault.Advise(fmt.Errorf("%s was written by a newer kubexm", d.path), "use that one, or a newer one")
	}
	return version, err
}

// update makes one change of the database.
func (d *database) update(change func(*sql.Tx) error) error {
	tx, err := d.write.Begin()
	if err != nil {
		return err
	}
	if err := change(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

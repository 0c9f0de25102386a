package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open makes or opens a store that is closed when the test ends.
func open(t testing.TB, dir string) store.Store {
	t.Helper()
	st, err := store.Open(dir, store.Options{Create: true, NoSync: true})
	must(t, err)
	t.Cleanup(func() { must(t, st.Close()) })
	return st
}

func run(at time.Time, pipeline string) store.Run {
	return store.Run{ID: store.ID(at, pipeline), Cluster: "prod", Pipeline: pipeline, Started: at.UTC()}
}

// numbered are n events that tell their number.
func numbered(n int) (all []engine.Event) {
	for i := range n {
		all = append(all, engine.Event{Host: "node1", What: fmt.Sprint(i + 1), Status: engine.Changed})
	}
	return all
}

// texts are the events of a run, which must be numbered as they were added.
func texts(t testing.TB, st store.Store, run store.Run, after int64) (all []string) {
	t.Helper()
	must(t, st.Events(run, after, func(number int64, ev engine.Event) error {
		if want := after + int64(len(all)) + 1; number != want {
			t.Errorf("number %d, want %d", number, want)
		}
		all = append(all, ev.What)
		return nil
	}))
	return all
}

// TestRuns records runs while the clock is set back: their order is that in which they began, and no name is given twice.
func TestRuns(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var want []string
	for i, at := range []time.Time{now, now.Add(-time.Hour), now, now.Add(-24 * time.Hour)} {
		graph := &plan.ExecutionGraph{Name: fmt.Sprint(i), Nodes: []plan.Node{{ID: "a"}}}
		r, err := st.Begin(run(at, "create"), graph, nil)
		must(t, err)
		ended := at.Add(time.Minute)
		r.Ended, r.Result, r.Summary.OK = &ended, "ok", i
		must(t, st.Append(r, numbered(i)))
		must(t, st.Append(r, numbered(i)))
		must(t, st.End(r))
		want = append(want, r.ID)
	}
	if want[2] != want[0]+"-2" {
		t.Errorf("names: %q", want)
	}
	must(t, st.Close())
	st = open(t, dir)
	runs, err := st.Runs()
	must(t, err)
	for i, r := range runs {
		if r.ID != want[i] || r.Seq != int64(i+1) || r.Summary.OK != i || r.Ended == nil {
			t.Errorf("run %d: %+v", i, r)
		}
		graph, err := st.Graph(r)
		if err != nil || graph.Name != fmt.Sprint(i) || len(graph.Nodes) != 1 {
			t.Errorf("plan %d: %+v, %v", i, graph, err)
		}
		if got := texts(t, st, r, int64(i)); len(got) != i {
			t.Errorf("events of run %d: %q", i, got)
		}
	}
	if len(runs) != len(want) {
		t.Errorf("%d runs", len(runs))
	}
}

// TestManyEvents reads more events than fit in a piece.
func TestManyEvents(t *testing.T) {
	st := open(t, t.TempDir())
	r, err := st.Begin(run(time.Now(), "create"), nil, nil)
	must(t, err)
	must(t, st.Append(r, numbered(2000)))
	if got := texts(t, st, r, 0); len(got) != 2000 || got[1999] != "2000" {
		t.Errorf("%d events", len(got))
	}
	must(t, st.Append(r, []engine.Event{{Seq: 3000}, {Seq: 3002}}))
	var last []int64
	must(t, st.Events(r, 2000, func(number int64, ev engine.Event) error { last = append(last, number, ev.Seq); return nil }))
	if !slices.Equal(last, []int64{3000, 3000, 3002, 3002}) {
		t.Errorf("numbers: %d", last)
	}
	stop := errors.New("enough")
	if err := st.Events(r, 0, func(int64, engine.Event) error { return stop }); err != stop {
		t.Error(err)
	}
}

// TestRevisions applies configurations. Text with secrets goes when the next one is there, or the cluster goes.
func TestRevisions(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	apply := func(given string, secret bool) store.Run {
		t.Helper()
		r, err := st.Begin(run(time.Now(), "create"), nil, &store.Revision{Given: []byte(given), Secret: secret, Resolved: []byte("resolved " + given)})
		must(t, err)
		return r
	}
	check := func(applied string, history ...string) {
		t.Helper()
		is, err := st.Applied()
		must(t, err)
		if is == nil != (applied == "") || is != nil && (string(is.Given) != applied || string(is.Resolved) != "resolved "+applied) {
			t.Errorf("applied: %+v, want %q", is, applied)
		}
		all, err := st.History()
		must(t, err)
		var given []string
		for _, r := range all {
			given = append(given, string(r.Given))
		}
		if diff := cmp.Diff(history, given); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
	}
	check("")
	apply("one", false)
	apply("s3cret-two", true)
	check("s3cret-two", "one", "s3cret-two")
	_, err := st.Begin(run(time.Now(), "delete"), nil, nil)
	must(t, err)
	three := apply("three", false)
	three.Result = "failed"
	must(t, st.End(three))
	check("three", "one", "s3cret-two", "three")
	three.Result = "ok"
	must(t, st.End(three))
	check("three", "one", "", "three")
	apply("s3cret-four", true)
	must(t, st.KeepFacts(map[string]*runner.Facts{"node1": {}}))
	must(t, st.Forget())
	check("", "one", "", "three", "")
	if facts, err := st.Facts(); err != nil || len(facts) > 0 {
		t.Errorf("facts: %v, %v", facts, err)
	}
	must(t, st.Close())
	text, err := os.ReadFile(filepath.Join(dir, store.File))
	if err != nil || strings.Contains(string(text), "s3cret-two\x00") || strings.Count(string(text), "s3cret") != strings.Count(string(text), "resolved s3cret") {
		t.Errorf("a secret is still in the file, %v", err)
	}
}

// TestHosts notes what is known of hosts.
func TestHosts(t *testing.T) {
	st := open(t, t.TempDir())
	must(t, st.KeepFacts(map[string]*runner.Facts{"node1": {OS: "debian"}, "node2": {OS: "rocky"}}))
	must(t, st.KeepFacts(map[string]*runner.Facts{"node2": {OS: "ubuntu"}}))
	facts, err := st.Facts()
	if err != nil || len(facts) != 2 || facts["node1"].OS != "debian" || facts["node2"].OS != "ubuntu" {
		t.Errorf("facts: %+v, %v", facts, err)
	}
	must(t, st.KeepInventory("node1", []string{"file /etc/a"}))
	must(t, st.KeepInventory("node1", []string{"file /etc/b", "unit c"}))
	must(t, st.KeepInventory("node2", []string{"file /etc/a"}))
	must(t, st.KeepInventory("node2", nil))
	owed, err := st.Inventory()
	if diff := cmp.Diff(map[string][]string{"node1": {"file /etc/b", "unit c"}}, owed); err != nil || diff != "" {
		t.Errorf("inventory: %v\n%s", err, diff)
	}
	built, err := st.Built()
	if err != nil || built != nil {
		t.Errorf("built: %v, %v", built, err)
	}
	must(t, st.KeepBuilt([]string{"node1", "objects"}))
	if built, err = st.Built(); err != nil || !slices.Equal(built, []string{"node1", "objects"}) {
		t.Errorf("built: %v, %v", built, err)
	}
}

// TestLease takes, renews, loses and gives back a lease.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := open(t, t.TempDir())
		begun := time.Now()
		held := func(want string) {
			t.Helper()
			is, err := st.Holder("cluster")
			must(t, err)
			if is == nil != (want == "") || is != nil && is.Holder != want {
				t.Errorf("held by %+v, want %q", is, want)
			}
		}
		held("")
		must(t, st.Lease("cluster", "a", time.Minute))
		time.Sleep(30 * time.Second)
		must(t, st.Lease("cluster", "a", time.Minute))
		time.Sleep(59 * time.Second)
		var other *store.HeldError
		if err := st.Lease("cluster", "b", time.Minute); !errors.As(err, &other) || other.Holder != "a" || !other.Since.Equal(begun) {
			t.Errorf("taken: %v", err)
		}
		must(t, st.Release("cluster", "b"))
		held("a")
		time.Sleep(time.Second)
		must(t, st.Lease("cluster", "b", 0)) // guarded by other means
		held("b")
		must(t, st.Lease("cluster", "a", 0))
		must(t, st.Release("cluster", "a"))
		held("")
	})
}

// TestOpen opens what is not there, what is no store, and what cannot be used: the error names the file and what to do.
func TestOpen(t *testing.T) {
	made := func(t *testing.T, dir string) string {
		t.Helper()
		st, err := store.Open(dir, store.Options{Create: true, NoSync: true})
		must(t, err)
		r, err := st.Begin(run(time.Now(), "create"), nil, nil)
		must(t, err)
		must(t, st.Append(r, numbered(1000)))
		must(t, st.Close())
		return filepath.Join(dir, store.File)
	}
	for name, c := range map[string]struct {
		spoil        func(t *testing.T, dir string)
		on           string // file system
		want, advice string
		code         int
	}{
		"nothing": {spoil: func(*testing.T, string) {}, want: "file does not exist"},
		"not a database": {spoil: func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, store.File), []byte(strings.Repeat("no database ", 1000)), 0o600))
		}, want: "kubexm.db is damaged", advice: "move it away"},
		"cut short": {spoil: func(t *testing.T, dir string) { must(t, os.Truncate(made(t, dir), 10_000)) }, want: "kubexm.db is damaged", advice: "move it away"},
		"damaged": {spoil: func(t *testing.T, dir string) {
			f, err := os.OpenFile(made(t, dir), os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt(make([]byte, 3000), 100)
			must(t, errors.Join(err, f.Close()))
		}, want: "kubexm.db is damaged", advice: "move it away"},
		"newer": {spoil: func(t *testing.T, dir string) {
			db, err := sql.Open("sqlite", made(t, dir))
			must(t, err)
			_, err = db.Exec("PRAGMA user_version = 1000")
			must(t, errors.Join(err, db.Close()))
		}, want: "kubexm.db was written by a newer kubexm", advice: "use that one"},
		"another's": {spoil: func(t *testing.T, dir string) {
			db, err := sql.Open("sqlite", filepath.Join(dir, store.File))
			must(t, err)
			_, err = db.Exec("CREATE TABLE bookmarks (url)")
			must(t, errors.Join(err, db.Close()))
		}, want: "kubexm.db is not a database of kubexm", advice: "move it away"},
		"network": {spoil: func(t *testing.T, dir string) { made(t, dir) }, on: "nfs4", want: "is on a network file system (nfs4)", advice: "--workdir DIR", code: fault.ExitUsage},
		"sshfs":   {spoil: func(t *testing.T, dir string) { made(t, dir) }, on: "fuse.sshfs", want: "network file system", advice: "--workdir DIR", code: fault.ExitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.spoil(t, dir)
			st, err := store.Open(dir, store.Options{FileSystem: func(string) (string, error) { return c.on, nil }})
			if err == nil {
				_, err = st.Runs()
				st.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) || !strings.Contains(fault.Advice(err), c.advice) || c.code != 0 && fault.ExitCode(err) != c.code {
				t.Errorf("%v\nadvice: %s", err, fault.Advice(err))
			}
			if name == "nothing" && (!errors.Is(err, fs.ErrNotExist) || store.Exists(dir)) {
				t.Errorf("%v, made: %t", err, store.Exists(dir))
			}
		})
	}
}

// TestAlone finds the file for its owner alone, and nothing beside it once it is closed; its path may hold anything.
func TestAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b?c=%20#d")
	must(t, os.Mkdir(dir, 0o700))
	st := open(t, dir)
	_, err := st.Begin(run(time.Now(), "create"), nil, nil)
	must(t, err)
	must(t, st.Close())
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) != 1 || left[0].Name() != store.File {
		t.Errorf("left: %v", left)
	}
	if info, err := left[0].Info(); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestTogether opens a new store many times at once, and writes from all sides.
func TestTogether(t *testing.T) {
	dir := t.TempDir()
	var all errgroup.Group
	for range 8 {
		all.Go(func() error {
			st, err := store.Open(dir, store.Options{Create: true, NoSync: true})
			if err != nil {
				return err
			}
			r, err := st.Begin(run(time.Unix(0, 0), "create"), nil, nil)
			for range 10 {
				err = errors.Join(err, st.Append(r, numbered(1)))
			}
			return errors.Join(err, st.Close())
		})
	}
	must(t, all.Wait())
	st := open(t, dir)
	runs, err := st.Runs()
	must(t, err)
	for _, r := range runs {
		if n := len(texts(t, st, r, 0)); n != 10 {
			t.Errorf("%s has %d events", r.ID, n)
		}
	}
	if len(runs) != 8 {
		t.Errorf("%d runs", len(runs))
	}
}

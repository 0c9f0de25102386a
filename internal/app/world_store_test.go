package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/engine"
)

// records uses what is remembered of each cluster of the world.
func (w *world) records(use func(dir string, st store.Store)) {
	w.Helper()
	files, err := filepath.Glob(filepath.Join(w.dir, "*", store.File))
	w.must(err)
	for _, f := range files {
		st, err := store.Open(filepath.Dir(f), store.Options{NoSync: true})
		w.must(err)
		use(filepath.Dir(f), st)
		w.must(st.Close())
	}
}

// unfinished gives the record of the last run the form that a killed one leaves.
func (w *world) unfinished() {
	w.Helper()
	w.records(func(_ string, st store.Store) {
		runs, err := st.Runs()
		w.must(err)
		if len(runs) == 0 {
			return // it was killed before it began
		}
		last := runs[len(runs)-1]
		last.Ended, last.Result, last.Error = nil, "", ""
		w.must(st.End(last))
	})
}

// older gives what is remembered the form that versions before the database left, after a power cut with the files empty
// that were written last.
func (w *world) older(powerCut bool) {
	w.Helper()
	time.Sleep(time.Second) // the next run has another name
	put := func(value any, path ...string) {
		text, ok := value.([]byte)
		if !ok {
			var err error
			text, err = json.Marshal(value)
			w.must(err)
		}
		file := filepath.Join(path...)
		if cut := filepath.Base(file) == "run.json" || len(path) == 2 && path[1] == "resolved.yaml"; cut && powerCut {
			text = nil
		}
		w.must(os.MkdirAll(filepath.Dir(file), 0o700))
		w.must(os.WriteFile(file, text, 0o600))
	}
	w.records(func(dir string, st store.Store) {
		runs, err := st.Runs()
		w.must(err)
		for _, r := range runs {
			graph, err := st.Graph(r)
			w.must(err)
			var lines bytes.Buffer
			enc := json.NewEncoder(&lines)
			w.must(st.Events(r, 0, func(_ int64, ev engine.Event) error { return enc.Encode(ev) }))
			at := filepath.Join(dir, "runs", r.ID)
			put(r, at, "run.json")
			put(graph, at, "graph.json")
			put(lines.Bytes(), at, "events.jsonl")
		}
		applied, err := st.Applied()
		w.must(err)
		if applied != nil {
			put(applied.Given, dir, "cluster.yaml")
			put(applied.Resolved, dir, "resolved.yaml")
		}
		facts, err := st.Facts()
		w.must(err)
		put(facts, dir, "facts.json")
		built, err := st.Built()
		w.must(err)
		put(built, dir, "built.json")
	})
	left, err := filepath.Glob(filepath.Join(w.dir, "*", store.File+"*"))
	w.must(err)
	for _, f := range left {
		w.must(os.Remove(f))
	}
}

// later moves what older has written to another year.
func (w *world) later(year string) {
	w.Helper()
	files, err := filepath.Glob(filepath.Join(w.dir, "*", "runs", "*", "run.json"))
	w.must(err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		w.must(err)
		id := filepath.Base(filepath.Dir(f))
		w.must(os.WriteFile(f, bytes.ReplaceAll(text, []byte(id[:4]), []byte(year)), 0o600))
		w.must(os.Rename(filepath.Dir(f), filepath.Join(filepath.Dir(filepath.Dir(f)), year+id[4:])))
	}
}

// holder is this process, as it is told of who holds a lock.
func holder() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("process %d on %s", os.Getpid(), host)
}

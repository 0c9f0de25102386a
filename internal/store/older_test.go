package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/internal/store"
)

// before are the files of a cluster as versions before the database left them.
var before = map[string]string{
	"runs/20260102T030405.000Z-create/run.json":      `{"id": "20260102T030405.000Z-create", "pipeline": "create", "started": "2026-01-02T03:04:05Z", "result": "ok", "summary": {"ok": 2}}`,
	"runs/20260102T030405.000Z-create/graph.json":    `{"name": "create", "nodes": [{"id": "a", "task": "t"}]}`,
	"runs/20260102T030405.000Z-create/resolved.yaml": "spec: 1\n",
	"runs/20260102T030405.000Z-create/events.jsonl":  `{"what": "one", "status": "changed"}` + "\n{broken\n" + `{"what": "two", "status": "ok"}` + "\n" + `{"what": "thr`,
	"runs/20260102T040405.000Z-delete/run.json":      `{"id": "20260102T040405.000Z-delete", "pipeline": "delete", "started": "2026-01-02T04:04:05Z", "summary": {}}`,
	"runs/20260102T040405.000Z-delete/resolved.yaml": "spec: 1\n",
	"runs/20260102T050405.000Z-create/run.json":      "", // a power cut took it
	"runs/20260102T060405.000Z-create/graph.json":    `{"name": "create", "nodes": []}`,
	"runs/file":     "of somebody",
	"cluster.yaml":  "spec: {global: {password: x}}\n",
	"resolved.yaml": "spec: 2\n",
	"facts.json":    `{"node1": {"os": "debian"}}`,
	"built.json":    `["node1", "objects"]`,
}

// after is what is remembered of it.
const after = `1 20260102T030405.000Z-create create "ok" 2026-01-02: [one two] 1 nodes
2 20260102T040405.000Z-delete delete "" 2026-01-02: []
3 20260102T050405.000Z-create create "" 2026-01-02: []
applied by 1: "" "spec: 1\n"
applied by 3: "spec: {global: {password: x}}\n" "spec: 2\n"
applied: 3
facts: 1, built: [node1 objects]
`

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
}

// remembered describes a store.
func remembered(t *testing.T, st store.Store) string {
	t.Helper()
	var b strings.Builder
	runs, err := st.Runs()
	must(t, err)
	for _, r := range runs {
		fmt.Fprintf(&b, "%d %s %s %q %s: %v", r.Seq, r.ID, r.Pipeline, r.Result, r.Started.Format("2006-01-02"), texts(t, st, r, 0))
		if graph, err := st.Graph(r); err == nil {
			fmt.Fprintf(&b, " %d nodes", len(graph.Nodes))
		}
		b.WriteString("\n")
	}
	revs, err := st.History()
	must(t, err)
	for _, r := range revs {
		fmt.Fprintf(&b, "applied by %d: %q %q\n", r.Run.Seq, r.Given, r.Resolved)
	}
	if is, err := st.Applied(); err != nil || is != nil {
		fmt.Fprintf(&b, "applied: %d\n", is.Run.Seq)
	}
	facts, err := st.Facts()
	must(t, err)
	built, err := st.Built()
	must(t, err)
	fmt.Fprintf(&b, "facts: %d, built: %v\n", len(facts), built)
	return b.String()
}

// TestOlder takes over what older versions left, once, wherever a crash has ended an earlier try.
func TestOlder(t *testing.T) {
	check := func(t *testing.T, dir, want string) {
		t.Helper()
		st, err := store.Open(dir, store.Options{NoSync: true})
		must(t, err)
		defer st.Close()
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(remembered(t, st), "\n")); diff != "" {
			t.Errorf("remembered (-want +got):\n%s", diff)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "runs", "*")); len(left) > 1 || len(left) == 1 && filepath.Base(left[0]) != "file" { // logs are there, too
			t.Errorf("still there: %v", left)
		}
		for _, gone := range []string{"facts.json", "built.json", "resolved.yaml"} {
			if _, err := os.Lstat(filepath.Join(dir, gone)); err == nil {
				t.Errorf("%s is still there", gone)
			}
		}
	}
	t.Run("whole", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, before)
		check(t, dir, after)
		if _, err := os.Stat(filepath.Join(dir, "cluster.yaml")); err == nil {
			t.Error("cluster.yaml is still there")
		}
	})
	for name, left := range map[string]func(file string) bool{ // after a commit, and before files were removed
		"all":        func(string) bool { return true },
		"a run":      func(file string) bool { return strings.Contains(file, "T03") },
		"no runs":    func(file string) bool { return !strings.HasPrefix(file, "runs") },
		"resolved":   func(file string) bool { return strings.HasSuffix(file, "d.yaml") || file == "cluster.yaml" },
		"its file":   func(file string) bool { return file == "cluster.yaml" },
		"the config": func(file string) bool { return strings.HasSuffix(file, ".yaml") && !strings.HasPrefix(file, "runs") },
	} {
		t.Run("crash with "+name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, before)
			check(t, dir, after)
			some := map[string]string{}
			for file, text := range before {
				if left(file) {
					some[file] = text
				}
			}
			write(t, dir, some)
			check(t, dir, after)
		})
	}
	t.Run("nothing but what was applied", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, map[string]string{"cluster.yaml": "spec: {}\n", "resolved.yaml": "", "facts.json": "{"})
		st, err := store.Open(dir, store.Options{NoSync: true})
		must(t, err)
		defer st.Close()
		if is, err := st.Applied(); err != nil || is == nil || string(is.Given) != "spec: {}\n" || is.Run.Pipeline != "create" {
			t.Errorf("applied: %+v, %v", is, err)
		}
	})
	t.Run("at work", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, before)
		_, err := store.Open(dir, store.Options{Busy: func() bool { return true }})
		if err == nil || !strings.Contains(err.Error(), "another kubexm is at work") {
			t.Errorf("taken over: %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "runs/20260102T030405.000Z-create/events.jsonl")); err != nil {
			t.Error(err)
		}
		check(t, dir, after)
	})
	t.Run("a user's file", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, map[string]string{"cluster.yaml": "spec: {}\n"})
		open(t, dir)
		if _, err := os.Stat(filepath.Join(dir, "cluster.yaml")); err != nil {
			t.Error(err)
		}
	})
}

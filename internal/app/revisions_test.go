package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestRevision applies a configuration, then another one, and goes back to the first.
func TestRevision(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		first := "# as it was agreed\n" + row(t, "row1")
		w := newWorld(t, first, "")
		res, err := w.attempt(t.Context()).create()
		w.must(err)
		born := w.image()
		second := edited(t, first, "kubernetes: {maxPods: 120}")
		w.configure(second)
		w.apply()
		w.configure(second + "# edited, not applied\n")

		back := func() *attempt {
			a := w.attempt(t.Context())
			a.Revision = res.Run
			return a
		}
		for revision, want := range map[string]string{"20010101T000000.000Z-create": "no run 20010101T000000.000Z-create is recorded in ", "x": "no run x is recorded in "} {
			a := back()
			a.Revision = revision
			if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), want) {
				t.Errorf("back to %s: %v", revision, err)
			}
		}
		a := back()
		p, err := a.App.PlanApply(a.ctx, a.Request, a.Observer)
		w.must(err)
		if p.Revision != res.Run || p.File != w.file || len(p.Changes) != 1 || p.Changes[0].Field != "spec.kubernetes.maxPods" {
			t.Errorf("proposed: %+v", p)
		}
		text := func(file string) string {
			t.Helper()
			is, err := os.ReadFile(file)
			w.must(err)
			return string(is)
		}
		if text(w.file) == first {
			t.Error("a look writes the file")
		}
		plan := filepath.Join(t.TempDir(), "plan.json")
		w.must(app.SavePlan(plan, p))
		saved, err := app.LoadPlan(plan)
		w.must(err)
		a = w.attempt(t.Context()) // the plan knows the revision
		if _, err = a.App.Apply(a.ctx, a.Request, a.Observer, saved); err != nil {
			t.Fatalf("the saved plan: %v", err)
		}
		if text(w.file) != first {
			t.Errorf("the file is:\n%s", text(w.file))
		}
		kept, err := filepath.Glob(w.file + ".*")
		w.must(err)
		if len(kept) != 1 || text(kept[0]) != second+"# edited, not applied\n" {
			t.Errorf("kept: %q", kept)
		}
		born.same(t, "as it was", w.image())
		w.settled()
		a = back()
		if res, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err != nil || res.Summary.OK != res.Summary.Total {
			t.Errorf("back again: %+v, %v", res, err)
		}
		if kept, _ = filepath.Glob(w.file + ".*"); len(kept) != 1 {
			t.Errorf("kept what did not change: %q", kept)
		}
	})
}

// TestRevisionWithSecrets goes back to a configuration whose text is not kept.
func TestRevisionWithSecrets(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		first := edited(t, row(t, "row1"), "global: {password: hunter2}")
		w := newWorld(t, first, "")
		res, err := w.attempt(t.Context()).create()
		w.must(err)
		w.configure(edited(t, first, "global: {password: hunter3}"))
		w.apply()
		a := w.attempt(t.Context())
		a.Revision = res.Run
		if _, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil); fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), "it held secrets in plain text") {
			t.Errorf("got %v", err)
		}
		if text, err := os.ReadFile(w.file); err != nil || !strings.Contains(string(text), "hunter3") {
			t.Errorf("the file is %s, %v", text, err)
		}
	})
}

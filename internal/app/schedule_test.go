package app_test

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestSchedule has systemd of the control machine take backups, try them, and renew certificates.
func TestSchedule(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row1"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		public, _ := recoveryKey(t)
		here := runnertest.Debian12("control")
		environment := filepath.Join(w.dir, "kubexm.env")
		w.must(os.WriteFile(environment, []byte("HTTPS_PROXY=http://proxy:3128\n"), 0o600))
		here.Put(environment, "HTTPS_PROXY=http://proxy:3128\n", 0o600)
		before := here.Snapshot()
		at := func() *attempt {
			a := w.attempt(t.Context())
			a.App.Here = here
			return a
		}
		install := func() ([]app.Job, error) {
			a := at()
			return a.App.InstallSchedule(a.ctx, a.Request, a.Observer, "/usr/local/bin/kubexm", environment)
		}
		list := func() map[string]app.Job {
			a := at()
			jobs, err := a.App.Schedule(a.ctx, a.Request, a.Observer)
			w.must(err)
			all := map[string]app.Job{}
			for _, j := range jobs {
				all[j.Name] = j
			}
			return all
		}
		if _, err := install(); fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), "asks for nothing") {
			t.Errorf("nothing to install: %v", err)
		}
		scheduled := edited(t, row(t, "row1"), `{kubernetes: {autoRenewCerts: true}, backup: {recipients: [`+public+`], targets: [{dir: /mnt/backups}], schedule: "*-*-* 02:00:00", drill: {schedule: weekly, identityFile: "/root/a key"}}}`)
		w.configure(scheduled)
		if jobs := list(); len(jobs) != 3 || jobs["backup"].Active || jobs["backup"].Result != "" {
			t.Errorf("not installed: %+v", jobs)
		}
		_, err = install()
		w.must(err)
		var text strings.Builder
		for _, unit := range []string{"backup.service", "backup.timer", "drill.service", "certs.service", "certs.timer"} {
			is, _ := here.Get("/etc/systemd/system/kubexm-job-row1-" + unit)
			text.WriteString(unit + "\n" + is + "\n")
		}
		cwd, err := os.Getwd()
		w.must(err)
		me, err := user.Current()
		w.must(err)
		golden.File(t, "testdata/schedule/units.txt", strings.NewReplacer(filepath.Clean(w.dir), "WORKDIR", w.file, "FILE", "="+cwd, "=CWD", "User="+me.Username, "User=ME").Replace(text.String()))

		here.OnStart["kubexm-job-row1-backup.service"] = func(*runnertest.Host) error { return errors.New("the bucket is gone") }
		here.Put("/usr/local/bin/kubexm", "ELF", 0o755)
		if here.Start("kubexm-job-row1-backup") == nil {
			t.Error("it starts")
		}
		w.must(here.Start("kubexm-job-row1-certs"))
		if jobs := list(); jobs["backup"].Result != "exit-code" || jobs["certs"].Result != "success" || !jobs["drill"].Active || jobs["drill"].Last != "" || jobs["backup"].Next == "" {
			t.Errorf("installed: %+v", jobs)
		}
		a := at()
		is, err := a.App.Status(a.ctx, a.Request, a.Observer)
		w.must(err)
		if want := "the last backup by kubexm-job-row1-backup.timer of this machine failed: exit-code"; !strings.Contains(strings.Join(is.Problems, "\n"), want) {
			t.Errorf("problems: %q", is.Problems)
		}

		w.configure(edited(t, row(t, "row1"), "kubernetes: {autoRenewCerts: true}"))
		if jobs := list(); len(jobs) != 3 || jobs["drill"].When != "" || !jobs["drill"].Active {
			t.Errorf("after a change: %+v", jobs)
		}
		_, err = install()
		w.must(err)
		if jobs := list(); len(jobs) != 1 || !jobs["certs"].Active {
			t.Errorf("installed again: %+v", jobs)
		}
		a = at()
		w.must(a.App.RemoveSchedule(a.ctx, a.Request, a.Observer))
		here.Remove("/usr/local/bin/kubexm")
		same(t, "the control machine", before, here.Snapshot())
	})
}

// TestRenewWithin renews what ends soon, and looks at nothing else as long as nothing does.
func TestRenewWithin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, edited(t, row(t, "row2"), "kubernetes: {certificateValidityDays: 365}"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		rewrite(w.hosts["node3"], "/etc/hosts", "10.0.0.12 node2", "10.0.0.77 node2")
		renew := func(days int, of ...pki.CA) *app.Result {
			a := w.attempt(t.Context())
			res, err := a.App.Renew(a.ctx, a.Request, a.Observer, app.Renewed{Within: time.Duration(days) * 24 * time.Hour, Authorities: of})
			w.must(err)
			return res
		}
		was := w.snapshot()
		if res := renew(60); res != nil {
			t.Errorf("a year before: %+v", res.Summary)
		}
		same(t, "hosts", was, w.snapshot())
		time.Sleep(310 * 24 * time.Hour)
		if res := renew(60, pki.Registry); res != nil {
			t.Errorf("of an authority that has none: %+v", res.Summary)
		}
		same(t, "hosts", was, w.snapshot())
		if res := renew(60); res == nil || res.Summary.Changed == 0 {
			t.Error("nothing was renewed")
		}
		a := w.attempt(t.Context())
		is, err := a.App.Certificates(a.ctx, a.Request, a.Observer)
		w.must(err)
		for _, c := range is.Certificates {
			if c.Days < 300 && !c.Rotates() {
				t.Errorf("%s %s ends in %d days", c.Host, c.Path, c.Days)
			}
		}
		if res := renew(60); res != nil {
			t.Errorf("a second time: %+v", res.Summary)
		}
	})
}

package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Job is what the control machine does for a cluster at certain times, as its configuration says.
type Job struct {
	Name    string `json:"name"`
	When    string `json:"when,omitempty"`   // calendar event of systemd; empty: it is not configured any more
	Unit    string `json:"unit"`             // the timer
	Active  bool   `json:"active"`           // the timer runs on this machine
	Next    string `json:"next,omitempty"`   // as systemd writes it
	Last    string `json:"last,omitempty"`   // when it ended
	Result  string `json:"result,omitempty"` // of the last time: success, or how it failed; empty: there was none
	Command string `json:"command,omitempty"`

	args  []string
	timer step.Timer
}

// The jobs that there are.
const (
	backupJob = "backup"
	drillJob  = "drill"
	certsJob  = "certs"
)

var allJobs = []string{backupJob, drillJob, certsJob}

// renewWithin is within how many days certificates end that are renewed by themselves.
const renewWithin = "30"

// jobUnit is the unit of a job, apart from those that hosts of a cluster have.
func jobUnit(cluster, job string) string { return "kubexm-job-" + cluster + "-" + job }

// jobs are those that the configuration asks for, and the names of all others.
func (s *session) jobs() (jobs []Job, others []string) {
	name, b := s.config.Metadata.Name, &s.config.Spec.Backup
	add := func(job, when, what string, args ...string) {
		unit := jobUnit(name, job)
		after := []string{"network-online.target"}
		for _, j := range jobs { // which hold the lock of the cluster
			after = append(after, j.timer.Name+".service")
		}
		jobs = append(jobs, Job{Name: job, When: when, Unit: unit + ".timer", args: args, timer: step.Timer{
			Name: unit, Description: what + " of cluster " + name, After: strings.Join(after, " "), Calendar: when, Settings: []string{"RandomizedDelaySec=10min", "Persistent=true"}, Timeout: "6h",
		}})
	}
	if b.Schedule != "" {
		add(backupJob, b.Schedule, "Backup", "backup", "create", "--quiet")
	}
	if d := b.Drill; d != nil {
		add(drillJob, d.Schedule, "Drill of the newest backup", "backup", "verify", "latest", "--identity", d.IdentityFile)
	}
	if auto := s.config.Spec.Kubernetes.AutoRenewCerts; auto != nil && *auto {
		add(certsJob, "Mon *-*-* 03:00:00", "Renewal of certificates", "certs", "renew", "--within", renewWithin, "--yes")
	}
	for _, job := range allJobs {
		if !slices.ContainsFunc(jobs, func(j Job) bool { return j.Name == job }) {
			others = append(others, job)
		}
	}
	return jobs, others
}

// Schedule lists what the control machine is to do for a cluster at certain times, and how it went. Nothing is changed.
func (a *App) Schedule(ctx context.Context, r Request, o Observer) ([]Job, error) {
	s, err := a.open(ctx, r, o)
	if err != nil {
		return nil, err
	}
	jobs, others := s.jobs()
	for _, job := range others {
		jobs = append(jobs, Job{Name: job, Unit: jobUnit(s.config.Metadata.Name, job) + ".timer"})
	}
	if err := a.ask(ctx, jobs); err != nil {
		return nil, err
	}
	var all []Job
	for _, j := range jobs {
		if j.When != "" || j.Active {
			all = append(all, j)
		}
	}
	return all, nil
}

// ask asks systemd how jobs are.
func (a *App) ask(ctx context.Context, jobs []Job) error {
	for i := range jobs {
		j := &jobs[i]
		out, err := a.here().User(ctx, runner.Inputs("NAME", strings.TrimSuffix(j.Unit, ".timer"))+`systemctl show "$NAME.timer" -p ActiveState,NextElapseUSecRealtime
echo; systemctl show "$NAME.service" -p Result,ExecMainExitTimestamp`, nil)
		if err != nil {
			return fault.Advise(fmt.Errorf("asking systemd of this machine: %w", err), "jobs need a control machine that runs systemd; elsewhere let another scheduler run the commands")
		}
		asked, did, _ := strings.Cut(out, "\n\n")
		timer, service := step.Properties(asked), step.Properties(did)
		j.Active, j.Next, j.Last = timer["ActiveState"] == "active", timer["NextElapseUSecRealtime"], service["ExecMainExitTimestamp"]
		if j.Result = service["Result"]; j.Last == "" && j.Result == "success" { // it never ran; one that could not be started has another result
			j.Result = ""
		}
	}
	return nil
}

// failedJobs are problems of a cluster: what the control machine was to do for it.
func (s *session) failedJobs(ctx context.Context) (problems []string) {
	jobs, _ := s.jobs()
	if err := s.app.ask(ctx, jobs); err != nil {
		return nil // another machine may do it
	}
	for _, j := range jobs {
		if j.Active && j.Result != "" && j.Result != "success" {
			problems = append(problems, human.Clean(fmt.Sprintf("the last %s by %s of this machine failed: %s", j.Name, j.Unit, j.Result)))
		}
	}
	return problems
}

// tellJobs says that this machine still has jobs for a cluster that is gone.
func (s *session) tellJobs(ctx context.Context) {
	jobs, _ := s.jobs()
	if err := s.app.ask(ctx, jobs); err == nil && slices.ContainsFunc(jobs, func(j Job) bool { return j.Active }) {
		s.notice("this machine still has timers for the cluster: kubexm schedule remove%s", s.Which())
	}
}

// InstallSchedule lets systemd of this machine do the jobs of a cluster as the present user, in the present directory, and no others. environment is a file with variables of its environment; empty: none.
func (a *App) InstallSchedule(ctx context.Context, r Request, o Observer, program, environment string) ([]Job, error) {
	s, err := a.open(ctx, r, o)
	if err != nil {
		return nil, err
	}
	jobs, _ := s.jobs()
	if jobs == nil {
		err := errors.New("the configuration asks for nothing at certain times")
		return nil, fault.Exit(fault.Advise(err, "set spec.backup.schedule, spec.backup.drill or spec.kubernetes.autoRenewCerts"), fault.ExitUsage)
	}
	if r.Given != nil {
		return nil, fault.Exit(errors.New("the configuration must be a file: jobs read it again"), fault.ExitUsage)
	}
	me, err1 := user.Current()
	dir, err2 := os.Getwd()
	workdir, err3 := filepath.Abs(a.Workdir)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	which := []string{"--name", r.Name}
	if r.File != "" {
		file, err := filepath.Abs(r.File)
		if err != nil {
			return nil, err
		}
		which = []string{"--file", file}
	}
	service := []string{"User=" + me.Username, "WorkingDirectory=" + strings.ReplaceAll(dir, "%", "%%")}
	if environment != "" {
		if environment, err = filepath.Abs(environment); err == nil {
			_, err = os.Stat(environment)
		}
		if err != nil && !errors.Is(err, fs.ErrPermission) { // root reads it
			return nil, fault.Exit(err, fault.ExitUsage)
		}
		service = append(service, "EnvironmentFile="+strings.ReplaceAll(environment, "%", "%%"))
	}
	if _, err := a.here().Sh(ctx, s.schedule(jobs, append([]string{"--workdir", workdir}, which...), program, service)); err != nil {
		return nil, fault.Advise(fmt.Errorf("installing timers on this machine: %w", err), "jobs need a control machine that runs systemd, and a user who is root or may use sudo without a password")
	}
	return jobs, a.ask(ctx, jobs)
}

// schedule is a script that has systemd do jobs, and no others. Times that it does not take change nothing.
func (s *session) schedule(jobs []Job, which []string, program string, service []string) string {
	check, write, enable := "", "", ""
	for i := range jobs {
		j := &jobs[i]
		words := slices.Concat([]string{program}, j.args, which)
		j.Command = runner.Quote(words...)
		j.timer.Command, j.timer.Service = templates.Words(words...), service
		check += step.CheckCalendar(j.When)
		for _, f := range j.timer.Units() {
			write += "printf %s " + runner.Quote(string(f.Content)) + " >" + runner.Quote(f.Path) + "\n"
		}
		enable += "systemctl -q enable --now " + runner.Quote(j.Unit) + "\n"
	}
	return "set -e\numask 022\n" + check + s.unschedule() + write + "systemctl daemon-reload\n" + enable
}

// RemoveSchedule ends all jobs of a cluster on this machine.
func (a *App) RemoveSchedule(ctx context.Context, r Request, o Observer) error {
	s, err := a.open(ctx, r, o)
	if err != nil {
		return err
	}
	if _, err := a.here().Sh(ctx, "set -e\n"+s.unschedule()+"systemctl daemon-reload\n"); err != nil {
		return fmt.Errorf("removing timers from this machine: %w", err)
	}
	return nil
}

// unschedule is a script that removes all jobs.
func (s *session) unschedule() string {
	var script strings.Builder
	for _, job := range allJobs {
		unit := jobUnit(s.config.Metadata.Name, job)
		fmt.Fprintf(&script, "f=/etc/systemd/system/%[1]s; if [ -e $f.timer ]; then systemctl -q disable --now %[1]s.timer; systemctl reset-failed %[1]s.service 2>/dev/null || true; fi; rm -f $f.timer $f.service\n", unit)
	}
	return script.String()
}

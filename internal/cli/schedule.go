package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/style"
)

func (p *program) scheduleCommand() *cobra.Command {
	cmd := p.group("schedule", "Let this machine take backups and renew certificates by itself", p.scheduleListCommand(), p.scheduleInstallCommand(), p.scheduleRemoveCommand())
	cmd.GroupID = groupCluster
	return cmd
}

func (p *program) scheduleListCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "list", Short: "Show what this machine does for a cluster, and when",
		Long: `Show the jobs that the configuration asks for: whether systemd of this machine has a timer
for them, when it runs the next time, and how it went the last time. What a job has
printed is in its journal: journalctl -u kubexm-job-CLUSTER-JOB.service`,
		Example: "  kubexm schedule list --name prod\n  kubexm schedule list --name prod -o json",
	})
	format := output(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		jobs, err := p.app.Schedule(cmd.Context(), p.request, p.observer())
		if err != nil {
			return err
		}
		return p.showJobs(format.value, jobs)
	}
	return cmd
}

// showJobs prints what there is to know of jobs.
func (p *program) showJobs(format string, jobs []app.Job) error {
	if format != "table" {
		return p.print(format, jobs)
	}
	if len(jobs) == 0 {
		fmt.Fprintln(p.err, "the configuration asks for nothing at certain times")
		return nil
	}
	st := style.New(p.colors(p.out))
	rows := [][]string{head(st.Dim, "JOB", "WHEN", "TIMER", "NEXT", "LAST", "RESULT")}
	or := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	for _, j := range jobs {
		timer := j.Unit
		if !j.Active {
			timer = "none on this machine"
		}
		rows = append(rows, []string{j.Name, or(j.When), timer, or(j.Next), or(j.Last), or(j.Result)})
	}
	_, err := fmt.Fprint(p.out, fitting(rows, width(p.out)))
	return err
}

func (p *program) scheduleInstallCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "install", Short: "Let this machine do what the configuration asks for",
		Long: `Let systemd of this machine run kubexm at the times of the configuration, as the present user
and in the present directory: backups (spec.backup.schedule), drills of the newest backup
(spec.backup.drill), renewals of certificates that end within 30 days
(spec.kubernetes.autoRenewCerts: Mondays at 3:00). Timers of what the configuration does not
ask for any more are removed. Run it again after such a change.

kubexm status tells when the last job failed. Jobs have no SSH agent, and no variables of
your shell: give those that the configuration needs in a file.`,
		Example: "  kubexm schedule install --name prod\n  kubexm schedule install -f cluster.yaml --environment-file /etc/kubexm.env",
	})
	environment := cmd.Flags().String("environment-file", "", "`file` with lines NAME=value: the environment of the jobs")
	_ = cmd.MarkFlagFilename("environment-file")
	format := output(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		jobs, err := p.app.InstallSchedule(cmd.Context(), p.request, p.observer(), program, *environment)
		if err != nil {
			return err
		}
		return p.showJobs(format.value, jobs)
	}
	return cmd
}

func (p *program) scheduleRemoveCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "remove", Short: "End what this machine does for a cluster", Long: "Remove the timers of a cluster from this machine. Its backups stay.",
		Example: "  kubexm schedule remove --name prod",
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.app.RemoveSchedule(cmd.Context(), p.request, p.observer())
	}
	return cmd
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// exitPending is the exit code of a plan that finds something to change, where --exit-code asks for it.
const exitPending = 10

func (p *program) applyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "apply [PLAN]", Short: "Make a running cluster match its configuration", GroupID: groupCluster,
		Long: `Compare the configuration that was last applied, the current one, and the machines,
and change what differs, including what somebody has changed by hand.

Services with a quorum or an endpoint are restarted on one machine at a time, each only
when all are healthy. Before it restarts anything that runs, it asks for confirmation on
a terminal; elsewhere --yes is needed.

A run that fails half way counts as applied, too: from then on changes are told against
its configuration, and the next run finishes them.

A worker that becomes a master, a master that becomes a worker, and one of several masters
that gets another address leave the cluster and join it again, one host after the other,
each in runs of their own. A plan is then of the first of these runs.

PLAN is a file written by kubexm plan apply --out: it is applied only if it is still
what would be done. Of several runs it is the first one alone.

--revision goes back to a configuration that an earlier run applied: kubexm config history
lists them. Before any machine is changed, the configuration file is replaced by that
configuration, comments included, so that file and cluster agree; the current file is
saved beside it, with the time added to its name. A configuration with secrets in plain
text cannot be restored once another one is applied.`,
		Example: `  kubexm plan apply --name prod --diff
  kubexm apply --name prod
  kubexm plan apply --name prod --out prod.plan && kubexm apply prod.plan --name prod --yes
  kubexm apply --name prod --resume
  kubexm apply --name prod --revision 20260102T030405.000Z-apply`,
		Args: arguments(1), PreRunE: p.chosen,
	}
	format := p.createFlags(cmd)
	p.revisionFlag(cmd)
	cmd.Flags().BoolVar(&p.request.Force, "force", false, "hosts that leave may be out of reach, and pods and data on them may be lost")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var saved *app.Proposal
		if len(args) > 0 {
			var err error
			if saved, err = app.LoadPlan(args[0]); err != nil {
				return err
			}
		}
		return p.operate(cmd, format.value, func(ctx context.Context, r app.Request, o app.Observer) (*app.Result, error) {
			return p.app.Apply(ctx, r, o, saved)
		})
	}
	return cmd
}

// revisionFlag adds the flag that goes back to an earlier configuration.
func (p *program) revisionFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.request.Revision, "revision", "", "go back to the configuration that a `run` applied")
	complete(cmd, "revision", p.revisions)
}

// mayRestart asks before services are restarted, unless that was agreed to.
func (p *program) mayRestart(ctx context.Context, what *app.Proposal) error {
	switch {
	case p.yes:
		return nil
	case !terminal(p.in):
		err := fmt.Errorf("applying this to cluster %s %s, and there is no terminal to ask on", what.Cluster, interrupts(what))
		look := "kubexm plan apply"
		if what.Hash == "" { // it has no plan that could be saved
			look = "--dry-run"
		}
		return usage(fault.Advise(err, "see what would change with: "+look+"; then add --yes"))
	}
	if err := p.writeProposal(p.err, what, what.Hash == ""); err != nil {
		return err
	}
	return p.agree(ctx)
}

// agree lets the user of a terminal type yes; anything else is a no.
func (p *program) agree(ctx context.Context) error {
	fmt.Fprint(p.err, "Type yes to continue: ")
	return p.typed(ctx, "yes")
}

func (p *program) planApplyCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "apply", Short: "Show what kubexm apply would change",
		Long: `Compare the configuration that was last applied, the current one, and the machines.
Nothing is changed. WHY is the reason for each step: the file, drift (somebody changed
the machine by hand, or a run was interrupted), or both.`,
		Example: `  kubexm plan apply --name prod
  kubexm plan apply --name prod --diff
  kubexm plan apply --name prod --out prod.plan
  kubexm plan apply --name prod --revision 20260102T030405.000Z-apply
  kubexm plan apply --name prod --exit-code >/dev/null || echo "not as configured"`,
	})
	format := output(cmd, "text", "json")
	p.revisionFlag(cmd)
	p.skipFlag(cmd)
	p.missingFlag(cmd)
	p.keysFlag(cmd)
	diff := cmd.Flags().Bool("diff", false, "show what would change on each machine")
	out := cmd.Flags().String("out", "", "file to save the plan in, for kubexm apply")
	code := cmd.Flags().Bool("exit-code", false, fmt.Sprintf("exit with %d when there is something to change", exitPending))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := p.app.PlanApply(cmd.Context(), p.request, p.observer())
		if err != nil {
			return err
		}
		if *out != "" {
			if err := app.SavePlan(*out, found); err != nil {
				return err
			}
			p.notice("saved: apply it with kubexm apply " + *out)
		}
		if format.value == "json" {
			err = p.print("json", found)
		} else {
			err = p.writeProposal(p.out, found, *diff)
		}
		if err == nil && *code && !found.Empty() {
			p.answered = true
			err = fault.Exit(errors.New("there is something to change"), exitPending)
		}
		return err
	}
	return cmd
}

// writeProposal shows what an apply would do.
func (p *program) writeProposal(to io.Writer, what *app.Proposal, diff bool) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	if what.Revision != "" {
		fmt.Fprintf(w, "Back to the configuration of %s.\n", what.Revision)
	}
	if what.File != "" {
		fmt.Fprintf(w, "%s is replaced by it; the current file is saved beside it.\n", what.File)
	}
	if len(what.Changes) > 0 {
		fmt.Fprintf(w, "The configuration changed:\n")
		for _, c := range what.Changes {
			fmt.Fprintf(w, "  %s\t(%s)\n", c, c.Way)
		}
		fmt.Fprintln(w)
	}
	if what.Empty() {
		fmt.Fprintf(w, "Nothing to change: cluster %s matches its configuration.\n", what.Cluster)
		return w.Flush()
	}
	fmt.Fprintf(w, "HOST\tWHY\tCHANGES\tRESTARTS\n")
	for _, s := range what.Steps {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Host, s.Why, s.What, strings.Join(s.Restarts, ", "))
		if diff {
			if err := w.Flush(); err != nil {
				return err
			}
			for l := range strings.Lines(strings.TrimSuffix(s.Diff, "\n")) {
				fmt.Fprintf(to, "    %s\n", strings.TrimSuffix(l, "\n"))
			}
		}
	}
	fmt.Fprintln(w)
	if len(what.Restarts) > 0 {
		fmt.Fprintf(w, "Restarted: %s.\n", restarts(what))
	}
	if what.Away != "" {
		fmt.Fprintf(w, "The API may be unavailable %s.\n", what.Away)
	}
	told := append(slices.Clone(what.Lost), what.Rejoin...)
	for _, l := range []struct {
		says  string
		hosts []string
	}{
		{"Leave the cluster, and are cleaned", slices.DeleteFunc(slices.Clone(what.Leaving), func(h string) bool { return slices.Contains(told, h) })},
		{"Leave the cluster, to join it again", slices.DeleteFunc(slices.Clone(what.Rejoin), func(h string) bool { return slices.Contains(what.Lost, h) })},
		{"Are given up, and are not cleaned", what.Lost},
	} {
		if len(l.hosts) > 0 {
			fmt.Fprintf(w, "%s: %s.\n", l.says, human.Names(l.hosts, 10))
		}
	}
	if len(what.Missing) > 0 {
		fmt.Fprintf(w, "Left out because they cannot be reached: %s.\n", human.Names(what.Missing, 10))
	}
	return w.Flush()
}

// interrupts says what cannot be taken back.
func interrupts(what *app.Proposal) string {
	var all []string
	if len(what.Leaving) > 0 {
		all = append(all, "takes "+human.Names(what.Leaving, 10)+" out of it")
	}
	if len(what.Restarts) > 0 {
		all = append(all, "restarts services ("+restarts(what)+")")
	}
	return strings.Join(all, " and ")
}

// restarts lists what is restarted, and where.
func restarts(what *app.Proposal) string {
	var all []string
	for _, r := range what.Restarts {
		all = append(all, r.Service+" on "+human.Names(r.Hosts, 10))
	}
	return strings.Join(all, "; ")
}

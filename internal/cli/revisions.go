package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/cli/style"
)

func (p *program) configHistory() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "history", Short: "List the configurations that were applied to a cluster",
		Long: `List the configurations that were applied to a cluster, oldest first, each with the
run that applied it, how that ended, and the fields that it changed.`,
		Example: "  kubexm config history --name prod\n  kubexm config history --name prod -o json",
	})
	format := output(cmd, "table", "json", "yaml")
	cmd.RunE = func(*cobra.Command, []string) error {
		all, err := p.app.History(p.request)
		if err != nil {
			return err
		}
		if format.value != "table" {
			return p.print(format.value, all)
		}
		st := style.New(p.colors(p.out))
		rows := [][]string{head(st.Dim, "RUN", "STARTED", "PIPELINE", "RESULT", "CHANGED")}
		for i, r := range all {
			rows = append(rows, []string{r.Run, r.Started.Local().Format(time.DateTime), r.Pipeline, resultPaint(st, r.Result).String(r.Result), changedLine(r.Changed, i == 0)})
		}
		_, err = fmt.Fprint(p.out, table(rows))
		return err
	}
	return cmd
}

// revisions are the runs that applied a configuration.
func (p *program) revisions() (ids []string) {
	all, _ := p.app.History(p.request) // to complete a command line, as far as it can be
	for _, r := range all {
		ids = append(ids, r.Run)
	}
	return ids
}

// changedLine says in one line what changed.
func changedLine(changed []string, first bool) string {
	const most = 2
	switch n := len(changed); {
	case first:
		return "(the first)"
	case n == 0:
		return "nothing"
	case n > most:
		return strings.Join(changed[:most], ", ") + fmt.Sprintf(", and %d more", n-most)
	}
	return strings.Join(changed, ", ")
}

func (p *program) configDiff() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff [RUN [RUN]]", Short: "Compare an applied configuration with another one",
		Long: `Show how the configuration that a run applied (by default the last one) differs from
that of another run, or from the current file. Defaults are filled in. Secrets, and the
contents of files that it names, are shown as digests. Nothing is printed if nothing
differs.`,
		Example: "  kubexm config diff --name prod\n  kubexm config diff --name prod 20260102T030405.000Z-create\n" +
			"  kubexm config diff --name prod 20260102T030405.000Z-create 20260103T030405.000Z-create",
		Args: arguments(2), PreRunE: p.chosen,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return p.revisions(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		args = append(args, "", "")
		text, err := p.app.Diff(cmd.Context(), p.request, p.observer(), args[0], args[1])
		if err == nil {
			_, err = fmt.Fprint(p.out, text)
		}
		return err
	}
	return cmd
}

package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/cli/progress"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/util/human"
)

func (p *program) runsCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "runs", Short: "List the runs of a cluster", GroupID: groupLook,
		Example: "  kubexm runs --name prod\n  kubexm runs --name prod -o json",
	})
	format := output(cmd, "table", "json", "yaml")
	cmd.RunE = func(*cobra.Command, []string) error {
		runs, err := p.app.Runs(p.request)
		if err != nil {
			return err
		}
		if format.value != "table" {
			return p.print(format.value, runs)
		}
		st := style.New(p.colors(p.out))
		rows := [][]string{head(st.Dim, "RUN", "STARTED", "TOOK", "RESULT", "CHANGED", "OK", "FAILED", "SKIPPED")}
		for _, r := range runs {
			took := "-"
			if r.Ended != nil {
				took = human.Duration(r.Ended.Sub(r.Started))
			}
			s := r.Summary
			rows = append(rows, []string{
				r.ID, r.Started.Local().Format(time.DateTime), took, resultPaint(st, r.Result).String(r.Result),
				strconv.Itoa(s.Changed), strconv.Itoa(s.OK), strconv.Itoa(s.Failed), strconv.Itoa(s.Skipped),
			})
		}
		_, err = fmt.Fprint(p.out, table(rows))
		return err
	}
	return cmd
}

// resultPaint is the color of how a run ended.
func resultPaint(st style.Style, result string) style.Paint {
	return map[string]style.Paint{"ok": st.Good, "failed": st.Bad, "running": st.Accent}[result]
}

func (p *program) eventsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "events [RUN]", Short: "Show what happened in a run, by default in the last one", GroupID: groupLook,
		Long: `Show what happened in a run of a cluster, by default in the last one: steps that
changed something, failed, were retried or rolled back; with --all every step.`,
		Example: "  kubexm events --name prod\n  kubexm events --name prod --follow\n  kubexm events --name prod 20260102T150405.000Z-create -o json",
		Args:    arguments(1), PreRunE: p.chosen,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			runs, _ := p.app.Runs(p.request)
			var ids []string
			for _, r := range runs {
				ids = append(ids, r.ID)
			}
			return ids, cobra.ShellCompDirectiveNoFileComp
		},
	}
	format := output(cmd, "text", "json")
	follow := cmd.Flags().Bool("follow", false, "follow the run until it ends")
	all := cmd.Flags().Bool("all", false, "show every event")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id := ""
		if len(args) > 0 {
			id = args[0]
		}
		enc := json.NewEncoder(p.out)
		return p.app.Events(cmd.Context(), p.request, id, *follow, func(ev engine.Event) error {
			if format.value == "json" {
				return enc.Encode(eventLine(ev))
			}
			if line := progress.Line(ev, *all); line != "" {
				_, err := fmt.Fprintln(p.out, line)
				return err
			}
			return nil
		})
	}
	return cmd
}

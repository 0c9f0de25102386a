package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (p *program) planCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "plan [create|delete]", Short: "Show what a command would do: as a list, a graph, or a diff for each machine",
		GroupID: groupCluster,
		Long: `Show the steps of creating (or deleting) a cluster, and the machines that they run on.
The machines are inspected: system, processors, addresses. With --diff they are also
asked what each step would change there. Nothing is changed in either case.`,
		Example: `  kubexm plan --name prod
  kubexm plan --name prod --diff
  kubexm plan delete --name prod -o json
  kubexm plan --name prod -o dot | dot -Tsvg > plan.svg`,
		Args: arguments(1), ValidArgs: []string{"create", "delete"}, PreRunE: p.chosen,
	}
	format := output(cmd, "text", "json", "mermaid", "dot")
	p.skipFlag(cmd)
	p.missingFlag(cmd)
	p.keysFlag(cmd)
	look := cmd.Flags().Bool("diff", false, "show what would change on each machine")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		pipe := "create"
		if len(args) > 0 {
			pipe = args[0]
		}
		if *look {
			if format.value != "text" && format.value != "json" {
				return usage(fmt.Errorf("--diff supports text and json, not %s", format.value))
			}
			p.request.DryRun = true
			use := p.app.Create
			if pipe == "delete" {
				use = p.app.Delete
			}
			return p.operate(cmd, format.value, use)
		}
		graph, err := p.app.Plan(cmd.Context(), p.request, p.observer(), pipe)
		if err != nil {
			return err
		}
		switch format.value {
		case "json":
			return p.print("json", graph)
		case "mermaid":
			return graph.WriteMermaid(p.out)
		case "dot":
			return graph.WriteDOT(p.out)
		}
		return graph.WriteText(p.out)
	}
	cmd.AddCommand(p.planApplyCommand())
	return cmd
}

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
)

func (p *program) unlockCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "unlock", Short: "Remove the locks on a cluster's machines, after a kubexm was killed elsewhere",
		Long: `Remove the locks that a kubexm has on the machines of a cluster, and the lease that it
has in a cluster that runs, and say whose they were.

A kubexm that changes a cluster locks each of its machines, so that no other one changes
them at the same time, from anywhere; the lease keeps out one that reaches other machines
of the cluster. The lock of a kubexm that was killed, or whose machine is gone, expires a
minute after it was last renewed, and the next run from the same work directory does not
wait for that. So this is seldom needed; while the other kubexm still works, both would
change the same machines at once.

It asks for confirmation on a terminal; elsewhere --yes is needed.`,
		Example: "  kubexm unlock --name prod\n  kubexm unlock -f cluster.yaml --yes",
		GroupID: groupCluster,
	})
	p.keysFlag(cmd)
	yes := cmd.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		_, conf, err := p.app.Config(p.request, app.Observer{})
		if err != nil {
			return err
		}
		o := p.observer()
		o.MayUnlock = func(ctx context.Context, held []app.Locked) error {
			if *yes {
				return nil
			}
			if err := p.mayAsk("unlocking cluster " + conf.Metadata.Name); err != nil {
				return err
			}
			for _, l := range held {
				fmt.Fprintf(p.err, "%s is locked by %s\n", l.Where, l.Who)
			}
			return p.typed(ctx, conf.Metadata.Name)
		}
		removed, err := p.app.Unlock(cmd.Context(), p.request, o)
		for _, l := range removed {
			fmt.Fprintf(p.out, "%s was locked by %s\n", l.Where, l.Who)
		}
		if err == nil && len(removed) == 0 && !p.quiet {
			fmt.Fprintln(p.out, "nobody has a lock")
		}
		return err
	}
	return cmd
}

package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

func (p *program) createCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cluster", Short: "Make a cluster, or bring it to what its configuration says",
		Long: `Download what is needed, prepare the machines, start Kubernetes and wait until
every node is Ready.

Every step looks first and changes only what is not as it should be: run it again
at any time, a second run changes nothing. When a step fails, what this run
changed in its task is rolled back; the rest stays, and --resume goes on. A worker
that fails, or dies, does not keep the others from becoming nodes.

A machine that cannot be reached stops it before anything is touched. With
--allow-missing it makes the cluster without workers that are down; run it again
when they are back to add them. Masters, members of etcd and load balancers are
always needed.

The first Ctrl-C lets running steps finish, the second stops at once.`,
		Example: `  kubexm create cluster --name prod
  kubexm create cluster -f cluster.yaml --dry-run
  kubexm create cluster --name prod --resume
  kubexm create cluster --name prod --allow-missing
  kubexm create cluster --name prod -o json | jq .`,
		Args: arguments(0), PreRunE: p.chosen,
	}
	format := p.createFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.operate(cmd, format.value, app.Create)
	}
	group := p.group("create", "Make a cluster", cmd)
	group.GroupID = groupCluster
	return group
}

func (p *program) deleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cluster", Short: "Take a cluster off its machines",
		Long: `Stop Kubernetes on every machine of the cluster and put the machines back to what
they were before: programs, settings, networks and all data of the cluster, etcd's
and that of pods included, are removed. The record of runs stays, and so does what
the cluster stored in an etcd that kubexm does not run.

It asks for confirmation on a terminal; elsewhere --yes is needed.`,
		Example: `  kubexm delete cluster --name prod
  kubexm delete cluster --name prod --dry-run
  kubexm delete cluster -f cluster.yaml --yes`,
		Args: arguments(0), PreRunE: p.chosen,
	}
	format := p.runFlags(cmd)
	cmd.Flags().BoolVar(&p.options.Force, "force", false, "delete also without the cluster's keys, and without machines that cannot be reached")
	yes := cmd.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*yes && !p.options.DryRun {
			if err := p.confirmDelete(cmd.Context()); err != nil {
				return err
			}
		}
		return p.operate(cmd, format.value, app.Delete)
	}
	group := p.group("delete", "Take a cluster off its machines", cmd)
	group.GroupID = groupCluster
	return group
}

// createFlags adds the flags of commands that make a cluster.
func (p *program) createFlags(cmd *cobra.Command) *choice {
	cmd.Flags().BoolVar(&p.options.Resume, "resume", false, "go on with the last run, which failed or was interrupted")
	p.skipFlag(cmd)
	p.missingFlag(cmd)
	return p.runFlags(cmd)
}

// runFlags adds the flags of commands that run a pipeline.
func (p *program) runFlags(cmd *cobra.Command) *choice {
	f := cmd.Flags()
	f.BoolVar(&p.options.DryRun, "dry-run", false, "only ask the machines, and show what would change on each")
	f.BoolVar(&p.options.NoRollBack, "no-rollback", false, "leave everything as it is when a step fails")
	f.IntVar(&p.options.Parallel, "parallel", 0, "steps to run at a time, over all machines (default 128)")
	return output(cmd, "text", "json")
}

// confirmDelete asks before a cluster is deleted.
func (p *program) confirmDelete(ctx context.Context) error {
	_, conf, err := app.Config(&p.options)
	if err != nil {
		return err
	}
	if err := p.mayAsk("deleting cluster " + conf.Metadata.Name); err != nil {
		return err
	}
	fmt.Fprintf(p.err, "This deletes cluster %s with all its data, from:\n", conf.Metadata.Name)
	for i, h := range conf.Spec.Hosts {
		if i == 20 && len(conf.Spec.Hosts) > 22 {
			fmt.Fprintf(p.err, "  and %d more\n", len(conf.Spec.Hosts)-i)
			break
		}
		fmt.Fprintf(p.err, "  %s (%s)\n", h.Name, h.Address)
	}
	fmt.Fprintf(p.err, "Its certificates and kubeconfig on this machine are deleted, too.\n")
	return p.typed(ctx, conf.Metadata.Name)
}

// mayAsk refuses what needs a confirmation where nobody can be asked.
func (p *program) mayAsk(what string) error {
	if terminal(p.in) {
		return nil
	}
	return usage(fault.Advise(fmt.Errorf("%s needs a confirmation, and there is no terminal to ask on", what), "add --yes if you mean it"))
}

// typed asks for the name of a cluster.
func (p *program) typed(ctx context.Context, name string) error {
	fmt.Fprintf(p.err, "Type the name of the cluster to go on: ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(p.in).ReadString('\n') // an end of input is a no
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(p.err)
		return ctx.Err()
	case typed := <-answer:
		if typed != name {
			return errDeclined
		}
		return nil
	}
}

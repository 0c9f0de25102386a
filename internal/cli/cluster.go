package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

func (p *program) createCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "cluster", Short: "Create a cluster, or make it match its configuration",
		Long: `Download what is needed, prepare the machines, start Kubernetes and wait until
every node is Ready.

Every step checks first and changes only what differs from the configuration: run it
again at any time, a second run changes nothing. On a cluster that runs it does what
'kubexm apply' does, and asks before anything is restarted. When a step fails, what this run
changed in its task is rolled back; the rest stays, and --resume continues. A worker
that fails, or goes down, does not keep the others from becoming nodes.

A machine that cannot be reached stops the run before anything is touched. With
--allow-missing the cluster is created without workers that are down; run it again
when they are back to add them. Once the cluster runs, masters, etcd members and
load balancers can be left out, too, as long as the others can do without them.

The first Ctrl-C lets running steps finish, and machines whose services are being changed; the second stops at once.`,
		Example: `  kubexm create cluster --name prod
  kubexm create cluster -f cluster.yaml --dry-run
  kubexm create cluster --name prod --resume
  kubexm create cluster --name prod --allow-missing
  kubexm create cluster --name prod -o json | jq .`,
	})
	format := p.createFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.operate(cmd, format.value, p.app.Create)
	}
	group := p.group("create", "Create a cluster", cmd)
	group.GroupID = groupCluster
	return group
}

func (p *program) deleteCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "cluster", Short: "Delete a cluster from its machines",
		Long: `Stop Kubernetes on every machine of the cluster and restore the machines to what they
were before: programs, settings, networks and all data of the cluster, including etcd's
and that of pods, are removed. The record of runs stays, and so does what the cluster
stored in an etcd that kubexm does not run.

It asks for confirmation on a terminal; elsewhere --yes is needed.

Machines that cannot be reached keep what they have, and this machine keeps the
cluster's keys, until a later delete has reached them. With --force it does not wait for
them: the cluster's keys, kubeconfig and configuration are moved to an archive directory.
Where no machine at all can be reached, which may be no more than a broken network,
--force needs the cluster's name, typed on a terminal or given with --confirm.`,
		Example: `  kubexm delete cluster --name prod
  kubexm delete cluster --name prod --dry-run
  kubexm delete cluster -f cluster.yaml --yes
  kubexm delete cluster --name prod --force --confirm=prod`,
	})
	cmd.PreRunE = p.named
	format := p.runFlags(cmd)
	cmd.Flags().BoolVar(&p.request.Force, "force", false, "delete even without the cluster's keys, or when machines cannot be reached")
	yes := cmd.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
	confirm := cmd.Flags().String("confirm", "", "name of the cluster: do not ask for confirmation, even if --force reaches no machine")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *confirm != "" || !*yes && !p.request.DryRun {
			if err := p.confirmDelete(cmd.Context(), *confirm); err != nil {
				return err
			}
		}
		return p.operate(cmd, format.value, func(ctx context.Context, r app.Request, o app.Observer) (*app.Result, error) {
			o.MayForget = func(ctx context.Context, cluster, why string) error {
				switch {
				case *confirm != "":
					return nil
				case !terminal(p.in):
					return fault.Advise(errors.New(why), "see why they cannot be reached; if all are gone for good, add --confirm="+cluster)
				}
				fmt.Fprintln(p.err, why+".")
				return p.typeName(ctx, cluster)
			}
			return p.app.Delete(ctx, r, o)
		})
	}
	group := p.group("delete", "Delete a cluster, or machines of one", cmd, p.deleteNodeCommand())
	group.GroupID = groupCluster
	return group
}

// createFlags adds the flags of commands that make a cluster, or change one.
func (p *program) createFlags(cmd *cobra.Command) *choice {
	cmd.Flags().BoolVar(&p.request.Resume, "resume", false, "continue the last run, which failed or was interrupted")
	return p.changeFlags(cmd)
}

// changeFlags adds those of commands that find out by themselves what an earlier run has left to do.
func (p *program) changeFlags(cmd *cobra.Command) *choice {
	cmd.Flags().BoolVarP(&p.yes, "yes", "y", false, "do not ask before services of a running cluster are restarted, or machines are taken out of it")
	p.skipFlag(cmd)
	p.missingFlag(cmd)
	return p.runFlags(cmd)
}

// runFlags adds the flags of commands that run a pipeline.
func (p *program) runFlags(cmd *cobra.Command) *choice {
	cmd.Flags().BoolVar(&p.request.DryRun, "dry-run", false, "only inspect the machines, and show what would change on each")
	return p.workFlags(cmd)
}

// workFlags are those of commands whose plan is not known before.
func (p *program) workFlags(cmd *cobra.Command) *choice {
	f := cmd.Flags()
	f.BoolVar(&p.request.NoRollBack, "no-rollback", false, "leave everything as it is when a step fails")
	p.rollback = choice{value: string(engine.RollbackHost), allowed: []string{string(engine.RollbackHost), string(engine.RollbackTask)}}
	f.Var(&p.rollback, "rollback", "what to undo when a step fails: its task on that host, or its task on all its hosts")
	complete(cmd, "rollback", func() []string { return p.rollback.allowed })
	p.keysFlag(cmd)
	f.IntVar(&p.request.Parallel, "parallel", 0, "steps to run at a time, over all machines (default 128)")
	return output(cmd, "text", "json")
}

// confirmDelete asks before a cluster is deleted, unless it is named already.
func (p *program) confirmDelete(ctx context.Context, named string) error {
	_, conf, err := p.app.Config(p.request, app.Observer{})
	switch {
	case err != nil:
		return err
	case named == conf.Metadata.Name:
		return nil
	case named != "":
		return usage(fmt.Errorf("--confirm says %q, but the cluster is %q; nothing was touched", named, conf.Metadata.Name))
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
	fmt.Fprintln(p.err, "Its certificates and kubeconfig on this machine are deleted, too.")
	return p.typeName(ctx, conf.Metadata.Name)
}

// typeName lets the user of a terminal type the name of the cluster; anything else is a no.
func (p *program) typeName(ctx context.Context, name string) error {
	fmt.Fprint(p.err, "Type the name of the cluster to continue: ")
	return p.typed(ctx, name)
}

// mayAsk refuses what needs a confirmation where nobody can be asked.
func (p *program) mayAsk(what string) error {
	if terminal(p.in) {
		return nil
	}
	return usage(fault.Advise(fmt.Errorf("%s needs a confirmation, and there is no terminal to ask on", what), "add --yes if you mean it"))
}

// typed reads a line from a terminal; another one than is wanted is a no.
func (p *program) typed(ctx context.Context, want string) error {
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
		if typed != want {
			return errDeclined
		}
		return nil
	}
}

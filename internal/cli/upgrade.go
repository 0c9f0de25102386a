package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/util/human"
)

func (p *program) upgradeCommand() *cobra.Command {
	group := p.group("upgrade", "Upgrade a running cluster, and go back", p.upgradePlanCommand(), p.prefetchCommand(), p.upgradeClusterCommand(),
		p.upgradePartCommand("etcd", "etcd", "spec.etcd.version", "v3.7.1", `Write another version of etcd into the configuration, and make the cluster match it, as
kubexm apply does: one member after the other, each when all are healthy, and the one that
leads last, after it has handed over. A snapshot is taken first. An etcd that is too old
for its next minor version is brought to a newer patch release before.`),
		p.upgradePartCommand("runtime", "the container runtime", "spec.runtime.version", "v2.3.4", `Write another version of the container runtime into the configuration, and make the
cluster match it, as kubexm apply does: node by node. Pods keep running.`),
		p.upgradeOSCommand(), p.upgradeKernelCommand(), p.rollbackCommand())
	group.GroupID = groupCluster
	return group
}

func (p *program) upgradeClusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cluster", Short: "Bring a running cluster to a newer version of Kubernetes",
		Long: `Write another version of Kubernetes into the configuration, in which comments and order
stay, and make the cluster match it, as kubexm apply does with an edited file.

Before anything is touched, all that could go wrong is checked, and a snapshot of etcd is
taken. Then etcd is upgraded, one member at a time, then the control planes, one master
after the other, each when all are healthy, and then the nodes: each is drained, gets its
new kubelet, and gets pods again, whatever happens. Several minor versions are passed
through one after the other, in runs of their own; nodes keep their kubelets meanwhile, as
far as Kubernetes allows it, and are drained once.

With --only the control plane is upgraded, and of the nodes those that are named by it: the
others keep their kubelets until an upgrade or kubexm apply without it.

A master that does not become healthy with its new version gets back the old one, and the
upgrade stops there. Run it again to continue, or go back: kubexm upgrade rollback.`,
		Example: `  kubexm upgrade plan --to v1.37 --name prod
  kubexm upgrade cluster --to v1.37 --name prod
  kubexm upgrade cluster --to v1.37.1 --name prod --yes
  kubexm upgrade cluster --to v1.37 --name prod --only master,zone=a
  kubexm upgrade cluster --to v1.37 --name prod                       # later: the other nodes`,
	}
	to := p.toFlag(cmd)
	p.onlyFlag(cmd)
	format := p.changeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.upgrade(cmd, format.value, "spec.kubernetes.version", kubernetesOf(*to))
	}
	return p.ofCluster(cmd)
}

// toFlag adds the flag with the wanted version of Kubernetes.
func (p *program) toFlag(cmd *cobra.Command) *string {
	to := cmd.Flags().String("to", config.DefaultKubernetes(), "`version` of Kubernetes; a minor version is its newest known patch release")
	complete(cmd, "to", config.KnownKubernetes)
	return to
}

// onlyFlag adds the flag with the nodes that get another kubelet now.
func (p *program) onlyFlag(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&p.request.Only, "only", nil, "only these `nodes` get their new kubelets now: names, roles, labels like zone=a; the others later, without this flag")
}

// kubernetesOf is the version that a user means: v1.37.1, 1.37.1, v1.37, 1.37.
func kubernetesOf(to string) string {
	to = "v" + strings.TrimPrefix(to, "v")
	if strings.Count(to, ".") == 1 {
		if known := config.VersionsFor(to + ".0").Kubernetes; strings.HasPrefix(known, to+".") {
			return known
		}
		return to + ".0"
	}
	return to
}

// upgrade brings a field of the configuration with a version to another one.
func (p *program) upgrade(cmd *cobra.Command, format, field, to string) error {
	return p.operate(cmd, format, func(ctx context.Context, r app.Request, o app.Observer) (*app.Result, error) {
		return p.app.Upgrade(ctx, r, o, map[string]string{field: to})
	})
}

func (p *program) upgradePartCommand(name, what, field, like, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: "Bring " + what + " of a running cluster to another version", Long: long,
		Example: "  kubexm upgrade " + name + " --to " + like + " --name prod\n  kubexm upgrade " + name + " --to " + like + " --name prod --dry-run",
	}
	to := cmd.Flags().String("to", "", "`version`, like "+like)
	_ = cmd.MarkFlagRequired("to")
	format := p.changeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.upgrade(cmd, format.value, field, "v"+strings.TrimPrefix(*to, "v"))
	}
	return p.ofCluster(cmd)
}

func (p *program) rollbackCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rollback", Short: "Bring a cluster back to the version of Kubernetes before the last upgrade",
		Long: `Write the version of Kubernetes that the cluster had before its last upgrade into the
configuration, and make the cluster match it: nodes first, drained one after the other, as
kubelets may not be newer than API servers, then the control planes, one by one.

That is possible by one minor version: an API server reads what the next newer one has
written, and nothing newer. etcd goes back as long as one of its members has the old
version; else it keeps the new one, with which older versions of Kubernetes work, too.`,
		Example: `  kubexm upgrade rollback --name prod
  kubexm upgrade rollback --name prod --dry-run`,
	}
	format := p.changeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return p.operate(cmd, format.value, p.app.RollBack) }
	return p.ofCluster(cmd)
}

func (p *program) upgradePlanCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "plan", Short: "Show what an upgrade would do, and check whether it can begin",
		Long: `Show what runs where, the releases that the cluster would pass through, the nodes that
would be drained, what has to be downloaded, how long it takes by the last upgrade, and
what the first run would change, and make all checks of an upgrade.
Nothing is changed. The exit code is 3 when a check finds an error.`,
		Example: `  kubexm upgrade plan --name prod
  kubexm upgrade plan --to v1.37 --name prod
  kubexm upgrade plan --to v1.37 --name prod -o json | jq .path`,
	})
	to := p.toFlag(cmd)
	p.onlyFlag(cmd)
	format := output(cmd, "text", "json")
	p.skipFlag(cmd)
	p.missingFlag(cmd)
	p.keysFlag(cmd)
	diff := cmd.Flags().Bool("diff", false, "show what would change on each machine")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		u, found := p.app.PlanUpgrade(cmd.Context(), p.request, p.observer(), map[string]string{"spec.kubernetes.version": kubernetesOf(*to)})
		if u == nil {
			return found
		}
		if format.value == "json" {
			return cmp.Or(p.print("json", u), found)
		}
		err := writeUpgrade(p.out, u)
		if err == nil && u.First != nil {
			err = p.writeProposal(p.out, u.First, *diff)
		}
		return cmp.Or(err, found)
	}
	return cmd
}

func (p *program) prefetchCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "prefetch", Short: "Download all that an upgrade needs",
		Long: `Download the programs and images that an upgrade needs into the store, packages in the
work directory: for each release that the cluster passes through. No machine is contacted,
and the configuration stays as it is. The upgrade then finds everything there, which makes
it shorter; it still brings images to the nodes that run, before anything is stopped there.

What is needed is shown first; with --dry-run that is all. Where this machine has no
internet, 'kubexm download --k8s ... --export' on another one makes a file to import.`,
		Example: `  kubexm upgrade prefetch --name prod
  kubexm upgrade prefetch --to v1.37 --name prod
  kubexm upgrade prefetch --to v1.37 --name prod --dry-run`,
	})
	to := p.toFlag(cmd)
	format := output(cmd, "text", "json")
	cmd.Flags().BoolVar(&p.request.DryRun, "dry-run", false, "only list what would be downloaded")
	cmd.Flags().IntVar(&p.request.Parallel, "parallel", 0, "downloads at a time (default 4)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		list, err := p.app.Prefetch(cmd.Context(), p.request, p.observer(), map[string]string{"spec.kubernetes.version": kubernetesOf(*to)})
		if err != nil {
			return err
		}
		return p.fetch(cmd, list, format.value, app.Bundle{Program: buildOf().Version})
	}
	return cmd
}

// writeUpgrade shows what an upgrade would do, but for its first run.
func writeUpgrade(to io.Writer, u *app.Upgrading) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "PROGRAM\tVERSION\tHOSTS\n")
	for _, r := range u.Runs {
		fmt.Fprintf(w, "%s\t%s\t%s\n", r.Program, r.Version, human.Names(r.Hosts, 10))
	}
	fmt.Fprintln(w)
	for i, r := range u.Path {
		fmt.Fprintf(w, "Run %d: %s.", i+1, r)
		if fetched := u.Fetched[i].Items; len(fetched) > 0 {
			fmt.Fprintf(w, " Downloads %s.", amount(fetched))
		}
		fmt.Fprintln(w)
	}
	if len(u.Drained) > 0 {
		how := "one after the other"
		if u.AtATime > 1 {
			how = fmt.Sprintf("the first alone, then up to %d workers at a time", u.AtATime)
		}
		fmt.Fprintf(w, "Drained, %s: %s.\n", how, human.Names(u.Drained, 20))
	}
	if u.Lasts > 0 {
		fmt.Fprintf(w, "Takes about %s, by the last upgrade.\n", human.Duration(u.Lasts))
	}
	if u.Snapshot != "" {
		fmt.Fprintf(w, "A snapshot of etcd is taken first: %s.\n", u.Snapshot)
	}
	switch {
	case u.Back != "":
		fmt.Fprintf(w, "To go back to Kubernetes %s: %s.\n\n", u.BackTo, u.Back)
	case len(u.Path) > 0:
		fmt.Fprintf(w, "There is no way back to another version of Kubernetes.\n\n")
	}
	if len(u.Path) > 1 && u.First != nil {
		fmt.Fprintf(w, "The first of %d runs:\n\n", len(u.Path))
	}
	return w.Flush()
}

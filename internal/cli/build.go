package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func (p *program) buildCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "cluster", Short: "Write every file that hosts will get, to review before install",
		Long: `Make the keys and certificates of a cluster, and write every file that install will
write to its machines, byte for byte, to WORKDIR/CLUSTER/HOST/PATH: certificates,
units, configurations, manifests. Of files that kubexm shares with others, like
/etc/hosts, only the lines between kubexm's marks are written. The Kubernetes objects
that kubexm applies are in WORKDIR/CLUSTER/objects.

No machine is contacted. Some files depend on a machine's network interfaces or kernel:
these are taken from what any earlier command, such as 'kubexm preflight', last saw
there; a machine never contacted is assumed to be an ordinary one.

A second build writes the same bytes: keys and certificates are made once. Do not
edit what is built: change the configuration, and build again. Not built are the
name servers of spec.extra.resolves, as where they go depends on the machine, and how
kubelets log in that kubeadm makes nodes of.`,
		Example: `  kubexm build cluster --name prod
  less .kubexm/prod/node1/etc/systemd/system/etcd.service
  kubexm plan --name prod --diff       # what of it is not on the machines yet`,
	})
	format := output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		built, err := p.app.Build(cmd.Context(), p.request, p.observer())
		if err != nil {
			return err
		}
		if format.value == "json" {
			return p.print("json", built)
		}
		w := tabwriter.NewWriter(p.out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, "HOST\tFILES\tCHANGED")
		for _, h := range built.Hosts {
			fmt.Fprintf(w, "%s\t%d\t%d\n", h.Name, h.Files, h.Changed)
		}
		if err := w.Flush(); err != nil || p.quiet {
			return err
		}
		_, err = fmt.Fprintf(p.out, "\nbuilt in %s; next: kubexm install cluster%s\n", built.Dir, p.app.Which(p.request))
		return err
	}
	group := p.group("build", "Write the files of a cluster without touching its machines", cmd)
	group.GroupID = groupStore
	return group
}

func (p *program) installCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "cluster", Short: "Create a cluster from what was downloaded or imported, and built",
		Long: `Do what 'kubexm create cluster' does, but download nothing, and write to the machines
exactly what 'kubexm build cluster' wrote. If that is missing, was edited, or was built
from another configuration or for machines that turn out to be different, it stops
before anything is touched, and says what differs.

On a cluster that runs it does what 'kubexm apply' does, and asks before anything is restarted.

It needs no internet; with spec.source.offline: true the machines need none either, and
get the packages of their operating systems from this machine. Run it again at any time:
it changes only what differs from the configuration.`,
		Example: `  kubexm import prod-v1.37.1.tar.zst
  kubexm preflight --name prod
  kubexm build cluster --name prod
  kubexm install cluster --name prod`,
	})
	format := p.createFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.operate(cmd, format.value, p.app.Install)
	}
	group := p.group("install", "Create a cluster from what was built", cmd)
	group.GroupID = groupCluster
	return group
}

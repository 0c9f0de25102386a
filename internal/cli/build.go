package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func (p *program) buildCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cluster", Short: "Write every file that hosts will get, for a look before install",
		Long: `Make the keys and certificates of a cluster, and write every file that install will
write to its machines, byte for byte, to WORKDIR/CLUSTER/HOST/PATH: certificates,
units, configurations, manifests; of files that have other owners too, like
/etc/hosts, the lines between kubexm's marks. WORKDIR/CLUSTER/objects has the objects
of Kubernetes that kubexm applies.

No machine is asked. What some files depend on - network interfaces, the kernel - is
taken from what was last seen of a machine, by any command that asked it, such as
'kubexm preflight'; one that was never asked is taken for an ordinary machine.

A second build writes the same bytes: keys and certificates are made once. Do not
edit what is built: change the configuration, and build again. Not built are the
name servers of spec.extra.resolves, whose place a machine decides, and the
certificates that kubeadm signs on masters.`,
		Example: `  kubexm build cluster --name prod
  less .kubexm/prod/node1/etc/systemd/system/etcd.service
  kubexm plan --name prod --diff       # what of it is not on the machines yet`,
		Args: arguments(0), PreRunE: p.chosen,
	}
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
	cmd := &cobra.Command{
		Use: "cluster", Short: "Make a cluster of what was downloaded or imported, and built",
		Long: `Do what 'kubexm create cluster' does, but fetch nothing, and write to the machines
exactly what 'kubexm build cluster' wrote: where it is missing, was edited, was built
of another configuration or for machines that turn out to be other than was thought,
it refuses before anything is touched, and says what differs.

It needs no internet; with spec.source.offline: true the machines need none either, and
get packages of their operating systems from here. Run it again at any time: it changes only what is not as it
should be.`,
		Example: `  kubexm import prod-v1.37.1.tar.zst
  kubexm preflight --name prod
  kubexm build cluster --name prod
  kubexm install cluster --name prod`,
		Args: arguments(0), PreRunE: p.chosen,
	}
	format := p.createFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.operate(cmd, format.value, p.app.Install)
	}
	group := p.group("install", "Make a cluster of what was built", cmd)
	group.GroupID = groupCluster
	return group
}

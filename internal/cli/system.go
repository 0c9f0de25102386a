package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/step/host"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// machineByMachine is what the upgrades of operating systems have in common.
const machineByMachine = `Masters and members of etcd come first, one after the other, each when all are healthy, those
with the virtual address and with the leader of etcd last; then load balancers one by one;
then workers, as many at a time as spec.upgrade.maxUnavailable says once the first is well.
Each node is drained before, with the hooks of spec.hooks, and gets pods again afterwards,
whatever happens.

A machine is restarted only if it needs it: another kernel is installed than runs,
/run/reboot-required is there, or needs-restarting -r says so; --reboot restarts all of them,
--no-reboot none. It is waited for until it runs the new kernel and its node is Ready. One
that is not back within 15 minutes stops the run: no other machine is touched then. Machines
with nothing to do are left alone.`

func (p *program) upgradeOSCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "os", Short: "Upgrade packages of the operating system on all machines, and restart them where needed",
		Long: `Bring the packages of the operating systems of all hosts to their newest versions by apt-get,
dnf or yum, from the repositories that each host has; offline, from the store. With
--packages only some of them: names, or patterns. What is held back stays, nothing is
removed, and changed configuration files are kept.

` + machineByMachine + `

Run it again if it was interrupted: it continues; with --reboot add --resume, so that no
machine is restarted twice.`,
		Example: `  kubexm upgrade os --name prod --dry-run
  kubexm upgrade os --name prod
  kubexm upgrade os --name prod --packages openssl,'libssl*' --no-reboot --yes
  kubexm upgrade os --name prod --reboot --yes`,
	}
	var u host.Update
	cmd.Flags().StringSliceVar(&u.Packages, "packages", nil, "only these `packages`, by name or by a pattern like 'libssl*'; those that are not installed are left alone")
	return p.systemCommand(cmd, &u)
}

func (p *program) upgradeKernelCommand() *cobra.Command {
	return p.systemCommand(&cobra.Command{
		Use: "kernel", Short: "Upgrade the kernel on all machines, and restart them",
		Long: `Bring the packages of the kernel to their newest versions on all hosts, as kubexm upgrade os
does with all packages: linux-image-* and linux-headers-* on Debian and Ubuntu, kernel* on
distributions with RPM, with what they need.

` + machineByMachine + `

Run it again if it was interrupted: it continues; with --reboot add --resume, so that no
machine is restarted twice.`,
		Example: `  kubexm upgrade kernel --name prod --dry-run
  kubexm upgrade kernel --name prod --yes`,
	}, &host.Update{Kernel: true})
}

// systemCommand lets a command upgrade operating systems.
func (p *program) systemCommand(cmd *cobra.Command, u *host.Update) *cobra.Command {
	always := cmd.Flags().Bool("reboot", false, "restart all machines, also those that do not need it")
	never := cmd.Flags().Bool("no-reboot", false, "restart no machine; what needs it waits until the next upgrade without this flag")
	format := p.createFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case *always && *never:
			return usage(fault.Advise(errors.New("--reboot and --no-reboot cannot be combined"), "leave one of them out"))
		case *always:
			u.Reboot = host.RebootAlways
		case *never:
			u.Reboot = host.RebootNever
		}
		return p.operate(cmd, format.value, func(ctx context.Context, r app.Request, o app.Observer) (*app.Result, error) {
			return p.app.UpgradeSystem(ctx, r, o, *u)
		})
	}
	return p.ofCluster(cmd)
}

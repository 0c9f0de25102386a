package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

func (p *program) etcdCommand() *cobra.Command {
	cmd := p.group("etcd", "Look at the etcd of a cluster, change its members, defragment it, recover it", p.etcdStatusCommand(), p.etcdMemberCommand(), p.etcdDefragCommand(), p.etcdRecoverCommand())
	cmd.GroupID = groupCluster
	return cmd
}

func (p *program) etcdStatusCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "status", Short: "Show the members of etcd",
		Long: `Show the members of etcd: which one leads, their versions, how much space their data takes
and how much of that is used, how far they are behind, and alarms.

The exit code is 1 when one is not well.`,
		Example: "  kubexm etcd status --name prod\n  kubexm etcd status --name prod -o json",
	})
	p.keysFlag(cmd)
	format := output(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		is, err := p.app.Etcd(cmd.Context(), p.request, p.observer())
		if err != nil {
			return err
		}
		if format.value != "table" {
			err = p.print(format.value, is)
		} else {
			_, err = fmt.Fprint(p.out, etcdText(is, style.New(p.colors(p.out)), width(p.out)))
		}
		if err == nil && len(is.Problems) > 0 {
			err = fault.Advise(errors.New("etcd is not well"), "see the problems; with the alarm NOSPACE: kubexm etcd defrag"+p.app.Which(p.request))
		}
		return err
	}
	return cmd
}

// etcdText is a table of members.
func etcdText(is *app.Etcd, st style.Style, width int) string {
	rows := [][]string{head(st.Dim, "HOST", "ID", "VERSION", "ROLE", "SIZE", "USED", "QUOTA", "BEHIND", "STATE")}
	bytes := func(n int64) string {
		if n == 0 {
			return "-"
		}
		return human.Bytes(n)
	}
	for _, m := range is.Members {
		role, state := "member", st.Good.String("healthy")
		switch {
		case m.Leader:
			role = "leader"
		case m.Learner:
			role = "learner"
		}
		if !m.Healthy {
			state = st.Bad.String("unhealthy")
		}
		rows = append(rows, []string{
			cmp.Or(m.Host, m.Name, "-"), strconv.FormatUint(m.ID, 16), cmp.Or(m.Version, "-"), role, bytes(m.DBSize), bytes(m.InUse), bytes(m.Quota), strconv.FormatUint(m.Behind, 10), state,
		})
	}
	text := fitting(rows, width)
	for _, problem := range is.Problems {
		text += fmt.Sprintf("%s  %s\n", st.Bad.String("PROBLEM"), problem)
	}
	return text
}

func (p *program) etcdMemberCommand() *cobra.Command {
	return p.group("member", "Give hosts of a cluster members of etcd, or take them away", p.etcdMember(&cobra.Command{
		Use: "add HOST...", Short: "Give hosts of a cluster members of etcd",
		Long: `Give hosts of the configuration the role etcd, and make the cluster match it, as kubexm apply
does. Members join one by one: each learns all data first, and votes only when it is in sync
and the others are healthy. Keep their number odd: 3 members survive the loss of 1, 5 that of 2.

For a machine that is not in the cluster yet: kubexm add node NAME --address ADDRESS --role etcd.`,
		Example: "  kubexm etcd member add node4 node5 --name prod",
	}, func(hosts map[string]v1alpha1.Role) config.Edit { return config.Edit{Gain: hosts} }), p.etcdMember(&cobra.Command{
		Use: "remove HOST...", Short: "Take the members of etcd of hosts away",
		Long: `Take the role etcd away from hosts of the configuration, and make the cluster match it, as
kubexm apply does. Members leave one by one, one that leads after it has handed over; their
data is removed. It is refused, before anything is changed, if etcd would lose its majority.

Where etcd runs by kubeadm each master has a member: there masters themselves come and go.
For a machine that has no other role: kubexm delete node. One that cannot be reached is given
up as a whole: kubexm delete node --force.`,
		Example: "  kubexm etcd member remove node5 --name prod",
	}, func(hosts map[string]v1alpha1.Role) config.Edit { return config.Edit{Lose: hosts} }))
}

// etcdMember is a command that changes which hosts have members.
func (p *program) etcdMember(cmd *cobra.Command, edit func(map[string]v1alpha1.Role) config.Edit) *cobra.Command {
	cmd.PreRunE = p.chosen
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return p.hostNames(), cobra.ShellCompDirectiveNoFileComp
	}
	format := p.createFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(fault.Advise(errors.New("no host is named"), cmd.CommandPath()+" HOST..."))
		}
		hosts := map[string]v1alpha1.Role{}
		for _, h := range args {
			hosts[h] = v1alpha1.RoleEtcd
		}
		return p.editNodes(cmd, format.value, edit(hosts))
	}
	return cmd
}

func (p *program) etcdDefragCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "defrag", Short: "Give space that etcd has freed back to the disks",
		Long: `Defragment members of etcd of whose data a fifth or more is free, one after the other, each
when all are healthy, and the one that leads last, after it has handed over. A member
answers nobody meanwhile, for about a second per 500 MB.

When the data of a member is as large as it may be, etcd raises the alarm NOSPACE and takes
no writes any more, and API servers cannot compact it. Then its history is compacted up to
the present revision, all members that vote and answer are defragmented without waiting for
health, and the alarm is cleared, if that has made space. Clients that watch or page through
older revisions begin anew.`,
		Example: "  kubexm etcd defrag --name prod --dry-run\n  kubexm etcd defrag --name prod",
	})
	format := p.runFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return p.operate(cmd, format.value, p.app.Defragment) }
	return cmd
}

func (p *program) etcdRecoverCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "recover --from HOST", Short: "Let an etcd that has lost its majority go on with what one member has",
		Long: `Let an etcd that has lost its majority for good go on with what the member of one host has: its
data is copied to all members of the configuration, which begin anew with it, as kubexm restore
does with that of a backup. What they had is kept beside it. Choose the member that was in
touch with the others last: what only others had is lost. With a backup that is new enough
kubexm restore loses no more.

Take machines that are lost out of the configuration first, and add them, or others, when the
cluster is back. A recovery that was interrupted goes on when it is run again; until it has
ended, nothing else is done to the cluster.

It asks for confirmation on a terminal; elsewhere --yes is needed.`,
		Example: "  kubexm etcd recover --from node2 --name prod --force",
	})
	from := cmd.Flags().String("from", "", "`host` whose member has the data")
	complete(cmd, "from", p.hostNames)
	cmd.Flags().BoolVar(&p.request.Force, "force", false, "give up hosts that were taken out of the configuration and are off")
	cmd.Flags().BoolVarP(&p.yes, "yes", "y", false, "do not ask before the cluster loses changes")
	p.skipFlag(cmd)
	p.missingFlag(cmd)
	format := p.workFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *from == "" {
			return usage(fault.Advise(errors.New("it is not said whose member has the data"), "see what they have: kubexm etcd status; and give --from HOST"))
		}
		return p.operate(cmd, format.value, func(ctx context.Context, r app.Request, o app.Observer) (*app.Result, error) {
			o.MayRestore = p.mayRestore
			return p.app.RecoverEtcd(ctx, r, o, *from)
		})
	}
	return cmd
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

func (p *program) addCommand() *cobra.Command {
	group := p.group("add", "Add machines to a cluster", p.addNodeCommand())
	group.GroupID = groupCluster
	return group
}

func (p *program) addNodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "node NAME[=ADDRESS]...", Short: "Add machines to a running cluster: workers, masters, etcd members, load balancers",
		Long: `Write new hosts into the configuration of a cluster, in which comments and order stay,
and make the cluster match it, as kubexm apply does.

The new machines are checked and prepared side by side. On the others only what has to
know of them is changed: /etc/hosts, load balancers, and with new masters or etcd members
certificates and API servers, one machine after the other. A new member of etcd gets its
vote when it has caught up with the others.

Roles are given with --role, for all machines that are named: worker (default), master,
etcd, loadbalancer, registry. In a cluster whose etcd is kubeadm's, masters are members of
etcd by themselves; elsewhere a master that is to be one needs both roles.

Many machines, or those that need more fields, can be given in a file with --hosts: a list
of hosts as in spec.hosts.

Run it again if it was interrupted: it continues.`,
		Example: `  kubexm add node node5 --address 10.0.0.15 --name prod
  kubexm add node node5=10.0.0.15 node6=10.0.0.16 --name prod
  kubexm add node master2=10.0.0.12 master3=10.0.0.13 --role master --role etcd --name prod
  kubexm add node --hosts more.yaml --name prod --dry-run`,
		PreRunE: p.chosen,
	}
	var host v1alpha1.Host
	var roles []string
	file := ""
	f := cmd.Flags()
	f.StringVar(&host.Address, "address", "", "IP address or DNS name at which this machine reaches the new one")
	f.StringVar(&host.InternalAddress, "internal-address", "", "IP address at which the other hosts reach it, if that is another one; or one of each family, with a comma between them")
	f.StringSliceVar(&roles, "role", []string{string(v1alpha1.RoleWorker)}, "`role` of the machines; may be repeated")
	f.StringVar(&host.User, "user", "", "user to log in as, if it is not that of spec.global")
	f.IntVar(&host.Port, "port", 0, "port of sshd, if it is not that of spec.global")
	f.StringToStringVar(&host.Labels, "label", nil, "`KEY=VALUE` label of the nodes; may be repeated")
	f.StringVar(&file, "hosts", "", "YAML `file` with a list of hosts as in spec.hosts")
	_ = cmd.MarkFlagFilename("hosts", "yaml", "yml")
	complete(cmd, "role", roleNames)
	format := p.createFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, r := range roles {
			if !slices.Contains(roleNames(), r) {
				return usage(fault.Advise(fmt.Errorf("unknown role %q", r), "there are: "+strings.Join(roleNames(), ", ")))
			}
			host.Roles = append(host.Roles, v1alpha1.Role(r))
		}
		hosts, err := newHosts(args, host, file)
		if err != nil {
			return usage(err)
		}
		return p.editNodes(cmd, format.value, config.Edit{Add: hosts})
	}
	return cmd
}

// newHosts are the hosts that arguments name, which are like one, and those of a file.
func newHosts(args []string, like v1alpha1.Host, file string) (hosts []v1alpha1.Host, err error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the hosts: %w", err)
		}
		if err := yaml.UnmarshalStrict(text, &hosts); err != nil {
			return nil, fault.Advise(fmt.Errorf("%s is no list of hosts: %w", file, err), "write them as in spec.hosts: - {name: node5, address: 10.0.0.15, roles: [worker]}")
		}
	}
	for _, a := range args {
		h := like
		name, address, given := strings.Cut(a, "=")
		h.Name = name
		if given {
			h.Address = address
		}
		if h.Address == "" || !given && len(args) > 1 {
			return nil, fault.Advise(fmt.Errorf("the address of %s is not given", name), "several machines are given as NAME=ADDRESS, one also with --address")
		}
		if given && like.Address != "" {
			return nil, fault.Advise(fmt.Errorf("%s and --address %s are two addresses", a, like.Address), "leave one of them out")
		}
		if net.ParseIP(h.Address) == nil && like.InternalAddress == "" {
			return nil, fault.Advise(fmt.Errorf("%s is a name: other hosts need an IP address of %s", h.Address, name), "give --internal-address")
		}
		hosts = append(hosts, h)
	}
	if len(hosts) == 0 {
		return nil, fault.Advise(errors.New("no machine is named"), "kubexm add node NAME=ADDRESS, or --hosts FILE")
	}
	return hosts, nil
}

func (p *program) deleteNodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "node NAME...", Short: "Take machines out of a running cluster",
		Long: `Remove hosts from the configuration of a cluster, in which comments and order of the
others stay, and make the cluster match it, as kubexm apply does.

Each machine is drained, its member of etcd is removed and its API server is taken out of
all load balancers before it stops, its node is deleted, and it is restored to what it was
before kubexm. Any machine may go: also the first master, and the one that leads etcd or
has the virtual address. It is refused, before anything is changed, if no master would be
left, if etcd would lose its majority, or if pods could not be started elsewhere.

A machine that cannot be reached stops it, unless --force is given: then only what the
others know of it is removed. Should it come back, its member of etcd and its kubelet are
not let in again; to clean it then, delete it once more. With --force pods that cannot be
moved, and data in volumes of that machine, are lost, too.

It asks for confirmation on a terminal; elsewhere --yes is needed.

Run it again if it was interrupted: it continues.`,
		Example: `  kubexm delete node node5 --name prod
  kubexm delete node node5 node6 --name prod --dry-run
  kubexm delete node master2 --force --yes --name prod`,
		PreRunE: p.chosen,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return p.hostNames(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	format := p.createFlags(cmd)
	cmd.Flags().BoolVar(&p.request.Force, "force", false, "also a machine that cannot be reached, and although pods or data on it are lost")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(fault.Advise(errors.New("no machine is named"), "kubexm delete node NAME..."))
		}
		return p.editNodes(cmd, format.value, config.Edit{Remove: args})
	}
	return cmd
}

func (p *program) replaceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "node NAME", Short: "Let a fresh machine take the place of one that is gone, or move a machine to another address",
		Long: `Make a fresh machine what another one of this name was: worker, master, member of etcd or
load balancer. It is told from the old one by its machine-id and SSH host key, which are
recorded anew.

The member of etcd and the node of the old machine are removed, the new one is prepared
and joins. Should the old machine come back, its member and its kubelet are not let in.

With --address the machine is at another address: a fresh one, or the very machine that it
was, after its address was changed. A worker and a lone master change in place; one of
several masters or members of etcd leaves the cluster as with kubexm delete node and joins
again. /etc/hosts, load balancers, certificates and members of etcd follow. An edit of the
address in cluster.yaml and kubexm apply do the same, also for all machines at once.

Run it again if it was interrupted: it continues.`,
		Example: `  kubexm replace node master2 --name prod
  kubexm replace node master2 --address 10.0.0.22 --name prod
  kubexm replace node node5 --address 192.0.2.5 --internal-address 10.0.0.35 --name prod`,
		PreRunE: p.chosen,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return p.hostNames(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	var to config.Addresses
	cmd.Flags().StringVar(&to.Address, "address", "", "IP address or DNS name at which this machine reaches the new one, if it is another one")
	cmd.Flags().StringVar(&to.Internal, "internal-address", "", "IP address at which the other hosts reach it, if it is another one; or one of each family, with a comma between them")
	format := p.createFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(fault.Advise(errors.New("name one machine"), "kubexm replace node NAME"))
		}
		return p.operate(cmd, format.value, func(ctx context.Context, r app.Request, o app.Observer) (*app.Result, error) {
			return p.app.ReplaceNode(ctx, r, o, args[0], to)
		})
	}
	group := p.group("replace", "Replace machines of a cluster", cmd)
	group.GroupID = groupCluster
	return group
}

// editNodes edits the hosts of a cluster and brings it to its configuration.
func (p *program) editNodes(cmd *cobra.Command, format string, e config.Edit) error {
	p.request.Edit = &e
	return p.operate(cmd, format, func(ctx context.Context, r app.Request, o app.Observer) (*app.Result, error) {
		return p.app.Apply(ctx, r, o, nil)
	})
}

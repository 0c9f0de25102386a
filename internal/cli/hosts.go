package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/util/human"
)

func (p *program) hostsCommand() *cobra.Command {
	cmd := p.group("hosts", "The machines of a cluster", p.hostsTrustCommand())
	cmd.GroupID = groupLook
	return cmd
}

func (p *program) hostsTrustCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "trust", Short: "Check and record the SSH host keys of a cluster's machines",
		Long: `Ask the machines of a cluster, and their bastions, for the SSH host keys that are not known yet, show their
fingerprints, and record those that you trust, in known_hosts in the cluster's directory. Nobody logs in to the
hosts; a bastion is logged in to, for those behind it. Keys that are known already, also by OpenSSH, are left alone.
It prints the keys of all machines that are known then; -o yaml prints them as the hostKey fields of hosts and
bastions, to be kept in the configuration. The keys of servers of spec.backup.targets[].sftp are recorded, too, and not printed.

Compare each fingerprint with what the machine itself says on its console, or what its provider shows:
  ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub

It asks for confirmation on a terminal; elsewhere --yes is needed.`,
		Example: `  kubexm hosts trust --name prod
  kubexm hosts trust -f cluster.yaml --yes
  kubexm hosts trust --name prod -o yaml
  kubexm create cluster --name prod --host-keys strict`,
	})
	yes := cmd.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
	out := output(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o := p.observer()
		var declined error
		o.MayTrust = func(ctx context.Context, shown []connector.HostKey) error {
			switch {
			case *yes:
				return nil
			case !terminal(p.in):
				declined = p.mayAsk("trusting " + human.Count(len(shown), "machine"))
			default:
				declined = p.mayTrust(ctx, shown)
			}
			return declined
		}
		known, err := p.app.TrustHosts(cmd.Context(), p.request, o)
		if declined != nil || known == nil {
			return cmp.Or(declined, err)
		}
		return errors.Join(p.printHostKeys(out.value, known), err)
	}
	return cmd
}

func (p *program) printHostKeys(format string, hosts []app.TrustedHost) error {
	if format == "yaml" {
		fields := []map[string]any{}
		for _, h := range hosts {
			one := map[string]any{"name": h.Name}
			if len(h.Keys) > 0 {
				one["hostKey"] = field(h.Keys[0])
			}
			if len(h.Bastion) > 0 {
				one["bastion"] = map[string]any{"address": bastionAddress(h.Bastion[0]), "hostKey": field(h.Bastion[0])}
			}
			if len(one) > 1 {
				fields = append(fields, one)
			}
		}
		return p.print(format, map[string]any{"hosts": fields})
	}
	known := []connector.HostKey{}
	for _, h := range hosts {
		for _, k := range append(h.Bastion, h.Keys...) {
			if !slices.Contains(known, k) { // a bastion is of many hosts
				known = append(known, k)
			}
		}
	}
	switch {
	case format == "json":
		return p.print(format, known)
	case len(known) == 0:
		return nil
	}
	_, err := fmt.Fprint(p.out, table(append([][]string{head(style.New(p.colors(p.out)).Bold, "HOST", "ADDRESS", "KEY", "FINGERPRINT")}, rowsOf(known)...)))
	return err
}

// field is how the configuration has a key.
func field(k connector.HostKey) string { return cmp.Or(k.Key, k.Fingerprint) }

// bastionAddress is how the configuration has the address of a bastion.
func bastionAddress(k connector.HostKey) string {
	host, _, _ := net.SplitHostPort(k.Address)
	return host
}

func rowsOf(keys []connector.HostKey) (rows [][]string) {
	for _, k := range keys {
		rows = append(rows, []string{k.Name, k.Address, k.Type(), k.Fingerprint})
	}
	return rows
}

// mayTrust shows keys to the user of a terminal, who may say yes.
func (p *program) mayTrust(ctx context.Context, shown []connector.HostKey) error {
	fmt.Fprintf(p.err, "Machines whose SSH host keys are not known:\n%s"+
		"Compare the fingerprints with those on the machines' consoles (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub).\n", table(rowsOf(shown)))
	return p.agree(ctx)
}

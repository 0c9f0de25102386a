package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

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
fingerprints, and record those that you trust, in known_hosts in the cluster's directory. Nobody logs in. Keys that
are known already, also by OpenSSH, are left alone. It prints the keys of all machines that are known then; -o yaml
prints them as the hosts' hostKey fields, to be kept in the configuration.

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

func (p *program) printHostKeys(format string, known []connector.HostKey) error {
	switch format {
	case "json":
		return p.print(format, known)
	case "yaml":
		type host struct {
			Name    string `json:"name"`
			HostKey string `json:"hostKey"`
		}
		hosts := []host{}
		for _, k := range known {
			hosts = append(hosts, host{k.Name, k.Key})
		}
		return p.print(format, map[string]any{"hosts": hosts})
	}
	_, err := fmt.Fprint(p.out, table(append([][]string{head(style.New(p.colors(p.out)).Bold, "HOST", "ADDRESS", "KEY", "FINGERPRINT")}, rowsOf(known)...)))
	return err
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

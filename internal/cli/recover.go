package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

func (p *program) configRecover() *cobra.Command {
	cmd := &cobra.Command{
		Use: "recover", Short: "Read the configuration of a cluster from the cluster itself, when the control machine is lost",
		Long: `Read the configuration that was last applied to a cluster, and who the cluster is, from one of
its masters. Only SSH is needed: the API is reached through that connection, with
/etc/kubernetes/admin.conf of the master. Nothing is changed there.

The configuration is printed, or written to conf/NAME/cluster.yaml with --name, or to the file
of -f; an existing file is not overwritten. It has what cluster.yaml had, but for comments and
secrets. Standard error tells which fields are to be filled in again, and which files and
variables it names. The keys of the cluster's authorities are not in it, nor passwords that
kubexm has made: kubexm recover brings them back, from a master or from a backup.

The SSH host key of the master is checked as everywhere, against known_hosts of the user and
that in the work directory.`,
		Example: `  kubexm config recover --address 10.0.0.11 > cluster.yaml
  kubexm config recover --address 10.0.0.11 --user ubuntu --key ~/.ssh/prod --name prod
  kubexm config recover --address 10.0.0.11 --bastion 192.0.2.1 -f cluster.yaml
  SUDO=... kubexm config recover --address 10.0.0.11 --user ubuntu --password-env SUDO`,
		Args: arguments(0),
	}
	named := p.masterFlags(cmd)
	format := output(cmd, "yaml", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		master, err := named()
		if err != nil {
			return err
		}
		is, err := p.app.Recover(cmd.Context(), p.request, p.observer(), master)
		if err != nil {
			return err
		}
		if format.value == "json" {
			return p.print("json", is)
		}
		return p.printRecovered(is)
	}
	return cmd
}

// masterFlags adds the flags with how to reach a master of a cluster of which nothing is known here.
func (p *program) masterFlags(cmd *cobra.Command) func() (v1alpha1.Host, error) {
	var master v1alpha1.Host
	var bastion, variable string
	f := cmd.Flags()
	f.StringVar(&master.Address, "address", "", "IP address or DNS name of a master")
	f.StringVar(&master.User, "user", "", "login `user` (default root)")
	f.IntVar(&master.Port, "port", 0, "port of sshd (default 22)")
	f.StringVar(&master.PrivateKeyPath, "key", "", "private key `file` for the login (default: the SSH agent, then the usual keys)")
	f.StringVar(&variable, "password-env", "", "environment `variable` with the password of the login and of sudo")
	f.StringVar(&bastion, "bastion", "", "`address` of a machine to connect through")
	_ = cmd.MarkFlagFilename("key")
	p.keysFlag(cmd)
	return func() (v1alpha1.Host, error) {
		if master.Address == "" {
			return master, usage(fault.Advise(errors.New("no master is named"), "give the address of one: --address"))
		}
		if master.Port < 0 || master.Port > 65535 {
			return master, usage(fmt.Errorf("--port must be between 1 and 65535, not %d", master.Port))
		}
		if variable != "" {
			master.PasswordFrom = &v1alpha1.SecretSource{Env: variable}
		}
		if bastion != "" {
			master.Bastion = &v1alpha1.Bastion{Address: bastion}
		}
		return master, nil
	}
}

func (p *program) recoverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "recover [BACKUP]", Short: "Bring back what a lost control machine had of a cluster that goes on",
		Long: `Bring back on this machine what the lost one had of a cluster: its keys, records and
configuration, from a backup, or with --address from one of its masters. These keep it where
spec.backup.recipients is set: each run that changes something leaves it there, encrypted for
those. Then kubexm works with the cluster as before.

No host is changed. What is here already of a cluster of that name is not touched.
The configuration goes to conf/NAME/cluster.yaml, unless that is there.

Where the cluster is lost, too: kubexm restore. Where there are neither recipients nor
backups, its configuration alone can be had: kubexm config recover.`,
		Example: `  kubexm recover --address 10.0.0.11 -i recovery.key
  kubexm recover /mnt/backups/prod-20261125T020000Z.tar.zst.age -i recovery.key`,
		GroupID: groupCluster, Args: arguments(1),
	}
	named := p.masterFlags(cmd)
	files := identityFlag(cmd)
	format := output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var source string
		master, err := named()
		if len(args) > 0 {
			source = args[0]
			if err == nil {
				return usage(errors.New("a backup and --address name a source each; leave one of them out"))
			}
		} else if err != nil {
			return err
		}
		keys, err := readKeys(*files)
		if err != nil {
			return err
		}
		is, err := p.app.Regain(cmd.Context(), p.request, p.observer(), source, master, keys)
		if err != nil {
			return err
		}
		if format.value == "json" {
			return p.print("json", is)
		}
		kept := ""
		if is.Kept {
			kept = ", which was there and stays"
		}
		fmt.Fprintf(p.out, "%sbrought back in %s; configuration: %s%s\n", manifestText(&is.Manifest), is.Dir, is.Config, kept)
		return nil
	}
	return cmd
}

// printRecovered writes a configuration to where it is wanted, and tells what is still to be done.
func (p *program) printRecovered(is *app.Recovered) error {
	file := p.request.File
	if file == "" && p.request.Name != "" {
		file = filepath.Join("conf", p.request.Name, "cluster.yaml")
	}
	if file == "" || file == "-" {
		if _, err := fmt.Fprint(p.out, is.Config); err != nil {
			return err
		}
	} else if err := writeFile(file, is.Config); err != nil {
		return err
	}
	if !p.quiet {
		fmt.Fprint(p.err, recoveredText(is, file, p.app.Workdir))
	}
	return nil
}

func recoveredText(is *app.Recovered, file, workdir string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Cluster %s, ID %s", is.Cluster, is.ID)
	if is.Kubexm != "" {
		fmt.Fprintf(&b, ", last applied by kubexm %s", is.Kubexm)
	}
	b.WriteString(".\n")
	if file != "" && file != "-" {
		fmt.Fprintf(&b, "Wrote %s.\n", file)
	}
	list := func(head string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(&b, "%s\n  %s\n", head, strings.Join(lines, "\n  "))
		}
	}
	list("Secrets, which are not kept in the cluster; fill them in again:", is.Secrets)
	list("The configuration names these, which must be there on this machine:", is.Outside)
	fmt.Fprintf(&b, `Not in the cluster, and lost unless kubexm recover brings them back, from a master or a backup, or you have a copy of %s: the keys of the authorities, passwords that
kubexm has made, SSH host keys, and the records of runs. Do that before you change the cluster: without these
keys kubexm refuses to. The cluster runs on, and kubectl works on its masters.
`, filepath.Join(workdir, is.Cluster))
	return b.String()
}

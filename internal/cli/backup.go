package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/backup"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

func (p *program) backupCommand() *cobra.Command {
	cmd := p.group("backup", "Back up a cluster, and look at its backups",
		p.backupCreateCommand(), p.backupListCommand(), p.backupShowCommand(), p.backupGetCommand(), p.backupVerifyCommand(), p.backupPruneCommand(), p.backupKeyCommand())
	cmd.GroupID = groupCluster
	return cmd
}

func (p *program) backupCreateCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "create", Short: "Back up a cluster",
		Long: `Back up a cluster that runs: a snapshot of etcd, by a member that does not lead, and what
this machine has of the cluster: keys, configuration, records. Together they are one file,
from which kubexm restore makes the cluster again, here or on other machines. The cluster
goes on meanwhile.

The file is encrypted for spec.backup.recipients, and goes to all of spec.backup.targets:
directories, servers that speak SFTP, buckets of S3. Nothing of it is written unencrypted.
Then those are removed there that spec.backup.keep does not ask for any more. The images of
a private registry, data of pods, and an external etcd are not part of it.

For a backup every night, let a timer run it:
  17 2 * * *  cd /srv/clusters && kubexm backup create --name prod --quiet`,
		Example: `  kubexm backup key --out recovery.key     # once; keep it in a safe place, and not here
  kubexm backup create --name prod
  kubexm backup create --name prod --to /mnt/backups --recipient age1...`,
	})
	var b app.BackupOptions
	p.keysFlag(cmd)
	cmd.Flags().StringSliceVar(&b.To, "to", nil, "`directory` for it, instead of spec.backup.targets")
	cmd.Flags().StringArrayVar(&b.Recipients, "recipient", nil, "public `key` of who can read it, instead of spec.backup.recipients")
	cmd.Flags().BoolVar(&b.Plain, "unencrypted", false, "let everybody read it who gets hold of it")
	format := output(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		is, err := p.app.Backup(cmd.Context(), p.request, p.observer(), b)
		switch {
		case is == nil:
			return err
		case format.value != "text":
			return errors.Join(err, p.print(format.value, is))
		case p.quiet:
			return err
		}
		for _, place := range is.Places {
			fmt.Fprintf(p.out, "%s in %s: %s", is.Name, place, human.Bytes(is.Size))
			if is.From != "" {
				fmt.Fprintf(p.out, ", with etcd of %s: %s", is.From, human.Bytes(is.Etcd))
			}
			fmt.Fprintln(p.out)
		}
		for _, old := range is.Expired {
			fmt.Fprintf(p.out, "removed %s\n", old)
		}
		return err
	}
	return cmd
}

// fromFlag adds the flag with where backups are.
func fromFlag(cmd *cobra.Command) *[]string {
	return cmd.Flags().StringSlice("in", nil, "`directory` to look in, instead of spec.backup.targets")
}

func (p *program) backupListCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "list", Short: "List the backups of a cluster", Long: "List the backups of a cluster in all places of spec.backup.targets, the oldest first.",
		Example: "  kubexm backup list --name prod\n  kubexm backup list --name prod --in /mnt/backups -o json",
	})
	in := fromFlag(cmd)
	format := output(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := p.app.Backups(cmd.Context(), p.request, p.observer(), *in)
		if format.value != "table" {
			return errors.Join(err, p.print(format.value, all))
		}
		st := style.New(p.colors(p.out))
		rows := [][]string{head(st.Dim, "TAKEN", "AGE", "SIZE", "NAME", "PLACE")}
		for _, b := range all {
			rows = append(rows, []string{b.Taken.Local().Format(time.DateTime), human.Duration(time.Since(b.Taken)), human.Bytes(b.Size), b.Name, b.Place})
		}
		if len(all) == 0 && err == nil && !p.quiet {
			fmt.Fprintln(p.err, "there is no backup")
		} else if len(all) > 0 {
			fmt.Fprint(p.out, fitting(rows, width(p.out)))
		}
		return err
	}
	return cmd
}

func (p *program) backupPruneCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "prune", Short: "Remove backups that spec.backup.keep does not ask for",
		Long: `Remove backups from spec.backup.targets that spec.backup.keep does not ask for: those stay
that are among the newest ones, or the newest of their day, week or month, as far back as
it says. The newest one always stays. kubexm backup create does this in the end, too.`,
		Example: "  kubexm backup prune --name prod",
	})
	in := fromFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		gone, err := p.app.PruneBackups(cmd.Context(), p.request, p.observer(), *in)
		for _, old := range gone {
			fmt.Fprintf(p.out, "removed %s\n", old)
		}
		if err == nil && gone == nil && !p.quiet {
			fmt.Fprintln(p.out, "nothing is to be removed")
		}
		return err
	}
	return cmd
}

// ofBackup lets a command take a backup as its argument, and the keys that open it.
func (p *program) ofBackup(cmd *cobra.Command, run func(ctx context.Context, source string, keys []backup.Key) error) *cobra.Command {
	cmd.Use += " BACKUP"
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return errNoBackup
		}
		return nil
	}
	files := identityFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		keys, err := readKeys(*files)
		if err != nil {
			return err
		}
		return run(cmd.Context(), args[0], keys)
	}
	return cmd
}

var errNoBackup = usage(fault.Advise(errors.New("one backup must be named"), "give a file, a name that kubexm backup list shows, or latest"))

func (p *program) backupGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "get BACKUP OBJECT...", Short: "Print objects of Kubernetes that are in a backup",
		Long: `Print objects of Kubernetes that are in a backup, as YAML that can be applied again: without
status, UID and the like. Objects are named as kubexm backup show --objects lists them:
RESOURCE/NAMESPACE/NAME, RESOURCE/NAME; RESOURCE/NAMESPACE and RESOURCE are all of those. No
host is asked, and nothing is changed.`,
		Example: `  kubexm backup get latest deployments/default/web -i recovery.key --name prod
  kubexm backup get prod-20261125T020000Z.tar.zst.age configmaps/shop -i recovery.key | kubectl apply -f -`,
		Args: func(_ *cobra.Command, args []string) error {
			switch len(args) {
			case 0:
				return errNoBackup
			case 1:
				return usage(fault.Advise(errors.New("no object is named"), "list them: kubexm backup show "+args[0]+" --objects"))
			}
			return nil
		},
	}
	files := identityFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		keys, err := readKeys(*files)
		if err != nil {
			return err
		}
		text, err := p.app.Extract(cmd.Context(), p.request, p.observer(), args[0], keys, args[1:])
		if err == nil {
			_, err = p.out.Write(text)
		}
		return err
	}
	return cmd
}

// identityFlag adds the flag with the keys that open backups.
func identityFlag(cmd *cobra.Command) *[]string {
	return cmd.Flags().StringSliceP("identity", "i", nil, "`file` with the private key of a recipient: of age, or of SSH without a passphrase")
}

func readKeys(files []string) (keys []backup.Key, err error) {
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil {
			var some []backup.Key
			some, err = backup.Keys(text)
			keys = append(keys, some...)
		}
		if err != nil {
			return nil, usage(fmt.Errorf("reading the key in %s: %w", f, err))
		}
	}
	return keys, nil
}

func (p *program) backupShowCommand() *cobra.Command {
	var format *choice
	var objects *bool
	cmd := p.ofBackup(&cobra.Command{
		Use: "show", Short: "Show what a backup is of",
		Long: `Show what a backup is of: the cluster, when it was taken, versions, hosts; with --objects
all objects of Kubernetes in it, for which it is read whole. No host is asked.`,
		Example: "  kubexm backup show latest --name prod -i recovery.key\n  kubexm backup show prod-20261125T020000Z.tar.zst.age -i recovery.key --objects",
	}, func(ctx context.Context, source string, keys []backup.Key) error {
		if *objects {
			d, err := p.app.Drill(ctx, p.request, p.observer(), source, keys)
			if err != nil {
				return err
			}
			if format.value != "text" {
				return p.print(format.value, d)
			}
			for _, o := range d.Objects {
				fmt.Fprintln(p.out, o)
			}
			return nil
		}
		m, err := p.app.Manifest(ctx, p.request, p.observer(), source, keys)
		if err != nil {
			return err
		}
		if format.value != "text" {
			return p.print(format.value, m)
		}
		fmt.Fprint(p.out, manifestText(m))
		return nil
	})
	objects = cmd.Flags().Bool("objects", false, "list the objects of Kubernetes in it")
	format = output(cmd, "text", "json", "yaml")
	return cmd
}

func manifestText(m *backup.Manifest) string {
	text := fmt.Sprintf("cluster     %s (ID %s)\ntaken       %s, %s ago\nKubernetes  %s\n", m.Cluster, m.ID, m.Taken.Local().Format(time.DateTime), human.Duration(time.Since(m.Taken)), m.Kubernetes)
	if m.Etcd != "" {
		text += "etcd        " + m.Etcd + "\n"
	}
	for _, h := range m.Hosts {
		text += fmt.Sprintf("host        %s, %s: %s\n", h.Name, h.Address, strings.Join(h.Roles, ", "))
	}
	return text
}

func (p *program) backupVerifyCommand() *cobra.Command {
	var format *choice
	cmd := p.ofBackup(&cobra.Command{
		Use: "verify", Aliases: []string{"drill"}, Short: "Read a backup whole, and open its data",
		Long: `Read a backup to its end, check it, open its data of etcd, and count what is in there, to
know before it is needed that a cluster can be made of it. No host is asked. Meanwhile the
data is in the work directory.`,
		Example: "  kubexm backup verify latest --name prod -i recovery.key",
	}, func(ctx context.Context, source string, keys []backup.Key) error {
		d, err := p.app.Drill(ctx, p.request, p.observer(), source, keys)
		if err != nil {
			return err
		}
		d.Objects = nil
		if format.value != "text" {
			return p.print(format.value, d)
		}
		fmt.Fprint(p.out, manifestText(&d.Manifest))
		if d.Data == 0 {
			fmt.Fprintln(p.out, "It is whole, and has no data of etcd, which is external.")
			return nil
		}
		total := 0
		for _, n := range d.Resources {
			total += n
		}
		fmt.Fprintf(p.out, "objects     %d of %s, revision %d\n", total, human.Count(len(d.Resources), "resource"), d.Revision)
		fmt.Fprintln(p.out, "It is whole, and a cluster can be made of it.")
		return nil
	})
	format = output(cmd, "text", "json", "yaml")
	return cmd
}

func (p *program) backupKeyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "key", Short: "Make a recovery key for backups",
		Long: `Make a key that opens backups, write it to a file that only you can read, and print its
public half, which goes into spec.backup.recipients. The file is needed to restore, and for
nothing else: keep it in a safe place, twice, and not on the machine that takes backups.
Who has it and a backup has the cluster.`,
		Example: "  kubexm backup key --out recovery.key",
		Args:    arguments(0),
	}
	out := cmd.Flags().String("out", "", "`file` for the key, which must not be there (required)")
	cmd.RunE = func(*cobra.Command, []string) error {
		if *out == "" {
			return usage(fault.Advise(errors.New("no file is named for the key"), "give one: --out recovery.key"))
		}
		if _, err := os.Lstat(*out); !errors.Is(err, fs.ErrNotExist) {
			return usage(fmt.Errorf("%s is there already: backups may need the key in it", *out))
		}
		private, public, err := backup.NewKey()
		if err == nil {
			err = durable.Write(*out, []byte(private))
		}
		if err == nil {
			fmt.Fprintln(p.out, public)
		}
		return err
	}
	return cmd
}

func (p *program) restoreCommand() *cobra.Command {
	var format *choice
	cmd := &cobra.Command{
		Use: "restore", Short: "Make a cluster again that a backup is of",
		Long: `Make a cluster again from a backup: with the data of etcd, the keys, and so the users, tokens
and identity that it had. Where the hosts of the configuration have the cluster already, its
etcd gets the data of then, and what has changed since is lost; it is down meanwhile. Other
hosts are made into the cluster as kubexm create cluster does it: with other names, addresses
and operating systems, more or fewer masters, by kubeadm or not, behind any load balancer. The
networks of pods and services, the domain of the cluster, and the minor version of Kubernetes,
must be those of then.

Where there is no configuration of the cluster, that of the backup is written first; look at
it, and run the command again. A restore that failed or was interrupted goes on when it is run
again; until it has ended, nothing else is done to the cluster.

It asks for confirmation on a terminal before a cluster loses changes; elsewhere --yes is
needed. It refuses to begin where the cluster of the backup still runs on other machines.`,
		Example: `  kubexm restore prod-20261125T020000Z.tar.zst.age -i recovery.key
  kubexm restore latest --name prod -i recovery.key
  kubexm restore /mnt/backups/prod-20261125T020000Z.tar.zst.age -i recovery.key -f elsewhere.yaml`,
		GroupID: groupCluster,
	}
	p.ofBackup(cmd, func(_ context.Context, source string, keys []backup.Key) error {
		return p.operate(cmd, format.value, func(ctx context.Context, r app.Request, o app.Observer) (*app.Result, error) {
			o.MayRestore = p.mayRestore
			return p.app.Restore(ctx, r, o, source, keys)
		})
	})
	cmd.Flags().BoolVar(&p.request.Force, "force", false, "although the cluster of the backup may still run elsewhere; and give up hosts that were taken out of the configuration and are off")
	cmd.Flags().BoolVarP(&p.yes, "yes", "y", false, "do not ask before a cluster loses changes")
	p.skipFlag(cmd)
	p.missingFlag(cmd)
	format = p.workFlags(cmd)
	return cmd
}

// mayRestore asks whether a cluster may lose what has changed since a backup.
func (p *program) mayRestore(ctx context.Context, what app.Restoring) error {
	if p.yes {
		return nil
	}
	if err := p.mayAsk("restoring cluster " + what.Cluster); err != nil {
		return err
	}
	if what.From != "" {
		fmt.Fprintf(p.err, "All members of etcd of cluster %s begin anew with what %s has, on %s. What other members have beyond that is lost, and the cluster is down meanwhile.\n",
			what.Cluster, what.From, human.Names(what.Hosts, 10))
		return p.typeName(ctx, what.Cluster)
	}
	fmt.Fprintf(p.err, "Cluster %s goes back to %s on %s. All changes since then are lost, and it is down meanwhile.\n", what.Cluster, what.Taken.Local().Format(time.DateTime), human.Names(what.Hosts, 10))
	return p.typeName(ctx, what.Cluster)
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

func (p *program) certsCommand() *cobra.Command {
	cmd := p.group("certs", "Look at the certificates of a cluster, renew them, and rotate its authorities",
		p.certsCheckCommand(), p.certsRenewCommand(), p.certsRotateCommand(), p.certsDestroyCommand(), p.certsUseCommand())
	cmd.GroupID = groupCluster
	return cmd
}

// authorities are those that sign what can be renewed.
func authorities() []string {
	return []string{string(pki.Kubernetes), string(pki.Etcd), string(pki.FrontProxy), string(pki.Registry)}
}

func (p *program) certsRenewCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "renew", Short: "Renew certificates of a cluster",
		Long: `Make certificates of a cluster anew, with new keys and the names that they should have now, and
bring them to where they are used: servers and clients of the control plane, of etcd, of
kubelets and of the private registry, and the kubeconfigs of administrators. Authorities
stay: kubexm certs rotate-ca exchanges those.

API servers, members of etcd and kubelets read their certificates again without a restart.
What does not is restarted on one machine at a time, each only when all are healthy: the
controller manager and the scheduler, whose kubeconfigs change, the registry, and where
they are plain binaries kubelets and kube-proxy. Before that it asks for confirmation on
a terminal; elsewhere --yes is needed.

Kubelets that kubeadm has made nodes of renew their own client certificates by themselves.`,
		Example: "  kubexm certs renew --name prod --dry-run\n  kubexm certs renew --name prod --yes\n  kubexm certs renew --name prod --what etcd --host node1",
	})
	what := cmd.Flags().StringSlice("what", nil, "only those that this `authority` has signed: "+strings.Join(authorities(), ", "))
	complete(cmd, "what", authorities)
	return p.renews(cmd, func() ([]pki.CA, error) { return chosenAuthorities(*what, authorities()) })
}

// renews lets a command renew what authorities have signed; none: what all have.
func (p *program) renews(cmd *cobra.Command, of func() ([]pki.CA, error)) *cobra.Command {
	format := p.createFlags(cmd)
	hosts := cmd.Flags().StringSlice("host", nil, "only those that this `host` alone has")
	days := cmd.Flags().Int("within", 0, "only those that end within so many `days`; where there are none, nothing else is looked at")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		authorities, err := of()
		if err == nil && cmd.Flags().Changed("within") && *days < 1 {
			err = usage(errors.New("--within takes a number of days, 1 or more"))
		}
		if err != nil {
			return err
		}
		return p.operate(cmd, format.value, func(ctx context.Context, r app.Request, o app.Observer) (*app.Result, error) {
			res, err := p.app.Renew(ctx, r, o, app.Renewed{Authorities: authorities, Hosts: *hosts, Within: time.Duration(*days) * 24 * time.Hour})
			if res == nil && err == nil && !p.quiet {
				fmt.Fprintln(p.err, "no certificate is to be renewed")
			}
			return res, err
		})
	}
	return cmd
}

// updateCommand has what is for certificates by the names that it has in other tools.
func (p *program) updateCommand() *cobra.Command {
	cmd := p.group("update", "Renew certificates or rotate authorities, each by its name")
	cmd.GroupID = groupCluster
	for _, c := range []struct {
		use, what string
		of        []pki.CA
	}{
		{"k8s-cert", "of Kubernetes", []pki.CA{pki.Kubernetes, pki.FrontProxy}}, {"etcd-cert", "of etcd", []pki.CA{pki.Etcd}},
	} {
		cmd.AddCommand(p.renews(p.ofCluster(&cobra.Command{
			Use: c.use, Short: "Renew the certificates " + c.what, Long: "Renew the certificates " + c.what + ", as kubexm certs renew --what does.",
			Example: "  kubexm update " + c.use + " --name prod --yes",
		}), func() ([]pki.CA, error) { return c.of, nil }))
	}
	for _, c := range []struct {
		use, what string
		of        pki.CA
	}{
		{"k8s-ca", "the authority of Kubernetes", pki.Kubernetes},
		{"etcd-ca", "the authority of etcd", pki.Etcd},
		{"front-proxy-ca", "the authority of the front proxy", pki.FrontProxy},
		{"sa-key", "the key of service-account tokens", pki.ServiceAccounts},
	} {
		cmd.AddCommand(p.rotates(p.ofCluster(&cobra.Command{
			Use: c.use, Short: "Exchange " + c.what, Long: "Exchange " + c.what + " while the cluster is used, as kubexm certs rotate-ca does.",
			Example: "  kubexm update " + c.use + " --name prod --restart-workloads --yes",
		}), func([]string) ([]pki.CA, error) { return []pki.CA{c.of}, nil }))
	}
	return cmd
}

// chosenAuthorities checks names of authorities.
func chosenAuthorities(names, known []string) (all []pki.CA, err error) {
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, usage(fault.Advise(fmt.Errorf("there is no authority %q", n), "known are "+strings.Join(known, ", ")))
		}
		all = append(all, pki.CA(n))
	}
	return all, nil
}

func (p *program) certsRotateCommand() *cobra.Command {
	var known []string
	for _, ca := range pki.Rotated() {
		known = append(known, string(ca))
	}
	cmd := &cobra.Command{
		Use: "rotate-ca AUTHORITY... | --all", Short: "Exchange authorities of a cluster for new ones, while it is used",
		Long: `Exchange authorities of a cluster, or the key that signs service-account tokens, for successors,
without interrupting who uses it. AUTHORITY is one or more of ` + strings.Join(known, ", ") + `.

  add   the successor is trusted beside the authority, everywhere
  swap  the successor signs: all certificates are made anew, those of kubelets too. Servers
        show, beside their new certificates, one by which clients believe them that know
        only the former authority
  drop  the former authority is trusted no more. Its key is kept on the control machine

Each phase is an apply: services restart on one machine at a time, each only when all are
healthy. The next one begins when all machines have been through the one before; so all must
be reachable. Where a run ends in between, for whatever reason, the cluster works as before,
and the same command carries on.

Before drop, pods must have started that know the successors: those that call the API and have
started before swap are listed. --restart-workloads restarts what they belong to.`,
		Example: `  kubexm certs rotate-ca kubernetes --name prod --phase add
  kubexm certs rotate-ca --all --name prod --soak 24h --yes
  kubexm certs rotate-ca --all --name prod --restart-workloads --yes`,
		Args: cobra.ArbitraryArgs, ValidArgs: known, PreRunE: p.chosen,
	}
	all := cmd.Flags().Bool("all", false, "all authorities at once")
	return p.rotates(cmd, func(args []string) ([]pki.CA, error) {
		if *all == (len(args) > 0) {
			return nil, usage(fault.Advise(errors.New("name authorities, or give --all"), "known are "+strings.Join(known, ", ")))
		}
		if *all {
			args = known
		}
		return chosenAuthorities(args, known)
	})
}

// givenFlags adds flags with an authority of the user's. What they return is nil where none is given.
func givenFlags(cmd *cobra.Command, what string) func() (*pki.Pair, error) {
	cert := cmd.Flags().String("cert", "", "`file` with the certificate (PEM) "+what)
	key := cmd.Flags().String("key", "", "`file` with its key (PEM, without a passphrase)")
	for _, name := range []string{"cert", "key"} {
		_ = cmd.MarkFlagFilename(name)
	}
	return func() (*pki.Pair, error) {
		if *cert == "" && *key == "" {
			return nil, nil //nolint:nilnil // there is none
		}
		if *cert == "" || *key == "" {
			return nil, usage(errors.New("--cert and --key go together"))
		}
		c, err1 := os.ReadFile(*cert)
		k, err2 := os.ReadFile(*key)
		if err := errors.Join(err1, err2); err != nil {
			return nil, usage(err)
		}
		return pki.GivenAuthority(c, k, time.Now())
	}
}

func (p *program) certsUseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "use-ca AUTHORITY --cert FILE --key FILE", Short: "Let a cluster that is not made yet have an authority of yours",
		Long: `Let an authority of yours, which may be an intermediate of another one, sign the certificates of a
cluster that is not made yet. AUTHORITY is one of ` + strings.Join(authorities(), ", ") + `;
those that are not given are made by kubexm. Each needs a key of its own.

The cluster trusts this authority alone, and not what has signed it: else everything with a
certificate of that could call the API. For the same reason it must sign nothing else: any
certificate of an authority for etcd reads and writes all data. A cluster that is there gets another authority by
kubexm certs rotate-ca AUTHORITY --cert FILE --key FILE.`,
		Example: "  kubexm certs use-ca kubernetes --cert kubernetes-ca.pem --key kubernetes-ca-key.pem --name prod",
		Args:    cobra.MaximumNArgs(1), ValidArgs: authorities(), PreRunE: p.chosen,
	}
	given := givenFlags(cmd, "of the authority")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		all, err := chosenAuthorities(args, authorities())
		if err == nil && len(all) == 0 {
			err = usage(fault.Advise(errors.New("no authority is named"), "known are "+strings.Join(authorities(), ", ")))
		}
		var pair *pki.Pair
		if err == nil {
			pair, err = given()
		}
		if err == nil && pair == nil {
			err = usage(errors.New("give the files of the authority: --cert FILE --key FILE"))
		}
		if err != nil {
			return err
		}
		return p.app.UseAuthority(cmd.Context(), p.request, p.observer(), all[0], pair)
	}
	return cmd
}

func (p *program) certsDestroyCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "destroy-old", Short: "Destroy the keys of authorities that were exchanged",
		Long: `Remove the keys and certificates of authorities that kubexm certs rotate-ca has exchanged, and of
former keys of service accounts, from this machine. The cluster does not need them. Backups
that were taken before still have them.

It asks for confirmation on a terminal; elsewhere --yes is needed.`,
		Example: "  kubexm certs destroy-old --name prod",
	})
	cmd.Flags().BoolVarP(&p.yes, "yes", "y", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		files, err := p.app.FormerKeys(cmd.Context(), p.request, p.observer())
		if err != nil {
			return err
		}
		if len(files) == 0 {
			fmt.Fprintln(p.err, "there are none")
			return nil
		}
		if !p.yes {
			if err := p.mayAsk("destroying keys"); err != nil {
				return err
			}
			_, conf, err := p.app.Config(p.request, p.observer())
			if err != nil {
				return err
			}
			fmt.Fprintf(p.err, "This destroys:\n  %s\n", strings.Join(files, "\n  "))
			if err := p.typeName(cmd.Context(), conf.Metadata.Name); err != nil {
				return err
			}
		}
		gone, err := p.app.DestroyFormerKeys(cmd.Context(), p.request, p.observer())
		for _, f := range gone {
			fmt.Fprintf(p.out, "destroyed %s\n", f)
		}
		return err
	}
	return cmd
}

// rotates lets a command exchange authorities.
func (p *program) rotates(cmd *cobra.Command, of func(args []string) ([]pki.CA, error)) *cobra.Command {
	format := p.createFlags(cmd)
	var rot app.Rotation
	phase := choice{allowed: []string{"add", "swap", "drop"}}
	cmd.Flags().Var(&phase, "phase", "only this phase: add, swap or drop")
	complete(cmd, "phase", func() []string { return phase.allowed })
	cmd.Flags().DurationVar(&rot.Soak, "soak", 0, "how long to wait between two phases")
	cmd.Flags().BoolVar(&rot.Restart, "restart-workloads", false, "restart workloads with pods that may not know the successors, before the former ones are dropped")
	cmd.Flags().BoolVar(&p.request.Force, "force", false, "drop although pods, webhooks and others may not know the successors; with --phase swap: swap although pods may not")
	given := givenFlags(cmd, "of the successor, instead of one that kubexm makes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if rot.Authorities, err = of(args); err == nil {
			rot.Given, err = given()
		}
		if err == nil && rot.Given != nil && (len(rot.Authorities) != 1 || rot.Authorities[0] == pki.ServiceAccounts) {
			err = usage(errors.New("--cert and --key are for one authority"))
		}
		if err != nil {
			return err
		}
		rot.Phase = phase.value
		return p.operate(cmd, format.value, func(ctx context.Context, r app.Request, o app.Observer) (*app.Result, error) {
			return p.app.Rotate(ctx, r, o, rot)
		})
	}
	return cmd
}

func (p *program) certsCheckCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "check-expiration", Aliases: []string{"list"}, Short: "List all certificates of a cluster, the first to expire first",
		Long: `List all certificates of a cluster, the first to expire first: those in files of its machines
and of the control machine, those in kubeconfigs, and those that API servers, members of
etcd, kubelets and the registry present. One that a server presents and no file has any
more was renewed, and the server was not restarted since.

A certificate is due 30 days before it expires, or when a tenth of its life is left where
that is less, and soon three times as long before. Any apply renews those that have 30 days
left, and kubexm certs renew does at any time; kubelets of kubeadm's renew their own client
certificates.

The exit code is 1 when a certificate is due or has expired, or something could not be read.`,
		Example: "  kubexm certs check-expiration --name prod\n  kubexm certs list --name prod -o json | jq '.certificates[] | select(.days < 90)'",
	})
	p.keysFlag(cmd)
	format := output(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		is, err := p.app.Certificates(cmd.Context(), p.request, p.observer())
		if err != nil {
			return err
		}
		if format.value != "table" {
			err = p.print(format.value, is)
		} else {
			_, err = fmt.Fprint(p.out, certsText(is, style.New(p.colors(p.out)), width(p.out)))
		}
		switch n := is.Due(); {
		case err != nil:
		case n > 0:
			err = fault.Advise(fmt.Errorf("cluster %s has %s due or expired", is.Cluster, human.Count(n, "certificate")),
				"kubexm certs renew"+p.app.Which(p.request)+" renews them, but for authorities, which kubexm certs rotate-ca exchanges")
		case len(is.Problems) > 0:
			err = errors.New("not all certificates could be read")
		}
		return err
	}
	return cmd
}

// certsText is a table of certificates.
func certsText(is *app.Certificates, st style.Style, width int) string {
	rows := [][]string{head(st.Dim, "EXPIRES", "DAYS", "HOST", "FILE", "SUBJECT", "SIGNER", "PRESENTED BY")}
	for _, c := range is.Certificates {
		paint := st.Bad
		switch c.State {
		case app.CertOK:
			paint = st.Good
		case app.CertSoon:
			paint = st.Warn
		}
		file := cmp.Or(c.Path, "none has it any more")
		if len(c.Also) > 0 {
			file += fmt.Sprintf(" and %d more", len(c.Also))
		}
		rows = append(rows, []string{
			c.Expires.UTC().Format(time.DateOnly), paint.String(fmt.Sprint(c.Days)), c.Host, file, c.Subject, c.Signer, cmp.Or(strings.Join(c.Servers, ", "), "-"),
		})
	}
	text := fitting(rows, width)
	for _, problem := range is.Problems {
		text += fmt.Sprintf("%s  %s\n", st.Bad.String("PROBLEM"), problem)
	}
	return text
}

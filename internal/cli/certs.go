package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

func (p *program) certsCommand() *cobra.Command {
	cmd := p.group("certs", "Look at the certificates of a cluster", p.certsCheckCommand())
	cmd.GroupID = groupLook
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
that is less, and soon three times as long before. What kubexm has signed any apply renews
when it has 30 days left; kubelets of kubeadm's renew their own; what kubeadm has signed
on masters, "kubeadm certs renew" does.

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
				"kubexm apply"+p.app.Which(p.request)+" renews those that kubexm has signed, but for authorities")
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

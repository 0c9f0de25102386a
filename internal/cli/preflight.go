package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/progress"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/preflight"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

func (p *program) preflightCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "preflight", Short: "Check whether the machines are fit for a cluster", GroupID: groupLook,
		Long: `Check whether the machines are fit for the cluster: system, processors, memory, disks,
kernel, names, clocks, leftovers of other clusters, ports, and whether the machines can
reach each other. All findings are shown in one table, errors before warnings. Nothing
is changed on any machine.

create cluster makes the same checks, and stops at errors. The limits are in
spec.preflight; the exit code is 3 when there is an error.`,
		Example: `  kubexm preflight --name prod
  kubexm preflight -f cluster.yaml --skip-preflight=memory,swap
  kubexm preflight --name prod -o json | jq .findings`,
	})
	format := output(cmd, "text", "json")
	p.skipFlag(cmd)
	p.missingFlag(cmd)
	p.keysFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		is, err := p.app.Preflight(cmd.Context(), p.request, p.observer())
		if err != nil {
			return err
		}
		if format.value == "json" {
			err = p.print("json", is)
		} else {
			_, err = fmt.Fprint(p.out, fitnessText(is, style.New(p.colors(p.out)), width(p.out)))
		}
		if err == nil && !is.Fit {
			err = fmt.Errorf("the machines are not fit for cluster %s: %s; nothing has been touched", is.Cluster, preflight.Summary(is.Findings))
			err = fault.Exit(fault.Advise(err, fault.Advice(preflight.Unfit(is.Findings))), fault.ExitPreflight)
		}
		return err
	}
	return cmd
}

// skipFlag adds the flag that leaves out checks.
func (p *program) skipFlag(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&p.request.SkipPreflight, "skip-preflight", nil, "skip preflight `checks`: "+strings.Join(preflight.Names(), ", "))
	complete(cmd, "skip-preflight", preflight.Names)
}

// missingFlag adds the flag that does without workers that are down.
func (p *program) missingFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.request.AllowMissing, "allow-missing", false, "leave out hosts that cannot be reached, if the others can do without them")
}

// keysFlag adds the flag that says what to do with machines that nobody knows.
func (p *program) keysFlag(cmd *cobra.Command) {
	policy := &choice{allowed: []string{"ask", "accept-new", "strict"}, into: &p.request.HostKeys}
	cmd.Flags().Var(policy, "host-keys", "what to do with SSH host keys that are not known: ask, record them (accept-new), or refuse\n"+
		"them (strict); default: as configured, else ask on a terminal, and accept-new elsewhere")
	complete(cmd, "host-keys", func() []string { return policy.allowed })
}

// fitnessText is what the preflight found, and what that means where it is good.
func fitnessText(is *app.Fitness, st style.Style, width int) string {
	var b strings.Builder
	if len(is.Findings) > 0 {
		b.WriteString(findings(is.Findings, st, width))
	}
	looked := fmt.Sprintf("%s on %s", human.Count(len(is.Checks), "check"), human.Count(is.Hosts, "host"))
	switch {
	case len(is.Findings) == 0:
		fmt.Fprintf(&b, "%s preflight %s: no problems found, %s\n", st.Good.String("✓"), is.Cluster, looked)
	case is.Fit:
		fmt.Fprintf(&b, "\n%s preflight %s: the machines are fit, with %s, %s\n", st.Good.String("✓"), is.Cluster, preflight.Summary(is.Findings), looked)
	}
	return b.String()
}

// findings is the table of what was found, errors first; hosts with the same
// finding share a row.
func findings(all []preflight.Finding, st style.Style, width int) string {
	type row struct {
		preflight.Finding // of the first host
		like              preflight.Finding
		hosts             []string
	}
	var rows []*row
	for _, f := range all {
		like, same := f, f
		like.Host, like.Found, like.Fix = "", generic(f), ""
		at := slices.IndexFunc(rows, func(r *row) bool { same.Host = r.Host; return r.like == like || r.Finding == same })
		if at < 0 {
			at = len(rows)
			rows = append(rows, &row{Finding: f, like: like})
		}
		rows[at].hosts = append(rows[at].hosts, f.Host)
	}
	slices.SortStableFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Check, b.Check))
	})
	cells := [][]string{head(st.Dim, "HOST", "CHECK", "FOUND", "NEEDED", "HOW TO FIX")}
	for _, r := range rows {
		check, paint := st.Bold.String(r.Check), st.Bad
		if r.Severity == preflight.SeverityWarning {
			check, paint = r.Check+" (warning)", st.Warn
		}
		cells = append(cells, []string{human.Names(r.hosts, 3), check, paint.String(oneLine(r.Found)), r.Needed, oneLine(r.Fix)})
	}
	return wrapped(cells, width)
}

// generic is what was found without what names the host.
func generic(f preflight.Finding) string {
	if f.Check != preflight.Connectivity {
		return f.Found + "\x00" + f.Fix
	}
	return address.ReplaceAllString(strings.ReplaceAll(f.Found+"\x00"+f.Fix, f.Host+" ", "HOST "), "ADDRESS")
}

// oneLine is a text of a machine that can do a table no harm.
func oneLine(text string) string {
	return progress.Clean(strings.Join(strings.Fields(text), " "))
}

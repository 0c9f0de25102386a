package cli

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/progress"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// conclude tells how a run ended and what to do next.
func (op *operation) conclude(res *app.Result, err error) {
	st := style.New(op.colors(op.out))
	if op.request.DryRun {
		op.writeDiffs(st)
	}
	if op.quiet || res == nil {
		return
	}
	fmt.Fprintf(op.out, "\n%s\n", op.head(res, err, st))
	fmt.Fprintf(op.out, "  %s\n", counts(st, res.Summary))
	if len(res.Missing) > 0 {
		fmt.Fprintf(op.out, "  %s\n", st.Warn.String("left out because they could not be reached: "+human.Names(res.Missing, mostHosts)))
	}
	if rows := slowRows(op.state.Slow(), st); len(rows) > 0 {
		fmt.Fprint(op.out, table(rows))
	}
	op.bundles(res, st)
	if err == nil && res.Kubeconfig != "" && !op.request.DryRun {
		fmt.Fprintf(op.out, "\nNext:\n  kubexm status%s\n  export KUBECONFIG=%s\n  kubectl get nodes\n", op.app.Which(op.request), runner.Quote(res.Kubeconfig))
		if len(res.Missing) > 0 {
			fmt.Fprintf(op.out, "  %s%s    # adds what was left out, when it is back\n", op.path, op.app.Which(op.request))
		}
	}
}

// bundles tells what was written to bundles, or found in them, and the next move.
func (op *operation) bundles(res *app.Result, st style.Style) {
	var rows [][]string
	for _, v := range res.Bundle {
		rows = append(rows, []string{"  " + v.Path, human.Bytes(v.Size), st.Dim.String("SHA-256 " + v.SHA256)})
	}
	for _, i := range res.Imported {
		what := fmt.Sprintf("%s and %s from %s", human.Count(i.Files, "published file"), human.Count(i.Images, "image"), human.Count(i.Volumes, "volume"))
		rows = append(rows, []string{"  " + cmp.Or(i.Cluster, "bundle"), what, fmt.Sprintf("%s added (%s), %d there already", human.Count(i.Added, "file"), human.Bytes(i.Bytes), i.Present)})
		if i.Signer != "" {
			by := st.Warn.String("key not verified: use --verify-key")
			if i.Trusted {
				by = st.Good.String("a key of --verify-key")
			}
			rows = append(rows, []string{"  ", "signed with " + i.Signer, by})
		}
	}
	if res.Signer != "" && len(res.Bundle) > 0 {
		rows = append(rows, []string{"  signed with " + res.Signer})
	}
	if res.SBOM != "" {
		rows = append(rows, []string{"  " + res.SBOM, "", st.Dim.String("list of what was downloaded")})
	}
	fmt.Fprint(op.out, table(rows))
	if len(res.Bundle) > 0 {
		fmt.Fprintf(op.out, "\nNext, on the machine without internet, in its work directory:\n  kubexm import %s\n", runner.Quote(filepath.Base(res.Bundle[0].Path)))
	}
}

// head says what ended and how.
func (op *operation) head(res *app.Result, err error, st style.Style) string {
	sign, how := st.Good.String("✓"), "done"
	switch {
	case fault.ExitCode(err) == fault.ExitInterrupted:
		sign, how = st.Warn.String("■"), "interrupted"
	case err != nil:
		sign, how = st.Bad.String("✗"), "failed"
	case op.request.DryRun:
		how = "checked, nothing was changed"
	}
	what := strings.TrimSpace(strings.TrimPrefix(op.path, "kubexm ")+" "+res.Cluster) + ":"
	return fmt.Sprintf("%s %s %s %s", sign, what, st.Bold.String(how), st.Dim.String("after "+human.Duration(res.Elapsed)))
}

// slowRows lists the slowest steps that took a while.
func slowRows(slow []progress.Timed, st style.Style) (rows [][]string) {
	label := st.Dim.String("  slowest")
	for _, t := range slow {
		if t.Took >= time.Second {
			rows = append(rows, []string{label, t.What, t.Host, human.Duration(t.Took)})
			label = "  "
		}
	}
	return rows
}

// counts says how the steps of a run ended.
func counts(st style.Style, s engine.Summary) string {
	if s.Total > 0 && s.OK == s.Total {
		return fmt.Sprintf("nothing to change: all %d steps are up to date", s.OK)
	}
	var parts []string
	add := func(p style.Paint, n int, what string) {
		if n > 0 {
			parts = append(parts, p.String(fmt.Sprintf("%d %s", n, what)))
		}
	}
	add(st.Good, s.Changed, "changed")
	add(st.Warn, s.Pending, "would change")
	add(style.Paint{}, s.OK, "ok")
	add(st.Bad, s.Failed, "failed")
	add(st.Warn, s.Restored, "rolled back")
	add(st.Dim, s.Skipped, "skipped")
	switch {
	case s.Total == 0:
		return "nothing to do"
	case len(parts) == 0:
		return human.Count(s.Total, "step") + ": none ended"
	}
	return fmt.Sprintf("%d steps: %s", s.Total, strings.Join(parts, ", "))
}

// writeDiffs shows what would change on each host; hosts on which the same would
// change share it.
func (op *operation) writeDiffs(st style.Style) {
	var order, texts []string
	perHost, hosts, later := map[string]*strings.Builder{}, map[string][]string{}, map[string][]string{}
	op.state.Sort(op.diffs) // or two equal runs would differ
	for _, ev := range op.diffs {
		b := perHost[ev.Host]
		if b == nil {
			b = &strings.Builder{}
			perHost[ev.Host] = b
			order = append(order, ev.Host)
		}
		if ev.Later {
			later[ev.Host] = append(later[ev.Host], ev.What)
			continue
		}
		fmt.Fprintf(b, "  %s %s\n", st.Warn.String("~"), ev.What)
		for line := range strings.Lines(ev.Diff) {
			fmt.Fprintf(b, "      %s\n", diffPaint(st, line).String(progress.Clean(strings.TrimRight(line, "\n"))))
		}
	}
	for host, steps := range later {
		indent(perHost[host], "  "+st.Warn.String("?")+" ", "not known until the steps before have run: "+strings.Join(steps, ", "), width(op.out))
	}
	slices.Sort(order)
	for _, h := range order {
		text := perHost[h].String()
		if hosts[text] == nil {
			texts = append(texts, text)
		}
		hosts[text] = append(hosts[text], h)
	}
	for _, text := range texts {
		fmt.Fprintf(op.out, "\n%s\n%s", st.Bold.String(human.Names(hosts[text], mostHosts)), text)
	}
}

func diffPaint(st style.Style, line string) style.Paint {
	switch {
	case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "@@"):
		return st.Dim
	case strings.HasPrefix(line, "+"):
		return st.Good
	case strings.HasPrefix(line, "-"):
		return st.Bad
	}
	return style.Paint{}
}

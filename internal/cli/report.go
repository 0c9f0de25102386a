package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/progress"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// mostHosts is how many hosts are named in a message.
const mostHosts = 12

// report tells what failed, where, why, and the next move.
func (p *program) report(err error) {
	st := style.New(p.colors(p.err))
	var b strings.Builder
	var run *runError
	if errors.As(err, &run) {
		err = run.error
	}
	all := problems(err)
	if fault.ExitCode(err) == fault.ExitInterrupted {
		all = slices.DeleteFunc(all, func(one problem) bool {
			return errors.Is(one.err, context.Canceled) || errors.Is(one.err, app.ErrStopped)
		})
		if run == nil {
			b.WriteString(st.Warn.String("interrupted") + "\n")
		}
	}
	for i, one := range all {
		if i+1 < len(all) && all[i+1].Advice == one.Advice {
			one.Advice = "" // said once, below the last that it is for
		}
		one.write(&b, st, width(p.err))
	}
	if run != nil {
		run.write(&b, st)
	}
	fmt.Fprint(p.err, b.String())
}

func (p *problem) write(b *strings.Builder, st style.Style, width int) {
	var conf config.Errors
	title := p.Error
	switch {
	case errors.As(p.err, &conf):
		title = human.Count(len(conf), "problem") + " in the configuration"
	case p.What != "":
		title = p.What + " failed on " + human.Names(p.Hosts, mostHosts)
	}
	indent(b, st.Bad.String("error: "), title, width)
	switch {
	case conf != nil:
		for _, e := range conf[:min(len(conf), config.Most)] {
			label := "  "
			if e.File != "" {
				label += st.Bold.String(fmt.Sprintf("%s:%d:", e.File, e.Line)) + " "
			}
			e.File = ""
			indent(b, label, e.Error(), width)
		}
		if n := len(conf) - config.Most; n > 0 {
			indent(b, "  ", fmt.Sprintf("and %d more", n), width)
		}
	case p.Findings != nil:
		b.WriteString("\n" + findings(p.Findings, st, width) + "\n")
	case p.What != "":
		indent(b, "  ", p.Error, width)
	}
	if p.What == "" && len(p.Hosts) > 1 {
		indent(b, "  "+st.Dim.String("hosts:   "), human.Names(p.Hosts, mostHosts), width)
	}
	if p.Command != "" {
		indent(b, "  "+st.Dim.String("command: "), p.Command, width)
	}
	if p.Output != "" {
		indent(b, "  "+st.Dim.String("output:  "), p.Output, width)
	}
	if p.Advice != "" {
		indent(b, "  "+st.Accent.String("next:    "), p.Advice, width)
	}
}

// indent writes a text behind a label, its further lines below its first.
func indent(b *strings.Builder, label, text string, width int) {
	margin := ansi.StringWidth(label)
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		for part := range strings.SplitSeq(ansi.Wrap(progress.Clean(line), max(width-margin, 30), "/,"), "\n") {
			b.WriteString(label + strings.TrimRight(part, " ") + "\n")
			label = strings.Repeat(" ", margin)
		}
	}
}

// write tells where all is recorded and how to go on.
func (e *runError) write(b *strings.Builder, st style.Style) {
	if e.result != nil && e.result.Run != "" {
		fmt.Fprintf(b, "%s %s\n", st.Dim.String("record: "), "kubexm events"+e.which+" "+e.result.Run)
		if e.result.Log != "" {
			fmt.Fprintf(b, "%s %s\n", st.Dim.String("log:    "), e.result.Log)
		}
	}
	if e.resume != "" {
		fmt.Fprintf(b, "%s %s\n", st.Accent.String("resume: "), e.resume)
	}
}

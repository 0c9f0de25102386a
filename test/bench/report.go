package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// figure is one line of the result, with what explains it.
type figure struct {
	what    string
	kubexm  string
	against string // what it is compared with, and how much that is
	ratio   float64
	goal    string
	missed  bool
	notes   []string
}

// compared is a figure of runs of kubexm beside those of a script, whose ratio must not be above the goal. It also returns the median runs.
func compared(what, script string, ours, theirs []made, goal float64) (f figure, mine, hand made) {
	wall := func(m made) time.Duration { return m.wall }
	mine, hand = median(ours, wall), median(theirs, wall)
	f = figure{
		what: what, kubexm: seconds(mine.wall), against: script + " " + seconds(hand.wall),
		ratio: mine.wall.Seconds() / hand.wall.Seconds(), goal: fmt.Sprintf("<= %g", goal),
		notes: []string{
			fmt.Sprintf("All rounds: script %s; kubexm %s.", walls(theirs), walls(ours)),
			fmt.Sprintf("Of kubexm's %s to start, connect, look and plan. Round trips: %s.", seconds(mine.wall-mine.Elapsed), trips(mine.RoundTrips)),
			"Critical path of the median run:\n" + legs(mine.path),
		},
	}
	f.missed = f.ratio > goal
	return f, mine, hand
}

type report struct {
	begun   time.Time
	load    string
	figures []figure
}

func (f figure) cells() []string {
	ratio, met := "", "met"
	if f.ratio > 0 {
		ratio = fmt.Sprintf("%.2f", f.ratio)
	}
	if f.missed {
		met = "missed"
	}
	if f.goal == "" {
		met = ""
	}
	return []string{f.what, f.kubexm, f.against, ratio, f.goal, met}
}

var head = []string{"what", "kubexm", "against", "ratio", "goal", ""}

// text is the report for a terminal.
func (r report) text() string {
	var s strings.Builder
	w := tabwriter.NewWriter(&s, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, strings.ToUpper(strings.Join(head, "\t")))
	for _, f := range r.figures {
		fmt.Fprintln(w, strings.Join(f.cells(), "\t"))
	}
	w.Flush()
	for _, f := range r.figures {
		fmt.Fprintf(&s, "\n%s\n", f.what)
		for _, n := range f.notes {
			fmt.Fprintf(&s, "  %s\n", strings.ReplaceAll(n, "\n", "\n  "))
		}
	}
	return s.String()
}

// markdown is docs/benchmarks.md.
func (r report) markdown() string {
	var s strings.Builder
	fmt.Fprintf(&s, `# Benchmarks

Written by `+"`go run ./test/bench -update`"+` on %s, on %s (%s).
What counts are the ratios: both sides of each were measured in turns, within this one run; times are medians. Machines are those
of [test/testbed](../test/testbed): containers that share this machine's processors with kubexm itself, so that every
processor second is in the figures, whoever spends it.

| %s |
|%s
`, r.begun.UTC().Format(time.DateOnly), machine(), r.load, strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, f := range r.figures {
		fmt.Fprintf(&s, "| %s |\n", strings.Join(f.cells(), " | "))
	}
	for _, f := range r.figures {
		fmt.Fprintf(&s, "\n## %s\n\n", strings.ToUpper(f.what[:1])+f.what[1:])
		for _, n := range f.notes {
			if strings.Contains(n, "\n") {
				n = strings.Replace(n, "\n", "\n\n```\n", 1) + "\n```"
			}
			fmt.Fprintf(&s, "%s\n\n", n)
		}
	}
	s.WriteString("Smaller ones: `go test -run - -bench . ./pkg/engine ./pkg/plan ./pkg/connector ./pkg/resource`.\n")
	return s.String()
}

// machine describes this machine.
func machine() string {
	model := first("/proc/cpuinfo", `model name\s*: (.*)`)
	memory := first("/proc/meminfo", `MemTotal:\s*(\d+)\d{6} kB`)
	kernel := first("/proc/sys/kernel/osrelease", `(.*)`)
	return fmt.Sprintf("%d processors (%s), %s GB of memory, Linux %s, %s", runtime.NumCPU(), model, memory, kernel, runtime.Version())
}

// load says how busy the machine is.
func load() string { return "load " + first("/proc/loadavg", `^(\S+)`) + " when it began" }

func first(file, pattern string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	if m := regexp.MustCompile(pattern).FindStringSubmatch(string(text)); m != nil {
		return strings.TrimSpace(m[1])
	}
	return "unknown"
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

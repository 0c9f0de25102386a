package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// inflight is the argument of the API servers that apply changes.
const inflight = "max-requests-inflight"

// apply compares a change of one argument of three API servers with a script that does it by hand.
func (b *bench) apply(ctx context.Context) ([]figure, error) {
	if err := b.components(ctx); err != nil {
		return nil, err
	}
	var figures []figure
	for _, row := range []int{7, 9} {
		f, err := b.applyRow(ctx, row)
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", row, err)
		}
		figures = append(figures, f)
	}
	return figures, nil
}

func (b *bench) applyRow(ctx context.Context, row int) (figure, error) {
	conf, base, err := b.living(ctx, 4, row, "400")
	if err != nil {
		return figure{}, err
	}
	var ours, theirs []made
	script := func(value string) error {
		u, err := base.run(ctx, "rolling", "ARG="+inflight, "VALUE="+value)
		theirs = append(theirs, made{used: u})
		return err
	}
	program := func(value string) error {
		if err := setInflight(conf, value); err != nil {
			return err
		}
		run, err := b.kubexm(ctx, b.workdir(), "apply", "-f", conf, "--yes")
		if err == nil && run.Summary.Changed < 3 {
			err = fmt.Errorf("not all API servers were changed: %+v", run.Summary)
		}
		ours = append(ours, run)
		return err
	}
	for round := range b.rounds {
		sides := []func(string) error{script, program}
		if round%2 == 1 {
			slices.Reverse(sides)
		}
		for i, side := range sides {
			if err := side(fmt.Sprint(401 + 2*round + i)); err != nil {
				return figure{}, err
			}
		}
		fmt.Fprintf(b.out, "apply, row %d, round %d: script %s, kubexm %s\n", row, round+1, seconds(theirs[round].wall), seconds(ours[round].wall))
	}
	f, _, _ := compared(fmt.Sprintf("one argument of 3 API servers, row %d", row), "rolling script", ours, theirs, 1.1)
	f.notes = append(f.notes, "Both change one master after the other, and wait before the first and after each until all members of etcd are healthy and all API servers ready.")
	return f, nil
}

// living makes a cluster of n nodes, whose API servers have a value of inflight where one is given.
func (b *bench) living(ctx context.Context, n, row int, value string) (conf string, base *baseline, err error) {
	if err = b.fresh(ctx, n); err != nil {
		return "", nil, err
	}
	if conf, err = b.configure(n, row); err != nil {
		return "", nil, err
	}
	if value != "" {
		if err = setInflight(conf, value); err != nil {
			return "", nil, err
		}
	}
	if base, err = b.prepare(ctx, conf, row); err != nil {
		return "", nil, err
	}
	_, err = b.kubexm(ctx, b.workdir(), "create", "cluster", "-f", conf)
	return conf, base, err
}

// setInflight sets the argument in a configuration.
func setInflight(conf, value string) error {
	text, err := os.ReadFile(conf)
	if err != nil {
		return err
	}
	const section, begin = "\n  kubernetes:\n", "    apiServer: {extraArgs: {" + inflight + ": "
	before, after, _ := bytes.Cut(text, []byte(section))
	if bytes.HasPrefix(after, []byte(begin)) {
		_, after, _ = bytes.Cut(after, []byte("\n"))
	}
	return os.WriteFile(conf, fmt.Appendf(nil, "%s%s%s%q}}\n%s", before, section, begin, value, after), 0o600)
}

// rerun measures a run that finds nothing to do on five nodes.
func (b *bench) rerun(ctx context.Context) ([]figure, error) {
	return b.nothing(ctx, 0, 3*time.Second, "create", "cluster")
}

// far is the same with apply, which looks before it runs, on nodes that are far away.
func (b *bench) far(ctx context.Context) ([]figure, error) {
	return b.nothing(ctx, 100*time.Millisecond, 5*time.Second, "apply")
}

// nothing measures a command that finds nothing to do on five nodes so many milliseconds away.
func (b *bench) nothing(ctx context.Context, away, goal time.Duration, command ...string) ([]figure, error) {
	if err := b.components(ctx); err != nil {
		return nil, err
	}
	var figures []figure
	for row := 1; row <= 2; row++ {
		conf, _, err := b.living(ctx, 5, row, "")
		if err != nil {
			return nil, err
		}
		f, err := b.nothingTo(ctx, away, goal, append(slices.Clone(command), "-f", conf)...)
		if err != nil {
			return nil, err
		}
		f.what += fmt.Sprintf(", row %d", row)
		figures = append(figures, f)
	}
	return figures, nil
}

func (b *bench) nothingTo(ctx context.Context, away, goal time.Duration, command ...string) (f figure, err error) {
	f.what = "nothing to do, 5 nodes"
	if away > 0 {
		f.what += fmt.Sprintf(" %s away", away)
		heal, err := b.slow(ctx, away)
		if err != nil {
			return f, err
		}
		defer heal()
	}
	var runs []made
	for range 2*b.rounds + 1 {
		run, err := b.kubexm(ctx, b.workdir(), command...)
		if err != nil {
			return f, err
		}
		if run.Summary.OK != run.Summary.Total {
			return f, fmt.Errorf("a second run changed something: %+v", run.Summary)
		}
		runs = append(runs, run)
	}
	mine := median(runs, func(m made) time.Duration { return m.wall })
	f.kubexm, f.goal, f.missed = seconds(mine.wall), fmt.Sprintf("<= %.0f s", goal.Seconds()), mine.wall > goal
	f.notes = []string{
		fmt.Sprintf("By `kubexm %s`. All rounds: %s; processor time %s.", strings.Join(command[:len(command)-2], " "), walls(runs), seconds(mine.cpu)),
		fmt.Sprintf("Of it %s to start, connect, gather facts and plan, and %s for %d steps. Round trips: %s.",
			seconds(mine.wall-mine.Elapsed), seconds(mine.Elapsed), mine.Summary.Total, trips(mine.RoundTrips)),
		"Critical path of the median run:\n" + legs(mine.path),
	}
	return f, nil
}

// slow puts a round trip's time between all nodes and everything else, until heal is called.
func (b *bench) slow(ctx context.Context, rtt time.Duration) (heal func(), err error) {
	nodes, err := b.testbed.Nodes()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	var waits []func() error
	heal = func() {
		stop()
		for _, wait := range waits {
			if err := wait(); err != nil {
				fmt.Fprintln(b.out, "healing a slow node:", err)
			}
		}
	}
	for _, n := range nodes {
		wait, err := b.testbed.Slow(ctx, n, rtt, 0)
		if err != nil {
			heal()
			return nil, err
		}
		waits = append(waits, wait)
	}
	return heal, nil
}

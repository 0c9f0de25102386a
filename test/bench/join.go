package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// join compares a worker that joins a cluster of five nodes with a script that lets another one join by hand. Each round
// makes new machines, and the cluster that both join, one after the other.
func (b *bench) join(ctx context.Context) ([]figure, error) {
	const there, row, goal = 5, 1, 1.25
	if err := b.components(ctx); err != nil {
		return nil, err
	}
	var base *baseline
	var ours, theirs []made
	for round := range b.rounds {
		err := b.fresh(ctx, there+2)
		if err == nil && base == nil {
			base, err = b.prepareJoin(ctx, there+2, row)
		}
		if err != nil {
			return nil, err
		}
		hand, run, err := b.joinBoth(ctx, base, there, row, round%2 == 1)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(b.out, "join, row %d, round %d: script %s, kubexm %s\n", row, round+1, seconds(hand.wall), seconds(run.wall))
		ours, theirs = append(ours, run), append(theirs, hand)
	}
	f, _, _ := compared(fmt.Sprintf("a worker joins %d nodes by `kubexm apply`, row %d", there, row), "hand-tuned script", ours, theirs, goal)
	return []figure{f}, nil
}

// prepareJoin prepares the script for a cluster of all nodes, of which it lets the last one join.
func (b *bench) prepareJoin(ctx context.Context, n, row int) (*baseline, error) {
	conf, err := b.configure(n, row)
	if err != nil {
		return nil, err
	}
	nodes, err := b.testbed.Nodes()
	if err != nil {
		return nil, err
	}
	base, err := b.prepare(ctx, conf, row)
	if err != nil {
		return nil, err
	}
	var others []string
	for _, n := range nodes[1 : len(nodes)-1] {
		others = append(others, n.Address)
	}
	base.environment = append(base.environment, "OTHERS="+strings.Join(others, " "))
	return base, nil
}

// joinBoth makes a cluster of the first nodes, which the next one joins by kubexm, and the one after that by hand.
func (b *bench) joinBoth(ctx context.Context, base *baseline, there, row int, oursFirst bool) (hand, run made, err error) {
	conf, err := b.configure(there, row)
	if err != nil {
		return hand, run, err
	}
	begun, err := b.kubexm(ctx, b.workdir(), "create", "cluster", "-f", conf)
	if err != nil {
		return hand, run, err
	}
	if conf, err = b.configure(there+1, row); err != nil {
		return hand, run, err
	}
	sides := []func() error{
		func() (err error) {
			hand.used, err = base.run(ctx, "baseline", "ROW=join", "OUT="+begun.Kubeconfig)
			return err
		},
		func() (err error) { run, err = b.kubexm(ctx, b.workdir(), "apply", "-f", conf, "--yes"); return err },
	}
	if oursFirst {
		slices.Reverse(sides)
	}
	for _, side := range sides {
		if err := side(); err != nil {
			return hand, run, err
		}
	}
	return hand, run, nil
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubexm/kubexm/test/testbed"
	"github.com/kubexm/kubexm/test/testbed/build"
)

// choice is a container runtime and a network plugin, empty: the defaults; and what else is to be built for them.
type choice struct{ runtime, network, more string }

// choices compares the making of row 1 with other runtimes and networks to that with containerd and flannel.
func (b *bench) choices(ctx context.Context) (figures []figure, err error) {
	if err := b.components(ctx); err != nil {
		return nil, err
	}
	all := []choice{{}, {runtime: "cri-o"}, {runtime: "docker", more: "cri-dockerd"}, {network: "calico"}, {network: "cilium"}}
	table, err := b.builder.Table()
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		for _, name := range strings.Fields(c.runtime + " " + c.network + " " + c.more) {
			component, err := build.Find(table, name)
			if err == nil {
				err = b.builder.Build(ctx, []build.Component{component})
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if err := b.images(ctx, table); err != nil {
		return nil, err
	}
	took := map[choice][]made{}
	for round := range b.rounds {
		for i := range all {
			c := all[(i+round)%len(all)] // none always has the machine as the same other left it
			m, err := b.choose(ctx, c)
			if err != nil {
				return nil, fmt.Errorf("%+v: %w", c, err)
			}
			fmt.Fprintf(b.out, "choices, round %d: %+v %s\n", round+1, c, m)
			took[c] = append(took[c], m)
		}
	}
	wall := func(m made) time.Duration { return m.wall }
	plain := median(took[all[0]], wall).wall
	for _, c := range all[1:] {
		mine := median(took[c], wall)
		figures = append(figures, figure{
			what: "create, row 1, with " + c.runtime + c.network, kubexm: seconds(mine.wall), against: "containerd and flannel " + seconds(plain), ratio: mine.wall.Seconds() / plain.Seconds(),
			notes: []string{fmt.Sprintf("All rounds: %s; with containerd and flannel %s.", walls(took[c]), walls(took[all[0]])), "Critical path of the median run:\n" + legs(mine.path)},
		})
	}
	return figures, nil
}

// choose makes a cluster of two new machines.
func (b *bench) choose(ctx context.Context, c choice) (made, error) {
	if err := b.fresh(ctx, 2); err != nil {
		return made{}, err
	}
	var text bytes.Buffer
	if err := b.testbed.Config(&text, b.builder, testbed.ConfigOptions{Name: cluster, Nodes: 2, Row: 1, Runtime: c.runtime, Network: c.network}); err != nil {
		return made{}, err
	}
	conf := filepath.Join(b.dir, "choice"+c.runtime+c.network+".yaml")
	if err := os.WriteFile(conf, text.Bytes(), 0o600); err != nil {
		return made{}, err
	}
	return b.spending(ctx, func() (made, error) { return b.kubexm(ctx, b.workdir(), "create", "cluster", "-f", conf) })
}

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/test/testbed"
	"github.com/kubexm/kubexm/test/testbed/build"
	"github.com/kubexm/kubexm/test/testbed/mirror"
)

// cluster is the name of all clusters that are made.
const cluster = "bench"

// made is one run of kubexm.
type made struct {
	used
	nodes time.Duration // processor time of all nodes since they were made
	app.Result
	path []engine.Leg
}

// making is a row of the deployment matrix and what its making is compared with.
type making struct {
	row, nodes int
	what       string
	script     int // the row that the hand-tuned script makes
	goal       float64
}

// create compares the making of clusters with a hand-tuned script, everything that is
// needed being on this machine.
func (b *bench) create(ctx context.Context) ([]figure, error) {
	if err := b.components(ctx); err != nil {
		return nil, err
	}
	var figures []figure
	bases := map[int]*baseline{}
	for _, m := range []making{
		{1, 2, "kubeadm", 1, 1.25},
		{2, 2, "plain binaries", 2, 1.25},
		{4, 4, "kubeadm, 3 masters", 4, 1.1},
		{5, 4, "plain binaries, 3 masters", 4, 0.6},
	} {
		if err := b.fresh(ctx, m.nodes); err != nil {
			return nil, err
		}
		conf, err := b.configure(m.nodes, m.row)
		if err != nil {
			return nil, err
		}
		if bases[m.row], err = b.prepare(ctx, conf, m.row); err != nil {
			return nil, err
		}
		f, err := b.createRow(ctx, m, conf, bases[m.script])
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", m.row, err)
		}
		figures = append(figures, f)
	}
	return figures, nil
}

func (b *bench) createRow(ctx context.Context, of making, conf string, base *baseline) (figure, error) {
	var ours, theirs []made
	script := func() (m made, err error) {
		m.used, err = base.run(ctx, "baseline")
		return m, err
	}
	program := func() (made, error) { return b.kubexm(ctx, b.workdir(), "create", "cluster", "-f", conf) }
	again := 0
	for round := range b.rounds {
		var hand, run made
		sides := []func() error{
			func() (err error) { hand, err = b.spending(ctx, script); return err },
			func() (err error) { run, err = b.spending(ctx, program); return err },
		}
		byHand := sides[0]
		sides[0] = func() error {
			err := byHand()
			if err == nil || ctx.Err() != nil {
				return err
			}
			again++ // it cannot go on where it stopped
			fmt.Fprintf(b.out, "create, row %d, round %d: the script failed (%v) and is run again\n", of.row, round+1, err)
			return errors.Join(b.fresh(ctx, of.nodes), byHand())
		}
		if round%2 == 1 {
			slices.Reverse(sides) // none always has the machine as the other left it
		}
		for _, side := range sides {
			if err := b.fresh(ctx, of.nodes); err != nil {
				return figure{}, err
			}
			if err := side(); err != nil {
				return figure{}, err
			}
		}
		fmt.Fprintf(b.out, "create, row %d, round %d: script %s, kubexm %s\n", of.row, round+1, hand, run)
		ours, theirs = append(ours, run), append(theirs, hand)
	}
	f, mine, hand := compared(fmt.Sprintf("create, row %d (%s)", of.row, of.what), fmt.Sprint("hand-tuned script for row ", of.script), ours, theirs, of.goal)
	f.notes = append(f.notes, fmt.Sprintf("The median runs: script %s; kubexm %s.", hand, mine))
	if again > 0 {
		f.notes = append(f.notes, fmt.Sprintf("The script failed %d times, and was run again on new machines.", again))
	}
	return f, nil
}

// fresh makes new nodes, forgets what kubexm knows of the old ones, and makes sure
// that what was written before is on disk.
func (b *bench) fresh(ctx context.Context, n int) error {
	old, err := b.testbed.Nodes()
	if err != nil {
		return err
	}
	var names []string
	for _, node := range old {
		names = append(names, node.Name)
	}
	if names != nil {
		if err := b.testbed.Down(ctx, names...); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(b.workdir(), cluster)); err != nil {
		return err
	}
	if _, err := b.testbed.Up(ctx, testbed.Options{Nodes: n}); err != nil {
		return err
	}
	syscall.Sync()
	return nil
}

// configure writes a configuration for the first n nodes.
func (b *bench) configure(n, row int) (string, error) {
	path := filepath.Join(b.dir, fmt.Sprintf("row%d.yaml", row))
	var text bytes.Buffer
	if err := b.testbed.Config(&text, b.builder, testbed.ConfigOptions{Name: cluster, Nodes: n, Row: row}); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, text.Bytes(), 0o600)
}

// components builds what a cluster is made of, where it is not there.
func (b *bench) components(ctx context.Context) error {
	if b.builder != nil {
		return nil
	}
	cache, err := build.DefaultCache()
	if err != nil {
		return err
	}
	builder, err := build.NewBuilder(ctx, cache, b.out)
	if err != nil {
		return err
	}
	table, err := builder.Table()
	if err != nil {
		return err
	}
	if err := builder.Build(ctx, build.Default(table)); err != nil {
		return err
	}
	b.builder = builder
	return b.images(ctx, table)
}

// images makes those of the newest Kubernetes.
func (b *bench) images(ctx context.Context, table []build.Component) error {
	kubernetes, err := build.Find(table, "kubernetes")
	if err != nil {
		return err
	}
	images, err := mirror.Images(ctx, b.builder, kubernetes.Version)
	if err != nil {
		return err
	}
	return mirror.Make(ctx, b.builder.Cache, b.out, images)
}

func (b *bench) workdir() string { return filepath.Join(b.dir, "work") }

// kubexm runs the program.
func (b *bench) kubexm(ctx context.Context, work string, args ...string) (made, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, b.program, append(args, "--workdir", work, "-o", "json")...)
	cmd.Stdout = &out
	var m made
	u, err := measure(cmd)
	if err != nil {
		return m, fmt.Errorf("%w\n%s", err, out.String())
	}
	m.used = u
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	last := struct {
		*app.Result
		Millis int64 `json:"duration_ms"`
	}{Result: &m.Result}
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil {
		return m, fmt.Errorf("reading the result: %w", err)
	}
	m.Elapsed = time.Duration(last.Millis) * time.Millisecond
	if m.Run != "" {
		m.path, err = (&app.App{Workdir: work}).CriticalPath(app.Request{Name: m.Cluster}, m.Run)
	}
	return m, err
}

// legs writes a critical path; what took no time worth mentioning is summed up.
func legs(path []engine.Leg) string {
	var s strings.Builder
	var waited, small time.Duration
	n := 0
	for _, l := range path {
		waited += l.Waited
		if l.Took < 50*time.Millisecond {
			small += l.Took
			n++
			continue
		}
		fmt.Fprintf(&s, "%7.2f s  %-6s %s\n", l.Took.Seconds(), l.Node.Host, l.Node.What)
	}
	fmt.Fprintf(&s, "%7.2f s  %d shorter steps\n%7.2f s  waiting for a slot", small.Seconds(), n, waited.Seconds())
	return s.String()
}

func trips(byHost map[string]int64) string {
	var parts []string
	for _, h := range slices.SortedFunc(maps.Keys(byHost), cmp.Compare[string]) {
		if h != plan.Control {
			parts = append(parts, fmt.Sprintf("%s %d", h, byHost[h]))
		}
	}
	return strings.Join(parts, ", ")
}

func walls(all []made) string {
	var parts []string
	for _, one := range all {
		parts = append(parts, fmt.Sprintf("%.1f", one.wall.Seconds()))
	}
	return strings.Join(parts, ", ") + " s"
}

func (m made) String() string {
	return fmt.Sprintf("%s, processor time %s on the control machine and %s on the nodes", seconds(m.wall), seconds(m.cpu), seconds(m.nodes))
}

// spending adds the processor time that the nodes spend meanwhile.
func (b *bench) spending(ctx context.Context, run func() (made, error)) (made, error) {
	before, err := b.spent(ctx)
	if err != nil {
		return made{}, err
	}
	m, err := run()
	if err != nil {
		return m, err
	}
	after, err := b.spent(ctx)
	m.nodes = after - before
	return m, err
}

// spent is the processor time of all nodes, from their control groups (v1 or v2).
func (b *bench) spent(ctx context.Context) (sum time.Duration, err error) {
	nodes, err := b.testbed.Nodes()
	if err != nil {
		return 0, err
	}
	for _, n := range nodes {
		out, err := b.testbed.SSH(ctx, n, `cd /sys/fs/cgroup; if [ -f cpuacct/cpuacct.usage ]; then cat cpuacct/cpuacct.usage; else sed -n 's/usage_usec \(.*\)/\1000/p' cpu.stat; fi`)
		if err != nil {
			return 0, err
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the processor time of %s: %w", n.Name, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

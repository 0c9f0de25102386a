package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	kubexm "github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/resource/source"
)

// What a run on many hosts may take.
const limit, memory = time.Minute, 1 << 30

// simulated measures what kubexm takes to connect to many hosts, gather their
// facts, plan, and look at every step: for hosts that have nothing, and for the
// cluster that was made of them. Then more workers join, and leave again.
func (b *bench) simulated(ctx context.Context) ([]figure, error) {
	dir := filepath.Join(b.dir, "simulated")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	more := b.hosts / 10
	world, end, err := startWorld(ctx, dir, b.hosts+more)
	if err != nil {
		return nil, err
	}
	defer end()
	grown := filepath.Join(dir, "simulated.yaml")
	conf, err := firstHosts(grown, more)
	if err != nil {
		return nil, err
	}
	work := filepath.Join(dir, "work")
	if err := fillSimulated(ctx, conf, filepath.Join(work, "packages")); err != nil {
		return nil, err
	}
	var figures []figure
	for _, c := range []struct {
		what string
		args []string
	}{
		{"dry run", []string{"--dry-run"}},
		{"", nil}, // makes the cluster
		{"nothing to do", nil},
	} {
		m, err := b.kubexm(ctx, work, append([]string{"create", "cluster", "-f", conf}, c.args...)...)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(b.out, "simulated, %d hosts, %s: %s, %d MB, %+v; the hosts' process: %s\n", b.hosts, c.what, m, m.memory>>20, m.Summary, world())
		if c.what == "" {
			continue
		}
		if c.what == "nothing to do" && m.Summary.OK != m.Summary.Total {
			return nil, fmt.Errorf("a second run changed something: %+v", m.Summary)
		}
		figures = append(figures, figure{
			what:   fmt.Sprintf("%s, %d simulated hosts", c.what, b.hosts),
			kubexm: fmt.Sprintf("%s, %d MB", seconds(m.wall), m.memory>>20), goal: "<= 60 s, <= 1 GB", missed: m.wall > limit || m.memory > memory,
			notes: []string{
				fmt.Sprintf("Latency 5 ms each way. %d steps; processor time %s. Round trips: node1 (the master) %d, node2 %d.",
					m.Summary.Total, seconds(m.cpu), m.RoundTrips["node1"], m.RoundTrips["node2"]),
				fmt.Sprintf("Of it %s to start, connect, gather facts and plan. The process of the hosts, on the same processors: %s.", seconds(m.wall-m.Elapsed), world()),
			},
		})
	}
	for _, c := range []struct{ what, conf string }{{fmt.Sprintf("%d workers join", more), grown}, {fmt.Sprintf("%d workers leave", more), conf}} {
		m, err := b.kubexm(ctx, work, "apply", "-f", c.conf, "--yes")
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(b.out, "simulated, %d hosts, %s: %s, %d MB, %+v; the hosts' process: %s\n", b.hosts, c.what, m, m.memory>>20, m.Summary, world())
		figures = append(figures, b.crowd(c.what, m, world()))
	}
	return figures, nil
}

// crowd is the figure of a run that concerns the hosts after the first ones, and the master: how often it asks all others.
func (b *bench) crowd(what string, m made, world string) figure {
	least, most := m.RoundTrips["node2"], int64(0)
	for i := 2; i <= b.hosts; i++ {
		n := m.RoundTrips[fmt.Sprint("node", i)]
		least, most = min(least, n), max(most, n)
	}
	return figure{
		what:   fmt.Sprintf("%s, %d simulated hosts", what, b.hosts),
		kubexm: fmt.Sprintf("%s, %d MB, %d round trips to others", seconds(m.wall), m.memory>>20, most), goal: "<= 60 s, <= 1 GB, <= 1 round trip to others",
		missed: m.wall > limit || m.memory > memory || most > 1,
		notes: []string{
			fmt.Sprintf("By one `kubexm apply`. Latency 5 ms each way. %d steps, of which %d changed something; processor time %s.", m.Summary.Total, m.Summary.Changed, seconds(m.cpu)),
			fmt.Sprintf("Round trips: node1 (the master) %d, hosts that were there and stay %d to %d, one that comes or goes %d.",
				m.RoundTrips["node1"], least, most, m.RoundTrips[fmt.Sprint("node", b.hosts+1)]),
			fmt.Sprintf("Of it %s to start, connect, gather facts and plan, and to look and ask. The process of the hosts, on the same processors: %s.", seconds(m.wall-m.Elapsed), world),
		},
	}
}

// firstHosts writes a configuration without its last hosts beside it.
func firstHosts(file string, without int) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	lines := strings.SplitAfter(string(text), "\n")
	first := filepath.Join(filepath.Dir(file), "first.yaml")
	return first, os.WriteFile(first, []byte(strings.Join(lines[:len(lines)-1-without], "")), 0o600)
}

// startWorld starts the process of the hosts; state tells what it has used so far.
func startWorld(ctx context.Context, dir string, hosts int) (state func() string, end func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self, "simulate", "-hosts", fmt.Sprint(hosts), "-dir", dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	end = func() {
		in.Close()
		cmd.Wait()
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		end()
		return nil, nil, fmt.Errorf("starting simulated hosts: %q, %w", line, err)
	}
	status := fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)
	return func() string { return "at most " + first(status, `VmHWM:\s*(\d+)\d{3} kB`) + " MB" }, end, nil
}

// fillSimulated fills the store of the simulated cluster.
func fillSimulated(ctx context.Context, file, dir string) error {
	conf, _, err := config.Load(file)
	if err != nil {
		return err
	}
	store, err := resource.Open(dir, source.Config{Mirrors: conf.Spec.Source.Mirrors})
	if err != nil {
		return err
	}
	c := kubexm.New(conf, "", store, nil)
	return fill(ctx, c)
}

// Command bench measures what kubexm costs, against what the same costs without
// it. What counts are the ratios: both sides run on the same machine, in turns,
// within one run of this program. It needs root, for the machines of test/testbed.
//
//	go run ./test/bench                    everything, about an hour; the first time components are built for two architectures, too
//	go run ./test/bench -only transfer     one part
//	go run ./test/bench -update            writes docs/benchmarks.md, too
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kubexm/kubexm/test/testbed"
	"github.com/kubexm/kubexm/test/testbed/build"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "simulate" {
		if err := simulate(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench simulate:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run of this program.
type bench struct {
	out     io.Writer // progress
	dir     string    // scratch; removed at the end
	program string    // kubexm
	rounds  int
	hosts   int // simulated
	testbed *testbed.Testbed
	builder *build.Builder
}

// parts are what can be measured, in order.
var parts = []struct {
	name    string
	measure func(*bench, context.Context) ([]figure, error)
}{
	{"create", (*bench).create},
	{"choices", (*bench).choices},
	{"rerun", (*bench).rerun},
	{"far", (*bench).far},
	{"apply", (*bench).apply},
	{"join", (*bench).join},
	{"restore", (*bench).restore},
	{"offline", (*bench).offline},
	{"sizes", (*bench).sizes},
	{"transfer", (*bench).transfer},
	{"simulated", (*bench).simulated},
}

func run(ctx context.Context) (err error) {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	b := &bench{out: os.Stderr}
	only := flag.String("only", strings.Join(names, ","), "parts to measure")
	update := flag.Bool("update", false, "write docs/benchmarks.md")
	keep := flag.Bool("keep", false, "leave scratch files and machines as they are at the end")
	flag.IntVar(&b.rounds, "rounds", 3, "how often each side is measured; the median counts")
	flag.IntVar(&b.hosts, "hosts", 1000, "simulated hosts")
	flag.Parse()
	if *update && *only != strings.Join(names, ",") {
		return errors.New("-update writes the figures of all parts: leave -only out")
	}
	if b.testbed, err = testbed.Open(cmp.Or(os.Getenv("KUBEXM_TESTBED"), "bench"), b.out); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "kubexm-bench-"); err != nil {
		return err
	}
	if *keep {
		fmt.Fprintln(b.out, "scratch files:", b.dir)
	} else {
		defer func() {
			err = errors.Join(err, b.testbed.Down(context.WithoutCancel(ctx)), os.RemoveAll(b.dir))
		}()
	}
	b.program = filepath.Join(b.dir, "kubexm")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", b.program, "./cmd/kubexm").CombinedOutput(); err != nil {
		return fmt.Errorf("building kubexm: %w\n%s", err, out)
	}
	r := report{begun: time.Now(), load: load()}
	for _, p := range parts {
		if !slices.Contains(strings.Split(*only, ","), p.name) {
			continue
		}
		figures, err := p.measure(b, ctx)
		if err != nil {
			return fmt.Errorf("measuring %s: %w", p.name, err)
		}
		r.figures = append(r.figures, figures...)
	}
	fmt.Print(r.text())
	if *update {
		return os.WriteFile("docs/benchmarks.md", []byte(r.markdown()), 0o644)
	}
	return nil
}

// used is what a process took.
type used struct {
	wall, cpu time.Duration // cpu: its own and of children that it waited for
	memory    int64         // bytes, at most, resident
}

// measure runs a command to its end. Its output is in the error when it fails.
func measure(cmd *exec.Cmd) (used, error) {
	var text strings.Builder
	if cmd.Stdout == nil {
		cmd.Stdout = &text
	}
	cmd.Stderr = &text
	begin := time.Now()
	err := cmd.Run()
	u := used{wall: time.Since(begin)}
	if err != nil {
		return u, fmt.Errorf("%s: %w\n%s", cmd.Path, err, text.String())
	}
	u.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if r, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.memory = r.Maxrss << 10
	}
	return u, nil
}

// median returns the middle one by wall time.
func median[T any](all []T, wall func(T) time.Duration) T {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b T) int { return cmp.Compare(wall(a), wall(b)) })
	return sorted[(len(sorted)-1)/2]
}

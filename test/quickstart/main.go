// Command quickstart makes a real Kubernetes cluster of two throw-away machines
// on this one, with kubexm, and proves that it works. Run again it finds nothing
// to do; with the argument clean it removes what it made.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/test/smoke"
	"github.com/kubexm/kubexm/test/testbed"
	"github.com/kubexm/kubexm/test/testbed/build"
)

const (
	name   = "quickstart"
	nodes  = 2
	bed    = "quick"
	folder = ".quickstart" // below the repository's root: the configuration and kubexm's work directory
	config = folder + "/cluster.yaml"
	work   = folder + "/work"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	q := &quickstart{begin: time.Now()}
	run := q.run
	if len(os.Args) == 2 && os.Args[1] == "clean" {
		run = q.clean
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		if next := fault.Advice(err); next != "" {
			fmt.Fprintln(os.Stderr, next)
		}
		os.Exit(fault.ExitCode(err))
	}
}

type quickstart struct {
	begin   time.Time
	testbed *testbed.Testbed
	builder *build.Builder
}

func (q *quickstart) say(format string, args ...any) {
	fmt.Printf("%s  %s\n", time.Since(q.begin).Round(time.Second), fmt.Sprintf(format, args...))
}

func (q *quickstart) run(ctx context.Context) (err error) {
	if q.testbed, err = testbed.Open(bed, os.Stdout); err != nil {
		return err
	}
	if q.builder, err = build.NewBuilder(ctx, q.testbed.Cache, os.Stdout); err != nil {
		return err
	}
	q.say("a real Kubernetes cluster of %d throw-away machines on this one; nothing is simulated", nodes)
	if err := q.testbed.Fit(ctx, testbed.Options{Nodes: nodes}); err != nil {
		return err
	}
	err = reachable(ctx)
	upstream := err == nil
	if upstream {
		q.say("the releases of Kubernetes can be reached: kubexm downloads what it needs")
	} else {
		q.say("the releases of Kubernetes cannot be reached (%v)", err)
		q.say("so all programs are built from their Go modules: once, about 15 minutes on two cores, kept in %s", q.testbed.Cache.Dir)
	}
	if err := q.components(ctx, !upstream); err != nil {
		return err
	}
	machines, err := q.testbed.Up(ctx, testbed.Options{Nodes: nodes})
	if err != nil {
		return err
	}
	if err := q.configure(upstream); err != nil {
		return err
	}
	if err := q.create(ctx, !upstream); err != nil {
		return err
	}
	q.say("looking whether it works")
	for _, m := range machines {
		if err := q.testbed.Load(ctx, m, smoke.Image); err != nil {
			return err
		}
	}
	kubeconfig := filepath.Join(work, name, "admin.conf")
	cluster, err := smoke.New(kubeconfig, q.say)
	if err == nil {
		err = cluster.Prove(ctx, "cluster.local")
	}
	if err != nil {
		return err
	}
	q.say("it works. Look around:")
	fmt.Printf(farewell, config, work, kubeconfig, bed)
	return nil
}

const farewell = `
  bin/kubexm status -f %[1]s --workdir %[2]s
  bin/kubexm events -f %[1]s --workdir %[2]s
  KUBEXM_TESTBED=%[4]s bin/testbed ssh node1 kubectl --kubeconfig /etc/kubernetes/admin.conf get pods -A -o wide
  export KUBECONFIG=$PWD/%[3]s      # for a kubectl of your own

  make quickstart          # again: there is nothing to do
  make quickstart-clean    # removes the machines and all that was made
`

// create runs kubexm, with the mirror beside it where that is needed. kubexm
// hears Ctrl-C itself.
func (q *quickstart) create(ctx context.Context, mirrored bool) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	if mirrored {
		go func() { served <- q.testbed.Serve(serving, q.builder, nil) }()
	}
	line := []string{"create", "cluster", "-f", config, "--workdir", work}
	q.say("bin/kubexm %s %s -f %s --workdir %s", line[0], line[1], config, work)
	cmd := exec.Command("bin/kubexm", line...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		var ended *exec.ExitError
		if errors.As(err, &ended) {
			err = fault.Exit(err, max(ended.ExitCode(), fault.ExitFailed))
		}
		stop()
		if mirrored {
			err = errors.Join(err, <-served)
		}
		return fault.Advise(fmt.Errorf("making the cluster: %w", err), "the machines are kept: make quickstart goes on, make quickstart-clean removes them")
	}
	return nil
}

// clean removes the machines and the cluster's directory. The cache stays.
func (q *quickstart) clean(ctx context.Context) error {
	t, err := testbed.Open(bed, os.Stdout)
	if err != nil {
		return err
	}
	if err := t.Down(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("removing the cluster's directory: %w", err)
	}
	fmt.Println("removed: the machines, their network,", folder)
	fmt.Printf("kept: what was built, for the next time (rm -r %s removes it, too)\n", t.Cache.Dir)
	return nil
}

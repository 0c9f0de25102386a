// Command testbed makes machines, components and a package mirror for trying
// kubexm on real clusters. See test/testbed/README.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		if next := fault.Advice(err); next != "" {
			fmt.Fprintln(os.Stderr, next)
		}
		os.Exit(fault.ExitCode(err))
	}
}

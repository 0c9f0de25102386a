package cli

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// interrupt is what Ctrl-C does: the first time it stops what runs cleanly,
// where that can be; else, and the second time, at once.
type interrupt struct {
	clean atomic.Pointer[func()] // stops cleanly; nil: nothing runs that would have to end
}

// watch returns a context that ends when the program shall stop at once.
func (i *interrupt) watch(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
				if stop := i.clean.Swap(nil); stop != nil {
					(*stop)()
				} else {
					cancel()
				}
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel()
	}
}

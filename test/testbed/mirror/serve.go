package mirror

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/test/testbed/build"
)

// Trees lists the published files of everything that has been built. What
// lists all architectures is whole in those of the foreign ones: they come first.
func Trees(b *build.Builder) []string {
	table, err := b.Table()
	if err != nil {
		return nil
	}
	var trees []string
	for _, one := range append(b.Foreign(), b) {
		for _, c := range table {
			if dir, ok := one.Built(c); ok {
				trees = append(trees, filepath.Join(dir, "dist"))
			}
		}
	}
	return trees
}

// Layout is the directory of the images in a cache.
func Layout(c build.Cache) string { return c.Path("images") }

// Serve answers for files, as a proxy too, and for images on two addresses until ctx ends.
func Serve(ctx context.Context, b *build.Builder, files, images string, decide func(*http.Request) Fault) error {
	group, ctx := errgroup.WithContext(ctx)
	for address, handler := range map[string]http.Handler{
		files:  WithProxy(Files{Trees: func() []string { return Trees(b) }}),
		images: Registry{Layout: Layout(b.Cache)},
	} {
		if decide != nil {
			handler = WithFaults(handler, decide)
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("serving on %s: %w", address, err)
		}
		server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
		group.Go(func() error {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving on %s: %w", address, err)
			}
			return nil
		})
		group.Go(func() error {
			<-ctx.Done()
			return server.Close()
		})
	}
	if err := group.Wait(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

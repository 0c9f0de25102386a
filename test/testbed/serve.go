package testbed

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/test/testbed/build"
	"github.com/kubexm/kubexm/test/testbed/mirror"
)

// FilesAddress is where Serve serves files: http://10.77.0.1:8099/dl.k8s.io/...
func (t *Testbed) FilesAddress() string { return net.JoinHostPort(t.Gateway(), "8099") }

// ImagesAddress is where Serve serves images: 10.77.0.1:5000/registry.k8s.io/pause:3.10.2.
func (t *Testbed) ImagesAddress() string { return net.JoinHostPort(t.Gateway(), "5000") }

// Serve runs the mirror until ctx ends, and for nodes that have IPv6 alone a name server. decide says
// which answers of the mirror go wrong; nil means none.
func (t *Testbed) Serve(ctx context.Context, b *build.Builder, decide func(*http.Request) mirror.Fault) error {
	if err := t.servable(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return mirror.Serve(ctx, b, t.FilesAddress(), t.ImagesAddress(), decide) })
	if t.Family() == IPv6 {
		group.Go(func() error { return t.serveNames(ctx) })
	}
	return group.Wait()
}

func (t *Testbed) mirrorBase() string { return filepath.Join(t.Dir, "serve") }

// ServeDetached starts this program again as a mirror in the background,
// unless one runs, and returns when it answers. Down ends it.
func (t *Testbed) ServeDetached(ctx context.Context) error {
	if detached(t.mirrorBase()) != 0 {
		return nil
	}
	if err := t.servable(); err != nil {
		return err
	}
	return t.detach(ctx, t.mirrorBase(), "the mirror", []string{"serve"}, func() bool {
		return listens(t.FilesAddress()) && listens(t.ImagesAddress())
	})
}

func (t *Testbed) servable() error {
	if addressOwner(t.Gateway()) == "" {
		return fault.Advise(fmt.Errorf("testbed %s has no network to serve on", t.Name), "bring nodes up first: testbed up 1")
	}
	return nil
}

func listens(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

package step

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/runner"
)

// BinDir is where kubexm puts programs.
const BinDir = "/usr/local/bin"

// CNIBinDir is where the container runtime finds CNI plugins.
const CNIBinDir = "/opt/cni/bin"

// TransferTimeout is for what brings much to a host.
const TransferTimeout = 30 * time.Minute

// Transfer is a step that brings much to a host.
func Transfer(s Step) Step { return With(s, Options{Timeout: TransferTimeout, Limit: LimitTransfer}) }

// Runtime installs and runs a container runtime: programs, the settings that its units read when they start and, in the same round trip, where it gets
// images, which is read at each pull; then the units in their order.
func Runtime(programs Step, settings, registries Files, units ...Unit) []Step {
	config := Files{What: "container runtime", List: slices.Concat(settings.List, registries.List), Also: registries.Also}
	all := []Step{programs, config}
	for _, u := range units {
		u.Reads = []Step{programs, settings}
		all = append(all, u.Service())
	}
	return all
}

// RuntimePrograms puts the programs of a container runtime on a host, the CNI plugins among them.
func RuntimePrograms(store *resource.Store, all ...resource.Artifact) Step {
	u := Upload{What: "container runtime", Store: store}
	for _, a := range all {
		dir := BinDir
		if a.Component == plugin.CNIPlugins {
			dir = CNIBinDir
		}
		u.Programs = append(u.Programs, Programs{Artifact: a, Dir: dir})
	}
	return Transfer(u)
}

// CrictlConfig tells crictl which container runtime there is.
func CrictlConfig(endpoint string) File {
	text := "# Made by kubexm.\nruntime-endpoint: " + endpoint + "\nimage-endpoint: " + endpoint + "\ntimeout: 30\n"
	return File{Path: "/etc/crictl.yaml", Content: Content(text), Mode: 0o644}
}

// PullImages lets a container runtime pull images, a few at a time.
func PullImages(ctx context.Context, names []string, pull func(ctx context.Context, name string) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(3)
	for _, n := range names {
		g.Go(func() error {
			Tell(ctx, "pulling "+n)
			return pull(ctx, n)
		})
	}
	return g.Wait()
}

// ImagesChange brings missing images to a container runtime, and marks those that it is to keep, among them the missing ones, and those that it is not to any
// more; nil: there are none of these.
func ImagesChange(missing, keep, drop []string, bring func(ctx context.Context, names []string) error, mark func(ctx context.Context, keep, drop []string) error) *Change {
	var diff []string
	for _, n := range keep {
		if slices.Contains(missing, n) {
			n += " (missing)"
		}
		diff = append(diff, "+ "+n)
	}
	for _, n := range drop {
		diff = append(diff, "- "+n)
	}
	if diff == nil {
		return nil
	}
	return &Change{Diff: strings.Join(diff, "\n"), Run: func(ctx context.Context) error {
		if len(missing) > 0 {
			if err := bring(ctx, missing); err != nil {
				return err
			}
		}
		return mark(ctx, keep, drop)
	}}
}

// ImportImages streams images of the store to a command of the container runtime as one archive, without a file on the host.
func ImportImages(ctx context.Context, r *runner.Runner, store *resource.Store, arch string, names []string, command string) error {
	pr, pw := io.Pipe()
	total, err := store.ExportSize(arch, names...)
	if err != nil {
		return err
	}
	var done atomic.Int64
	tell := Progress(ctx)
	go func() {
		w := writer(func(p []byte) (int, error) {
			n, err := pw.Write(p)
			tell(done.Add(int64(n)), total)
			return n, err
		})
		pw.CloseWithError(store.Export(ctx, w, arch, names...))
	}()
	err = r.Exec(ctx, command, pr, nil)
	pr.CloseWithError(err)
	if err != nil {
		return fmt.Errorf("importing images: %w", err)
	}
	return nil
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// Forgotten removes what kubexm has made at some patterns of paths and that is not among files any more. ours and remove are scripts on $f: whether
// kubexm made it, and what takes it away.
func Forgotten(what, patterns string, files []File, ours, remove string) Command {
	var keep strings.Builder
	for _, f := range files {
		keep.WriteString(" " + f.Path) // of letters, digits, dots, hyphens and a colon
	}
	each := func(do string) string {
		return "for f in " + patterns + "; do case '" + keep.String() + ` ' in *" $f "*) ;; *) if ` + ours + "; then " + do + "; fi;; esac; done"
	}
	return Command{What: what, Unless: each("exit 1"), Run: each(remove)}
}

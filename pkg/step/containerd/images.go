package containerd

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

const transferTimeout = 30 * time.Minute

// Images ensures that containerd has images of the store, under their names.
type Images struct {
	Names []string
	Arch  string
	Store *resource.Store
	Pull  bool   `json:",omitempty"` // containerd gets them from the private registry; else they are streamed to it
	Unit  string `json:"-"`          // of that registry, on its host
}

func (i Images) String() string { return "container images" }

// Precheck compares digests with containerd's list.
func (i Images) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	want := map[string][]string{}
	for _, n := range i.Names {
		digest, err := i.Store.Digest(n, i.Arch)
		if err != nil {
			return nil, err
		}
		want[n] = []string{digest}
		if i.Pull { // then it may be the index of several architectures
			if digest, err = i.Store.TopDigest(ctx, n); err != nil {
				return nil, err
			}
			want[n] = append(want[n], digest)
		}
	}
	out, err := r.Sh(ctx, BinDir+"/ctr -n k8s.io images ls | { read -r _; while read -r name type digest _; do echo \"$name $digest\"; done; }")
	if err != nil {
		return nil, fmt.Errorf("listing containerd's images: %w", err)
	}
	for l := range strings.SplitSeq(out, "\n") {
		if name, digest, ok := strings.Cut(l, " "); ok && slices.Contains(want[name], digest) {
			delete(want, name)
		}
	}
	if len(want) == 0 {
		return nil, nil
	}
	missing := slices.DeleteFunc(slices.Clone(i.Names), func(n string) bool { return want[n] == nil })
	bring := i.load
	if i.Pull {
		bring = i.pull
	}
	return &step.Change{
		Diff: "+ " + strings.Join(missing, "\n+ "),
		Run:  func(ctx context.Context) error { return bring(ctx, r, missing) },
	}, nil
}

// load streams the images to containerd as one archive, without a file on the host.
func (i Images) load(ctx context.Context, r *runner.Runner, names []string) error {
	pr, pw := io.Pipe()
	total, err := i.Store.ExportSize(i.Arch, names...)
	if err != nil {
		return err
	}
	var done atomic.Int64
	tell := step.Progress(ctx)
	go func() {
		w := writer(func(p []byte) (int, error) {
			n, err := pw.Write(p)
			tell(done.Add(int64(n)), total)
			return n, err
		})
		pw.CloseWithError(i.Store.Export(ctx, w, i.Arch, names...))
	}()
	err = r.Exec(ctx, BinDir+"/ctr -n k8s.io images import --digests=false -", pr, nil)
	pr.CloseWithError(err)
	if err != nil {
		return fmt.Errorf("importing images: %w", err)
	}
	return nil
}

// pull lets containerd get images as the kubelet will: by way of what Registries has written.
func (i Images) pull(ctx context.Context, r *runner.Runner, names []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(3)
	for _, n := range names {
		g.Go(func() error {
			step.Tell(ctx, "pulling "+n)
			if _, err := r.Run(ctx, BinDir+"/crictl", "pull", n); err != nil {
				return fault.Advise(fmt.Errorf("pulling %s: %w", n, err),
					"kubexm registry list shows what the private registry has; check that this host reaches it, and see journalctl -u "+i.Unit+" on its own")
			}
			return nil
		})
	}
	return g.Wait()
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// Load brings the images that a node needs into containerd.
func Load(c *cluster.Cluster, host string) step.Step {
	return step.With(Images{Names: c.Images(host), Arch: c.Arch(host), Store: c.Store, Pull: c.RegistryHost() != "", Unit: plugin.RegistryOf(c.Spec).Unit},
		step.Options{Timeout: transferTimeout, Limit: step.LimitTransfer})
}

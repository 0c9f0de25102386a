package containerd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// Labels of an image in containerd. The kubelet does not collect a pinned one as garbage, however full its disk
// (https://kep.k8s.io/2040): without a registry it could not come back. The other label says that kubexm pinned it.
const (
	pinned   = "io.cri-containerd.pinned"
	pinnedBy = "kubexm.io/pinned"
)

// Images ensures that containerd has images of the store, under their names, and keeps them: they are pinned. Those it needed before are not any more, unless they are kept.
type Images struct{ cluster.NodeImages }

func (i Images) String() string { return "container images" }

// Precheck compares digests with containerd's list.
func (i Images) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	want, err := i.Digests(ctx)
	if err != nil {
		return nil, err
	}
	out, err := r.Sh(ctx, step.BinDir+"/ctr -n k8s.io images ls | { read -r _; while read -r name type digest more; do echo \"$name $digest $more\"; done; }")
	if err != nil {
		return nil, fmt.Errorf("listing containerd's images: %w", err)
	}
	missing, pin, unpin := slices.Clone(i.Names), slices.Clone(i.Names), []string(nil)
	for l := range strings.SplitSeq(out, "\n") {
		name, rest, _ := strings.Cut(l, " ")
		digest, labels, _ := strings.Cut(rest, " ")
		has := func(s string) bool { return s == name }
		switch ours := strings.Contains(labels, pinnedBy+"=yes"); {
		case slices.Contains(want[name], digest):
			missing = slices.DeleteFunc(missing, has)
			if ours && strings.Contains(labels, pinned+"=pinned") {
				pin = slices.DeleteFunc(pin, has)
			}
		case ours && want[name] == nil && !i.Keep:
			unpin = append(unpin, name)
		}
	}
	bring := i.load
	if i.Pull {
		bring = i.pull
	}
	return step.ImagesChange(missing, pin, unpin,
		func(ctx context.Context, names []string) error { return bring(ctx, r, names) },
		func(ctx context.Context, keep, drop []string) error { return mark(ctx, r, keep, drop) }), nil
}

// mark pins images, and leaves others to the kubelet.
func mark(ctx context.Context, r *runner.Runner, pin, unpin []string) error {
	const label = step.BinDir + "/ctr -n k8s.io images label %s " + pinned + "=%s " + pinnedBy + "=%s >/dev/null\n"
	var script strings.Builder
	for _, n := range pin {
		fmt.Fprintf(&script, label, n, "pinned", "yes")
	}
	for _, n := range unpin { // a label without a value goes
		fmt.Fprintf(&script, label, n, "", "")
	}
	if _, err := r.Sh(ctx, "set -e\n"+script.String()); err != nil {
		return fmt.Errorf("pinning images: %w", err)
	}
	return nil
}

// load imports the images from the store.
func (i Images) load(ctx context.Context, r *runner.Runner, names []string) error {
	return step.ImportImages(ctx, r, i.Store, i.Arch, names, step.BinDir+"/ctr -n k8s.io images import --digests=false -")
}

// pull lets containerd get images as the kubelet will: by way of what Registries has written.
func (i Images) pull(ctx context.Context, r *runner.Runner, names []string) error {
	return step.PullImages(ctx, names, func(ctx context.Context, name string) error {
		if _, err := r.Run(ctx, step.BinDir+"/crictl", "pull", name); err != nil {
			return i.NotPulled(name, err)
		}
		return nil
	})
}

// Load brings the images that a node needs into containerd.
func Load(c *cluster.Cluster, host string) step.Step {
	return step.Transfer(Images{c.NodeImages(host)})
}

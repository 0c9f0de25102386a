package docker

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// Docker cannot pin images. So each is used by a container that never runs, which has this label: the kubelet, which would collect
// images as garbage, cannot remove it then.
const keeps = "kubexm.io/image"

// Images ensures that Docker has images of the store, under their names, and keeps them. Those it needed before are not kept any more, unless they are to be.
type Images struct{ cluster.NodeImages }

func (i Images) String() string { return "container images" }

// look lists images and the containers that keep some, by their identities, which are digests.
const look = `docker image ls --no-trunc --format 'image {{.Repository}}:{{.Tag}} {{.ID}}'
all=$(docker ps -aq --filter label=` + keeps + `)
[ -z "$all" ] || docker inspect --format 'keeper {{index .Config.Labels "` + keeps + `"}} {{.Image}}' $all`

// Precheck compares digests with Docker's list.
func (i Images) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	want, err := i.Digests(ctx)
	if err != nil {
		return nil, err
	}
	out, err := r.Sh(ctx, "set -e\n"+look)
	if err != nil {
		return nil, fmt.Errorf("listing Docker's images: %w", err)
	}
	missing, keep, drop := slices.Clone(i.Names), slices.Clone(i.Names), []string(nil)
	for l := range strings.Lines(out) {
		f := strings.Fields(l)
		if len(f) != 3 {
			continue
		}
		is := func(n string) bool { return (n == f[1] || familiar(n) == f[1]) && slices.Contains(want[n], f[2]) }
		switch {
		case f[0] == "image":
			missing = slices.DeleteFunc(missing, is)
		case slices.ContainsFunc(i.Names, is):
			keep = slices.DeleteFunc(keep, is)
		case want[f[1]] == nil && !i.Keep:
			drop = append(drop, f[1])
		}
	}
	for _, n := range missing { // what is kept of them is another image
		if !slices.Contains(keep, n) {
			keep = append(keep, n)
		}
	}
	return step.ImagesChange(missing, keep, drop,
		func(ctx context.Context, names []string) error { return i.bring(ctx, r, names) },
		func(ctx context.Context, keep, drop []string) error { return mark(ctx, r, keep, drop) }), nil
}

// familiar is a name as Docker lists it.
func familiar(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "docker.io/"), "library/")
}

// bring has Docker import images from the store, or pull them from the private registry with the logins that the kubelet has.
func (i Images) bring(ctx context.Context, r *runner.Runner, names []string) error {
	if !i.Pull {
		return step.ImportImages(ctx, r, i.Store, i.Arch, names, step.BinDir+"/docker load -q >&2")
	}
	return step.PullImages(ctx, names, func(ctx context.Context, name string) error {
		if _, err := r.Run(ctx, step.BinDir+"/docker", "--config", loginsDir, "pull", "-q", name); err != nil {
			return i.NotPulled(name, err)
		}
		return nil
	})
}

// mark keeps images, and leaves others to the kubelet.
func mark(ctx context.Context, r *runner.Runner, keep, drop []string) error {
	var script strings.Builder
	for _, n := range slices.Concat(keep, drop) {
		fmt.Fprintf(&script, "docker rm -f %s >/dev/null 2>&1 || true\n", keeper(n))
	}
	for _, n := range keep {
		fmt.Fprintf(&script, "docker create --name %s --label %s=%s --network none --pull never %s none >/dev/null\n", keeper(n), keeps, n, n)
	}
	if _, err := r.Sh(ctx, "set -e\n"+script.String()); err != nil {
		return fmt.Errorf("keeping images: %w", err)
	}
	return nil
}

// keeper is the name of the container that keeps an image.
func keeper(image string) string {
	return fmt.Sprintf("kubexm-keeps-%.6x", sha256.Sum256([]byte(image)))
}

// Load brings the images that a node needs into Docker.
func Load(c *cluster.Cluster, host string) step.Step {
	return step.Transfer(Images{c.NodeImages(host)})
}

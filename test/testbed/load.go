package testbed

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/kubexm/kubexm/test/testbed/host"
	"github.com/kubexm/kubexm/test/testbed/mirror"
)

// Load puts an image of the cache into the containerd of a node.
func (t *Testbed) Load(ctx context.Context, n Node, ref string) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("loading an image: %w", err)
	}
	all, err := layout.ImageIndexFromPath(mirror.Layout(t.Cache))
	if err != nil {
		return fmt.Errorf("reading the images: %w", err)
	}
	found, err := partial.FindIndexes(all, match.Name(ref))
	if err != nil || len(found) == 0 {
		return fmt.Errorf("image %s is not in the cache: run testbed images (%w)", ref, err)
	}
	images, err := partial.FindImages(found[0], match.Platforms(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil || len(images) != 1 {
		return fmt.Errorf("reading image %s: %d images, %w", ref, len(images), err)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(tarball.Write(tag, images[0], w)) }()
	defer r.Close()
	line := append(t.SSHCommand(n, "root"), "/usr/local/bin/ctr -n k8s.io images import -")
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdin = r
	if _, err := host.Output(cmd); err != nil {
		return fmt.Errorf("loading %s on %s: %w", ref, n.Name, err)
	}
	return nil
}

package testbed

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/kubexm/kubexm/test/testbed/host"
	"github.com/kubexm/kubexm/test/testbed/mirror"
)

// Load puts an image of the cache into the container runtime of a node: containerd, Docker, or CRI-O, which can only pull.
func (t *Testbed) Load(ctx context.Context, n Node, ref string) error {
	active, err := t.SSH(ctx, n, "systemctl is-active crio docker || true")
	if err != nil {
		return err
	}
	switch strings.TrimSpace(active) {
	case "active\ninactive":
		err = t.pullImage(ctx, n, ref)
	case "inactive\nactive":
		err = t.importImage(ctx, n, ref, "/usr/local/bin/docker load")
	default:
		err = t.importImage(ctx, n, ref, "/usr/local/bin/ctr -n k8s.io images import -")
	}
	if err != nil {
		return fmt.Errorf("loading %s on %s: %w", ref, n.Name, err)
	}
	return nil
}

// importImage streams an archive to a command of the node.
func (t *Testbed) importImage(ctx context.Context, n Node, ref, command string) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	all, err := layout.ImageIndexFromPath(mirror.Layout(t.Cache))
	if err != nil {
		return fmt.Errorf("reading the images: %w", err)
	}
	found, err := partial.FindIndexes(all, match.Name(ref))
	if err != nil || len(found) == 0 {
		return fmt.Errorf("it is not in the cache: run testbed images (%w)", err)
	}
	images, err := partial.FindImages(found[0], match.Platforms(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil || len(images) != 1 {
		return fmt.Errorf("reading it: %d images, %w", len(images), err)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(tarball.Write(tag, images[0], w)) }()
	defer r.Close()
	line := append(t.SSHCommand(n, "root"), command)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdin = r
	_, err = host.Output(cmd)
	return err
}

// pullImage serves the cache to the node through the connection to it.
func (t *Testbed) pullImage(ctx context.Context, n Node, ref string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mirror.Registry{Layout: mirror.Layout(t.Cache)}, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // until it is closed
	defer server.Close()
	const there = "127.0.0.1:5999"
	registry, _, _ := strings.Cut(ref, "/")
	ssh := t.SSHCommand(n, "root")
	ssh = append(ssh[:len(ssh)-1], "-o", "ExitOnForwardFailure=yes", "-R", there+":"+l.Addr().String(), ssh[len(ssh)-1], fmt.Sprintf(`set -e; f=/etc/crio/registries.conf.d/testbed.conf
printf '[[registry]]\nlocation = "%%s"\n[[registry.mirror]]\nlocation = "%%s"\ninsecure = true\n' %[1]s %[2]s/%[1]s >$f
trap 'rm -f $f; systemctl reload crio' EXIT
systemctl reload crio
i=0; until crictl pull %[3]s || [ $i = 20 ]; do i=$((i + 1)); sleep 0.3; done`, registry, there, ref))
	_, err = host.Run(ctx, ssh[0], ssh[1:]...)
	return err
}

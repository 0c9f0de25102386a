package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/test/testbed"
	"github.com/kubexm/kubexm/test/testbed/build"
	"github.com/kubexm/kubexm/test/testbed/mirror"
)

// upstreams are where a cluster's parts come from: of each something that is always there.
var upstreams = []string{
	"https://dl.k8s.io/release/v1.34.0/bin/linux/amd64/kubelet.sha256", "https://github.com/containerd/containerd",
	"https://registry.k8s.io/v2/", "https://ghcr.io/v2/",
}

// reachable tells why upstream's releases cannot be reached; nil when all can.
func reachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var group errgroup.Group
	for _, url := range upstreams {
		group.Go(func() error {
			request, err := http.NewRequestWithContext(ctx, http.MethodHead, url, http.NoBody)
			if err != nil {
				return err
			}
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusUnauthorized { // registries want a token first
				return fmt.Errorf("%s: %s", url, answer.Status)
			}
			return nil
		})
	}
	return group.Wait()
}

// components builds what the proof needs, and with all what the cluster needs.
func (q *quickstart) components(ctx context.Context, all bool) error {
	table, err := q.builder.Table()
	if err != nil {
		return err
	}
	want := build.Default(table)
	if !all {
		want = slices.DeleteFunc(want, func(c build.Component) bool { return c.Name != "probe" })
	}
	if err := q.builder.Build(ctx, want); err != nil {
		return err
	}
	images, err := q.images(ctx, table, all)
	if err != nil {
		return err
	}
	return mirror.Make(ctx, q.builder.Cache, os.Stdout, images)
}

func (q *quickstart) images(ctx context.Context, table []build.Component, all bool) ([]mirror.Image, error) {
	if !all {
		probe, err := mirror.Probe(q.builder)
		return []mirror.Image{probe}, err
	}
	kubernetes, err := build.Find(table, "kubernetes")
	if err != nil {
		return nil, err
	}
	return mirror.Images(ctx, q.builder, kubernetes.Version)
}

// configure writes the cluster's configuration.
func (q *quickstart) configure(upstream bool) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	f, err := os.OpenFile(config, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	defer f.Close()
	return q.testbed.Config(f, q.builder, testbed.ConfigOptions{Name: name, Nodes: nodes, Row: 1, Upstream: upstream})
}

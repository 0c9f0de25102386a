package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/util/human"
)

func (p *program) registryCommand() *cobra.Command {
	group := p.group("registry", "Push images to the private registry of a cluster, and list them", p.pushCommand(), p.registryListCommand())
	group.GroupID = groupStore
	return group
}

func (p *program) pushCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "push [IMAGE...]", Short: "Push images from the store to the private registry",
		Long: `Push images from the store to the private registry of a cluster: those that are named,
else all that the store has. 'kubexm create cluster' pushes those that the nodes need.

Images go through the SSH connection to the registry's host, each for all architectures
that the store has. What the registry has already is not sent again. There, an image is
named by its usual name after the registry's own, as in
registry.kubexm.local/registry.k8s.io/pause:3.10.`,
		Example: "  kubexm registry push --name prod\n  kubexm registry push --name prod registry.k8s.io/pause:3.10.2",
		PreRunE: p.chosen,
	}
	format := output(cmd, "text", "json")
	cmd.Flags().BoolVar(&p.request.DryRun, "dry-run", false, "only show what would be pushed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return p.operate(cmd, format.value, func(ctx context.Context, r app.Request, o app.Observer) (*app.Result, error) {
			return p.app.PushImages(ctx, r, o, args)
		})
	}
	return cmd
}

func (p *program) registryListCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "list", Short: "Show what is in the private registry",
		Long: `Show what is in the private registry of a cluster: repositories, tags, digests, and how
large images are. Images may share layers, which the registry stores once.`,
		Example: "  kubexm registry list --name prod\n  kubexm registry list --name prod -o json | jq -r '.images[].digest'",
	})
	format := output(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		is, err := p.app.ListRegistry(cmd.Context(), p.request, p.observer())
		if err != nil {
			return err
		}
		if format.value != "table" {
			return p.print(format.value, is)
		}
		st := style.New(p.colors(p.out))
		rows := [][]string{head(st.Dim, "REPOSITORY", "TAG", "SIZE", "ARCH", "DIGEST")}
		for _, i := range is.Images {
			arch := "-"
			if i.Archs != nil {
				arch = strings.Join(i.Archs, ",")
			}
			rows = append(rows, []string{i.Repository, i.Tag, human.Bytes(i.Size), arch, i.Digest})
		}
		_, err = fmt.Fprintf(p.out, "%s\n%s: %s\n", fitting(rows, width(p.out)), st.Bold.String(is.Registry), human.Count(len(is.Images), "image"))
		return err
	}
	return cmd
}

func (p *program) imagesCommand() *cobra.Command {
	var archs []string
	cmd := p.ofCluster(&cobra.Command{
		Use: "list", Short: "Show the images that a cluster needs, and where they are",
		Long: `Show the images that the nodes of a cluster need, for each architecture: whether the
store has them, how large they are, and whether the private registry, where the
cluster has one, has them as the store does. Only the registry's host is asked.`,
		Example: "  kubexm images list --name prod\n  kubexm images list --name prod --arch arm64 -o json",
	})
	cmd.Flags().StringSliceVar(&archs, "arch", nil, "`architectures`, amd64 and arm64, of machines that have none configured (default amd64)")
	complete(cmd, "arch", app.Archs)
	format := output(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		is, err := p.app.Images(cmd.Context(), p.request, p.observer(), archs)
		if err != nil {
			return err
		}
		if format.value != "table" {
			return p.print(format.value, is)
		}
		_, err = fmt.Fprint(p.out, imagesText(is, style.New(p.colors(p.out)), width(p.out)))
		return err
	}
	group := p.group("images", "Show the images that a cluster needs", cmd)
	group.GroupID = groupStore
	return group
}

// imagesText lists images, and where they are.
func imagesText(is *app.NeededImages, st style.Style, width int) string {
	titles := []string{"IMAGE", "ARCH", "SIZE", "IN THE STORE"}
	if is.Registry != "" {
		titles = append(titles, "IN THE REGISTRY")
	}
	where := func(there bool) string {
		if there {
			return st.Good.String("yes")
		}
		return st.Warn.String("no")
	}
	rows := [][]string{head(st.Dim, titles...)}
	lacks := 0
	for _, i := range is.Images {
		size := "-"
		if i.InStore {
			size = human.Bytes(i.Size)
		} else {
			lacks++
		}
		row := []string{i.Image, i.Arch, size, where(i.InStore)}
		switch {
		case is.Registry == "":
		case i.InRegistry == nil:
			row = append(row, "-")
		default:
			row = append(row, where(*i.InRegistry))
		}
		rows = append(rows, row)
	}
	what := "all are in the store"
	if lacks > 0 {
		what = fmt.Sprintf("%d of them not in the store: kubexm download fetches them", lacks)
	}
	return fmt.Sprintf("%s\n%s: %s, %s\n", fitting(rows, width), st.Bold.String(is.Cluster), human.Count(len(is.Images), "image"), what)
}

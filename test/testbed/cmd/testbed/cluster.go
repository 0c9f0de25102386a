package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/test/testbed"
	"github.com/kubexm/kubexm/test/testbed/build"
	"github.com/kubexm/kubexm/test/testbed/host"
	"github.com/kubexm/kubexm/test/testbed/mirror"
)

// builder returns the builder of the default cache.
func builder(cmd *cobra.Command) (*build.Builder, error) {
	cache, err := build.DefaultCache()
	if err != nil {
		return nil, err
	}
	return build.NewBuilder(cmd.Context(), cache, cmd.OutOrStdout())
}

func buildCommand() *cobra.Command {
	arch := runtime.GOARCH
	cmd := &cobra.Command{
		Use:   "build [NAME[@VERSION]...]",
		Short: "Build components; by default what one cluster needs",
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := builder(cmd)
			if err != nil {
				return err
			}
			b = b.On(arch)
			table, err := b.Table()
			if err != nil {
				return err
			}
			want := build.Default(table)
			if len(args) > 0 {
				want = nil
			}
			for _, a := range args {
				c, err := build.Find(table, a)
				if err != nil {
					return err
				}
				want = append(want, c)
			}
			if err := b.Build(cmd.Context(), want); err != nil {
				return err
			}
			for _, c := range want {
				dir, _ := b.Built(c)
				fmt.Fprintln(cmd.OutOrStdout(), c.Name, c.Version, dir)
			}
			return nil
		},
	}
	archFlag(cmd, &arch)
	return cmd
}

func archFlag(cmd *cobra.Command, arch *string) {
	cmd.Flags().StringVar(arch, "arch", *arch, "architecture to build for, after this machine's own")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(host.Archs(), *arch) {
			return fmt.Errorf("nothing can be built for %q: want %s", *arch, strings.Join(host.Archs(), " or "))
		}
		return nil
	}
}

func imagesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "images [VERSION]",
		Short: "Make the images of a Kubernetes version; by default of the newest",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := builder(cmd)
			if err != nil {
				return err
			}
			table, err := b.Table()
			if err != nil {
				return err
			}
			version := ""
			if len(args) == 1 {
				version = args[0]
			}
			kubernetes, err := build.Find(table, "kubernetes@"+version)
			if err != nil {
				return err
			}
			images, err := mirror.Images(cmd.Context(), b, kubernetes.Version)
			if err != nil {
				return err
			}
			if err := mirror.Make(cmd.Context(), b.Cache, cmd.OutOrStdout(), images); err != nil {
				return err
			}
			for _, i := range images {
				fmt.Fprintln(cmd.OutOrStdout(), i.Ref)
			}
			return nil
		},
	}
}

func serveCommand() *cobra.Command {
	var detach bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve built components and images to the nodes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := open(cmd)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "files on http://%s/, images on %s\n", t.FilesAddress(), t.ImagesAddress())
			if detach {
				return t.ServeDetached(cmd.Context())
			}
			b, err := builder(cmd)
			if err != nil {
				return err
			}
			return t.Serve(cmd.Context(), b, nil)
		},
	}
	cmd.Flags().BoolVar(&detach, "detach", false, "go on in the background, until the testbed goes down")
	return cmd
}

func configCommand() *cobra.Command {
	var o testbed.ConfigOptions
	cmd := &cobra.Command{
		Use:   "config N",
		Short: "Print a cluster.yaml for the first N nodes",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := openFor(cmd, args[0], &o.Nodes)
			if err != nil {
				return err
			}
			b, err := builder(cmd)
			if err != nil {
				return err
			}
			return t.Config(cmd.OutOrStdout(), b, o)
		},
	}
	cmd.Flags().IntVar(&o.Row, "rows", 1, fmt.Sprintf("row of the deployment matrix, 1 to %d (see Rows of the package)", len(testbed.Rows)))
	cmd.Flags().StringVar(&o.Kubernetes, "kubernetes", "", "version or minor version")
	cmd.Flags().StringVar(&o.Network, "network", "", "network plugin (default flannel)")
	cmd.Flags().StringVar(&o.Runtime, "runtime", "", "container runtime (default containerd)")
	return cmd
}

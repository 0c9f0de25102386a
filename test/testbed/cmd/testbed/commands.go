package main

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/test/testbed/host"
)

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "testbed",
		Short:         "Real machines for kubexm on one Linux machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(depsCommand(), buildCommand(), imagesCommand(), upCommand(), downCommand(), statusCommand(), serveCommand(), configCommand())
	cmd.AddCommand(nodeCommands()...)
	return cmd
}

func depsCommand() *cobra.Command {
	arch := runtime.GOARCH
	cmd := &cobra.Command{
		Use:   "deps",
		Short: "Install what the testbed needs on this machine",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tools := slices.Concat(host.ForNodes, host.ForBuilds, host.ForImages)
			if arch != runtime.GOARCH {
				tools = append(tools, host.ForCross(arch)...)
			}
			if err := host.Require(cmd.Context(), cmd.OutOrStdout(), tools...); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "nothing is missing")
			return nil
		},
	}
	archFlag(cmd, &arch)
	return cmd
}

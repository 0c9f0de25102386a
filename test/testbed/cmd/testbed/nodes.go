package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/test/testbed"
)

// open returns the testbed that the environment names.
func open(cmd *cobra.Command) (*testbed.Testbed, error) {
	return testbed.Open("", cmd.OutOrStdout())
}

// openFor is open for a command whose argument is a number of nodes.
func openFor(cmd *cobra.Command, arg string, nodes *int) (t *testbed.Testbed, err error) {
	if *nodes, err = strconv.Atoi(arg); err != nil {
		return nil, fmt.Errorf("%q is not a number of nodes", arg)
	}
	return open(cmd)
}

func upCommand() *cobra.Command {
	var o testbed.Options
	cmd := &cobra.Command{
		Use:   "up N",
		Short: "Make sure that node1 to nodeN exist and run",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := openFor(cmd, args[0], &o.Nodes)
			if err != nil {
				return err
			}
			_, err = t.Up(cmd.Context(), o)
			return err
		},
	}
	cmd.Flags().StringVar(&o.OS, "os", "debian12", "debian12, debian13 or mixed")
	cmd.Flags().StringVar(&o.Family, "family", "", "of addresses: "+strings.Join(testbed.Families, ", ")+" (alone); by default what the testbed has, or ipv4")
	cmd.Flags().StringVar(&o.User, "user", "root", "account to use: root, kube (sudo with password) or nopass (sudo without)")
	return cmd
}

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down [all | NODE...]",
		Short: "Remove nodes and all traces of them; by default all",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := open(cmd)
			if err != nil {
				return err
			}
			if len(args) == 1 && args[0] == "all" {
				args = nil
			}
			return t.Down(cmd.Context(), args...)
		},
	}
}

// nodeCommand is a command about one node.
func nodeCommand(use, short string, args cobra.PositionalArgs, run func(*cobra.Command, *testbed.Testbed, testbed.Node, []string) error) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  args,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := open(cmd)
			if err != nil {
				return err
			}
			n, err := t.Node(args[0])
			if err != nil {
				return err
			}
			return run(cmd, t, n, args[1:])
		},
	}
}

// bedCommand is a command about the testbed as a whole.
func bedCommand(use, short string, run func(*cobra.Command, *testbed.Testbed, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, DisableFlagParsing: true, RunE: func(cmd *cobra.Command, args []string) error {
		t, err := open(cmd)
		if err != nil {
			return err
		}
		return run(cmd, t, args)
	}}
}

// inside becomes the program that is to run where the testbed is isolated.
func inside(_ *cobra.Command, t *testbed.Testbed, args []string) error {
	line := append(t.Inside(), args...)
	program, err := exec.LookPath(line[0])
	if err != nil {
		return fmt.Errorf("looking for %s: %w", line[0], err)
	}
	return syscall.Exec(program, line, os.Environ())
}

func nodeCommands() []*cobra.Command {
	one := cobra.ExactArgs(1)
	return []*cobra.Command{
		sshCommand(),
		bedCommand("isolate", "Let nodes reach one another alone, and count what wants out", func(cmd *cobra.Command, t *testbed.Testbed, _ []string) error {
			return t.Isolate(cmd.Context())
		}),
		bedCommand("inside COMMAND...", "Run a program beside isolated nodes, with no other way out", inside),
		bedCommand("release", "Undo isolate, and tell how many packets wanted out", func(cmd *cobra.Command, t *testbed.Testbed, _ []string) error {
			n, err := t.Tried(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d packets wanted out\n", n)
			return t.Release(cmd.Context())
		}),
		nodeCommand("cut NODE", "Take a node's network away", one, func(cmd *cobra.Command, t *testbed.Testbed, n testbed.Node, _ []string) error {
			return t.Cut(cmd.Context(), n)
		}),
		nodeCommand("heal NODE", "Undo cut and slow", one, func(cmd *cobra.Command, t *testbed.Testbed, n testbed.Node, _ []string) error {
			return t.Heal(cmd.Context(), n)
		}),
		nodeCommand("slow NODE RTT [RATE]", "Delay a node's network (20ms) and limit its rate (100mbit)", cobra.RangeArgs(2, 3), slow),
		nodeCommand("snapshot NODE", "Describe a node, to compare before and after", one, func(cmd *cobra.Command, t *testbed.Testbed, n testbed.Node, _ []string) error {
			text, err := t.Snapshot(cmd.Context(), n)
			fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		}),
		nodeCommand("cable NODE RTT [RATE]", "The same as slow, in the foreground", cobra.RangeArgs(2, 3), cable),
		nodeCommand("poweroff NODE", "End a node as a power cut would", one, func(cmd *cobra.Command, t *testbed.Testbed, n testbed.Node, _ []string) error {
			return t.Poweroff(cmd.Context(), n)
		}),
		nodeCommand("start NODE", "Boot a node that is off", one, func(cmd *cobra.Command, t *testbed.Testbed, n testbed.Node, _ []string) error {
			return t.Start(cmd.Context(), n)
		}),
		nodeCommand("burn NODE", "Replace a node by a new machine under its name and address, which is off", one, func(cmd *cobra.Command, t *testbed.Testbed, n testbed.Node, _ []string) error {
			return t.Burn(cmd.Context(), n)
		}),
	}
}

// lengths reads the arguments RTT and RATE.
func lengths(args []string) (rtt time.Duration, rate int64, err error) {
	if rtt, err = time.ParseDuration(args[0]); err != nil {
		return 0, 0, fmt.Errorf("round trip time %q: want a duration such as 20ms", args[0])
	}
	if len(args) > 1 {
		rate, err = testbed.Rate(args[1])
	}
	return rtt, rate, err
}

func slow(cmd *cobra.Command, t *testbed.Testbed, n testbed.Node, args []string) error {
	rtt, rate, err := lengths(args)
	if err != nil {
		return err
	}
	return t.SlowDetached(cmd.Context(), n, rtt, rate)
}

// cable is slow in the foreground.
func cable(cmd *cobra.Command, t *testbed.Testbed, n testbed.Node, args []string) error {
	rtt, rate, err := lengths(args)
	if err != nil {
		return err
	}
	wait, err := t.Slow(cmd.Context(), n, rtt, rate)
	if err != nil {
		return err
	}
	return wait()
}

// sshCommand becomes ssh, so that terminal and exit code are its own.
func sshCommand() *cobra.Command {
	cmd := nodeCommand("ssh NODE [COMMAND...]", "Open a session on a node, or run a command", cobra.MinimumNArgs(1),
		func(cmd *cobra.Command, t *testbed.Testbed, n testbed.Node, args []string) error {
			line := append(t.SSHCommand(n, t.User()), args...)
			path, err := exec.LookPath(line[0])
			if err != nil {
				return err
			}
			return syscall.Exec(path, line, os.Environ())
		})
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "List the nodes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := open(cmd)
			if err != nil {
				return err
			}
			nodes, err := t.Nodes()
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NODE\tADDRESS\tSYSTEM\tSTATE")
			for _, n := range nodes {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", n.Name, strings.Join(n.Addresses(), ","), n.OS, t.State(n))
			}
			return w.Flush()
		},
	}
}

// Package cli is the command line of kubexm: commands, flags, tables, progress,
// errors for people. What the commands do is in package app.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// program is one call of kubexm: its streams and what all commands share.
type program struct {
	in       io.Reader
	out, err io.Writer

	app       app.App
	request   app.Request
	rollback  choice
	yes       bool // services may be restarted
	quiet     bool
	noColor   bool
	answered  bool  // JSON was written: the result, or what it is about
	misused   error // of a call for help
	interrupt interrupt
}

// Main runs kubexm with the arguments that follow its name, and returns the
// exit code: one of package fault's, or 0.
func Main(args []string) int {
	p := &program{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	ctx, stop := p.interrupt.watch(context.Background())
	defer stop()
	cmd, err := p.execute(ctx, args)
	if err != nil && ctx.Err() != nil {
		err = fault.Exit(err, fault.ExitInterrupted)
	}
	if err != nil {
		if form := cmd.Flags().Lookup("output"); form != nil && form.Value.String() == "json" && !p.answered {
			_ = p.result(nil, err) // the error itself is told below
		}
		p.report(err)
	}
	return fault.ExitCode(err)
}

// execute runs the command that the arguments name.
func (p *program) execute(ctx context.Context, args []string) (cmd *cobra.Command, err error) {
	defer fault.Caught(&err)
	cmd = new(cobra.Command) // for what tells of a fault in root
	cmd = p.root()
	cmd.SetArgs(args)
	cmd, err = cmd.ExecuteContextC(ctx)
	return cmd, cmp.Or(err, p.misused)
}

// Command is the tree of all commands, for what describes them: man pages and completion scripts.
func Command() *cobra.Command { return (&program{}).root() }

const longHelp = `kubexm turns bare Linux machines, reached by SSH, into production Kubernetes,
and maintains it.

A cluster is described in conf/NAME/cluster.yaml (chosen with --name NAME) or in
any file (-f FILE). Its keys, the downloads and the record of every run are kept
in the work directory.

The cluster may be named by an argument, too: kubexm status prod. Without a name it is the
one of the environment variables KUBEXM_NAME or KUBEXM_FILE, else the only one there is,
except for deleting it. KUBEXM_WORKDIR is the work directory where --workdir is not given.

Exit codes:
  0    done, or nothing to do
  1    the work failed
  2    wrong usage or configuration; nothing was touched
  3    a machine is not fit (preflight); nothing was touched
  10   kubexm plan apply --exit-code: there is something to change
  130  interrupted`

const (
	groupCluster = "cluster"
	groupStore   = "store"
	groupLook    = "look"
	groupConfig  = "config"
)

func (p *program) root() *cobra.Command {
	root := p.group("kubexm", "Production Kubernetes from bare Linux machines",
		p.createCommand(), p.applyCommand(), p.addCommand(), p.replaceCommand(), p.upgradeCommand(), p.deleteCommand(),
		p.unlockCommand(), p.planCommand(), p.installCommand(), p.downloadCommand(), p.importCommand(), p.buildCommand(),
		p.imagesCommand(), p.registryCommand(),
		p.preflightCommand(), p.hostsCommand(), p.statusCommand(), p.certsCommand(), p.updateCommand(),
		p.backupCommand(), p.restoreCommand(), p.recoverCommand(), p.etcdCommand(), p.scheduleCommand(),
		p.execCommand(), p.sshCommand(), p.kubeconfigCommand(), p.runsCommand(), p.eventsCommand(),
		p.configCommand(), p.completionCommand(), p.versionCommand())
	root.Long = longHelp
	root.Example = `  kubexm config init --name prod     # write conf/prod/cluster.yaml, then edit it
  kubexm preflight --name prod       # are these machines fit for it?
  kubexm create cluster --name prod
  kubexm status --name prod`
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = buildOf().Version
	root.SetVersionTemplate(buildOf().String())
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.AddGroup(&cobra.Group{ID: groupCluster, Title: "Clusters:"}, &cobra.Group{ID: groupStore, Title: "Downloads and images:"}, &cobra.Group{ID: groupLook, Title: "Status and history:"},
		&cobra.Group{ID: groupConfig, Title: "Configuration and this program:"})
	p.setHelp(root)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "cluster" {
			name = "name"
		}
		return pflag.NormalizedName(name)
	})
	p.app.Version = buildOf().Version
	flags := root.PersistentFlags()
	flags.StringVar(&p.request.Name, "name", "", "`name` of the cluster, described in conf/NAME/cluster.yaml (alias: --cluster)")
	flags.StringVarP(&p.request.File, "file", "f", "", "configuration `file`, instead of --name (\"-\": standard input)")
	flags.StringVar(&p.app.Workdir, "workdir", cmp.Or(os.Getenv(envWorkdir), app.DefaultWorkdir), "work `directory`, for keys, records and downloads")
	flags.BoolVarP(&p.quiet, "quiet", "q", false, "print nothing but results, warnings and errors")
	flags.BoolVar(&p.request.Debug, "debug", false, "log every command on the machines: of a run to a file in the cluster's directory, else to standard error")
	flags.BoolVar(&p.noColor, "no-color", false, "no colors (also: environment NO_COLOR)")
	complete(root, "name", p.clusterNames)
	_ = root.MarkPersistentFlagFilename("file", "yaml", "yml")
	_ = root.MarkPersistentFlagDirname("workdir")
	return root
}

// group makes a command that only holds others.
func (p *program) group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().NFlag() > 0 {
				return unknown(fmt.Errorf("%s needs a command", cmd.CommandPath()), cmd, "", commandNames(cmd))
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(commands...)
	return cmd
}

// setHelp lets help fail for commands that there are not.
func (p *program) setHelp(root *cobra.Command) {
	show := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.HasSubCommands() {
			p.misused = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if p.misused == nil {
			show(cmd, args)
		}
	})
	root.SetHelpCommandGroupID(groupConfig)
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"}) // it was made just now
	help.Run, help.RunE = nil, func(cmd *cobra.Command, args []string) error {
		about, rest, err := root.Find(args)
		if err == nil && about.HasSubCommands() {
			err = about.ValidateArgs(rest)
		}
		if err != nil {
			return err
		}
		about.InitDefaultHelpFlag()
		return about.Help()
	}
}

// terminal reports whether a stream is a terminal that can move its cursor.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// size is that of the terminal that a stream is.
func size(stream any) (width, height int) {
	if f, ok := stream.(*os.File); ok {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
			return width, height
		}
	}
	return 80, 24
}

// width is how wide texts on a stream may be.
func width(stream any) int {
	if !terminal(stream) {
		return math.MaxInt32
	}
	width, _ := size(stream)
	return width
}

// colors reports whether what is written to w may be colored.
func (p *program) colors(w io.Writer) bool {
	return !p.noColor && os.Getenv("NO_COLOR") == "" && terminal(w)
}

func usage(err error) error { return fault.Exit(err, fault.ExitUsage) }

var errDeclined = fault.Exit(errors.New("not confirmed; nothing was touched"), fault.ExitFailed)

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// choice is a flag that takes one of some words.
type choice struct {
	value   string // the default, until it is set
	allowed []string
	into    *string // gets the value, too; nil: nobody
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.allowed, "|") }
func (c *choice) Set(s string) error {
	if !slices.Contains(c.allowed, s) {
		return fmt.Errorf("choose one of: %s", strings.Join(c.allowed, ", "))
	}
	c.value = s
	if c.into != nil {
		*c.into = s
	}
	return nil
}

// byteSize is a flag that takes a number of bytes, like 700M.
type byteSize int64

var bytesForm = regexp.MustCompile(`^(\d{1,12})([KMGT]?)(i?B)?$`)

func (b *byteSize) String() string { return "" }
func (b *byteSize) Type() string   { return "size" }
func (b *byteSize) Set(s string) error {
	m := bytesForm.FindStringSubmatch(s)
	if m == nil {
		return errors.New("give a size like 700M or 2G")
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	for range strings.Index(" KMGT", cmp.Or(m[2], " ")) {
		n <<= 10
	}
	if err != nil || n < 1<<20 || n > 1<<50 {
		return errors.New("give at least 1M, and at most 1024T")
	}
	*b = byteSize(n)
	return nil
}

// output adds the flag -o.
func output(cmd *cobra.Command, allowed ...string) *choice {
	c := &choice{value: allowed[0], allowed: allowed}
	cmd.Flags().VarP(c, "output", "o", "output format")
	complete(cmd, "output", func() []string { return allowed })
	return c
}

// complete lets shells complete the values of a flag.
func complete(cmd *cobra.Command, flag string, values func() []string) {
	// It fails for flags that do not exist, which tests would see.
	_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values(), cobra.ShellCompDirectiveNoFileComp
	})
}

// clusterNames are the clusters that are described or were made here.
func (p *program) clusterNames() []string {
	described, _ := filepath.Glob(filepath.Join("conf", "*", "cluster.yaml"))
	names, _ := p.app.Clusters()
	for _, path := range described {
		names = append(names, filepath.Base(filepath.Dir(path)))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Environment variables that name a cluster, its file and the work directory where no flag does.
const (
	envName    = "KUBEXM_NAME"
	envFile    = "KUBEXM_FILE"
	envWorkdir = "KUBEXM_WORKDIR"
)

// ofCluster makes a command be about one cluster, which its argument may name.
func (p *program) ofCluster(cmd *cobra.Command) *cobra.Command {
	cmd.Use += " [NAME]"
	cmd.PreRunE = p.chosen
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := arguments(1)(cmd, args); err != nil || len(args) == 0 {
			return err
		}
		if p.request.Name != "" && p.request.Name != args[0] || p.request.File != "" {
			err := fmt.Errorf("%q and %s name a cluster each", args[0], strings.TrimSpace(p.app.Which(p.request)))
			advice := "leave one of them out"
			if strings.ContainsRune(args[0], '/') {
				advice += "; a file that an option may have is given with =, like --merge=FILE"
			}
			return usage(fault.Advise(err, advice))
		}
		p.request.Name = args[0]
		return nil
	}
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.clusterNames(), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// named is chosen for what must not happen to a cluster only because there is no other.
func (p *program) named(cmd *cobra.Command, args []string) error {
	if r := p.request; r.Name+r.File+os.Getenv(envName)+os.Getenv(envFile) == "" {
		return usage(unnamed(p.clusterNames()))
	}
	return p.chosen(cmd, args)
}

func unnamed(names []string) error {
	advice := "give --name NAME (for conf/NAME/cluster.yaml) or -f FILE; create one with: kubexm config init --name NAME"
	if len(names) > 0 {
		advice = "give --name NAME or -f FILE; there are: " + strings.Join(names, ", ")
	}
	return fault.Advise(errors.New("no cluster is named"), advice)
}

// chosen checks, before anything is done, that a cluster is named and that there is one, and what flags cannot check.
// A cluster is named by flags or an argument, else by the environment; else there is only one.
func (p *program) chosen(cmd *cobra.Command, _ []string) error {
	r, names := &p.request, p.clusterNames()
	if r.Name == "" && r.File == "" {
		r.Name, r.File = os.Getenv(envName), os.Getenv(envFile)
	}
	if r.Name == "" && r.File == "" && len(names) == 1 {
		r.Name = names[0]
	}
	var err error
	var advice string
	switch {
	case r.Parallel < 0:
		err, advice = fmt.Errorf("--parallel must be at least 1, not %d", r.Parallel), "give a number of steps, or leave it out"
	case r.NoRollBack && cmd.Flags().Changed("rollback"):
		err, advice = errors.New("--rollback and --no-rollback cannot be combined"), "leave one of them out"
	case r.File == "-" && r.Given == nil:
		return p.readConfig()
	case r.File != "":
	case r.Name == "":
		err = unnamed(names)
	case !slices.Contains(names, r.Name):
		err = fmt.Errorf("there is no cluster %s: neither conf/%[1]s/cluster.yaml nor a record in %s", r.Name, p.app.Workdir)
		advice = "create its configuration with: kubexm config init --name " + runner.Quote(r.Name)
		if near := nearest(r.Name, names); near != "" {
			advice = fmt.Sprintf("did you mean: %s --name %s\nelse %s", cmd.CommandPath(), runner.Quote(near), advice)
		}
	}
	return usage(fault.Advise(err, advice))
}

// maxConfig is how many bytes of standard input are taken for a configuration.
const maxConfig = 16 << 20

// readConfig reads the configuration from standard input.
func (p *program) readConfig() error {
	text, err := io.ReadAll(io.LimitReader(p.in, maxConfig))
	switch {
	case err != nil:
		return fmt.Errorf("reading the configuration from standard input: %w", err)
	case len(text) == maxConfig:
		return usage(fmt.Errorf("standard input is no configuration: it has %s or more", human.Bytes(maxConfig)))
	}
	p.request.Given = text
	return nil
}

// arguments allows up to n arguments, from among the command's ValidArgs where it has some.
func arguments(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			err := fmt.Errorf("%q is one argument too many for %s", args[n], cmd.CommandPath())
			return usage(fault.Advise(err, "see: "+cmd.CommandPath()+" --help"))
		}
		for _, a := range args {
			if len(cmd.ValidArgs) > 0 && !slices.Contains(cmd.ValidArgs, a) {
				return unknown(fmt.Errorf("unknown argument for %s: %q", cmd.CommandPath(), a), cmd, a, cmd.ValidArgs)
			}
		}
		return nil
	}
}

// unknown adds what may have been meant to an error about a word.
func unknown(err error, cmd *cobra.Command, word string, words []string) error {
	advice := "there are: " + strings.Join(words, ", ")
	near := nearest(word, words)
	if len(words) == 1 {
		near = words[0]
	}
	if !cmd.HasParent() {
		near = cmp.Or(familiar[word], near)
	}
	if near != "" {
		advice = fmt.Sprintf("did you mean: %s %s", cmd.CommandPath(), near)
	}
	return usage(fault.Advise(err, advice))
}

// familiar are words that other tools have for what kubexm can do.
var familiar = map[string]string{
	"init": "config init", "validate": "config validate", "explain": "config explain", "diff": "plan apply --diff", "logs": "events", "log": "events",
	"up": "create cluster", "deploy": "create cluster", "start": "create cluster", "sync": "apply", "reconcile": "apply",
	"reset": "delete cluster", "destroy": "delete cluster", "down": "delete cluster", "remove": "delete cluster", "uninstall": "delete cluster",
	"check": "preflight", "precheck": "preflight", "doctor": "preflight", "get": "status", "describe": "status", "info": "status", "list": "status",
	"artifact": "download --export", "bundle": "download --export", "export": "download --export", "pull": "download", "load": "import", "push": "registry push",
}

func flagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return unknownCommand(cmd, args[0]) // that its flags are not known here is only to be expected
	}
	advice := "see: " + cmd.CommandPath() + " --help"
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := nearest(missing.GetSpecifiedName(), names); near != "" {
			advice = fmt.Sprintf("did you mean --%s? %s", near, advice)
		}
	}
	return usage(fault.Advise(err, advice))
}

func unknownCommand(cmd *cobra.Command, name string) error {
	return unknown(fmt.Errorf("unknown command %q for %q", name, cmd.CommandPath()), cmd, name, commandNames(cmd))
}

func commandNames(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// nearest returns the word that s most likely was meant to be, or begins, or "".
func nearest(s string, words []string) string {
	if s == "" {
		return ""
	}
	if near := config.Nearest(s, words); near != "" {
		return near
	}
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, s) }); i >= 0 {
		return words[i]
	}
	return ""
}

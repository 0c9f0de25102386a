package cli

import (
	"cmp"
	"errors"
	"fmt"
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
)

// choice is a flag that takes one of some words; the first is the default.
type choice struct {
	value   string
	allowed []string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.allowed, "|") }
func (c *choice) Set(s string) error {
	if !slices.Contains(c.allowed, s) {
		return fmt.Errorf("choose one of: %s", strings.Join(c.allowed, ", "))
	}
	c.value = s
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
	c := &choice{allowed[0], allowed}
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

// chosen checks, before anything is done, that a cluster is named and that there is one, and what flags cannot check.
func (p *program) chosen(cmd *cobra.Command, _ []string) error {
	r, names := &p.request, p.clusterNames()
	var err error
	var advice string
	switch {
	case r.Parallel < 0:
		err, advice = fmt.Errorf("--parallel must be at least 1, not %d", r.Parallel), "give a number of steps, or leave it out"
	case r.NoRollBack && cmd.Flags().Changed("rollback"):
		err, advice = errors.New("--rollback and --no-rollback cannot be combined"), "leave one of them out"
	case r.File != "":
	case r.Name == "" && len(names) > 0:
		err, advice = errors.New("no cluster is named"), "give --name NAME or -f FILE; there are: "+strings.Join(names, ", ")
	case r.Name == "":
		err, advice = errors.New("no cluster is named"), "give --name NAME (for conf/NAME/cluster.yaml) or -f FILE; create one with: kubexm config init --name NAME"
	case !slices.Contains(names, r.Name):
		err = fmt.Errorf("there is no cluster %s: neither conf/%[1]s/cluster.yaml nor a record in %s", r.Name, p.app.Workdir)
		advice = "create its configuration with: kubexm config init --name " + runner.Quote(r.Name)
		if near := nearest(r.Name, names); near != "" {
			advice = fmt.Sprintf("did you mean: %s --name %s\nelse %s", cmd.CommandPath(), runner.Quote(near), advice)
		}
	}
	return usage(fault.Advise(err, advice))
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
	if near := nearest(word, words); near != "" {
		advice = fmt.Sprintf("did you mean: %s %s", cmd.CommandPath(), near)
	}
	return usage(fault.Advise(err, advice))
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
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return unknown(fmt.Errorf("unknown command %q for %q", name, cmd.CommandPath()), cmd, name, names)
}

// nearest returns the word that s most likely was meant to be, or begins, or "".
func nearest(s string, words []string) string {
	if near := config.Nearest(s, words); near != "" {
		return near
	}
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, s) }); i >= 0 {
		return words[i]
	}
	return ""
}

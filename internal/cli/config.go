package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

func (p *program) configCommand() *cobra.Command {
	cmd := p.group("config", "Write, check and understand a configuration",
		p.configInit(), p.configValidate(), p.configShow(), p.configHistory(), p.configDiff(), p.configRecover(), p.configExplain(), p.configSchema())
	cmd.GroupID = groupConfig
	return cmd
}

func (p *program) configInit() *cobra.Command {
	cmd := &cobra.Command{
		Use: "init", Short: "Write a small configuration to start from",
		Long: `Write a small commented configuration to start from: to conf/NAME/cluster.yaml,
or to the file of -f ("-" is standard output). An existing file is not overwritten.`,
		Example: `  kubexm config init --name prod
  kubexm config init --name prod --address 10.0.0.11,10.0.0.12 --user ubuntu
  kubexm config init --name prod --masters 3 --workers 5 --vip 10.0.0.100
  kubexm config init -f - --type kubexm`,
		Args: arguments(0),
	}
	var o config.InitOptions
	kind := &choice{value: v1alpha1.TypeKubeadm, allowed: []string{v1alpha1.TypeKubeadm, v1alpha1.TypeKubexm}}
	cmd.Flags().StringSliceVar(&o.Addresses, "address", nil, "`addresses` of the machines, masters first")
	cmd.Flags().IntVar(&o.Masters, "masters", 1, "how many masters")
	cmd.Flags().IntVar(&o.Workers, "workers", 0, "how many workers (default: as many as there are further addresses)")
	cmd.Flags().StringVar(&o.VIP, "vip", "", "a virtual `address` for the API servers, which one master at a time holds")
	cmd.Flags().StringVar(&o.User, "user", "", "login `user` (default root)")
	cmd.Flags().StringVar(&o.PrivateKeyPath, "key", "", "private key `file` for the login")
	cmd.Flags().Var(kind, "type", "how the control plane and etcd run")
	complete(cmd, "type", func() []string { return kind.allowed })
	cmd.RunE = func(*cobra.Command, []string) error {
		name, file := p.request.Name, p.request.File
		if name == "" && file == "" {
			return usage(errors.New("the configuration needs a name: give --name NAME (for conf/NAME/cluster.yaml) or -f FILE"))
		}
		if o.Masters < 1 || o.Workers < 0 {
			return usage(fmt.Errorf("a cluster has one master at least, and no negative number of workers: not %d and %d", o.Masters, o.Workers))
		}
		o.Type = kind.value
		text, err := config.Init(cmp.Or(name, "mycluster"), o)
		if err != nil {
			return usage(err)
		}
		open, err := checkInit(text)
		if err != nil {
			return err
		}
		if open {
			p.notice("An address is a DNS name: fill in internalAddress, the IP address at which the other machines reach it.")
		}
		if file == "-" {
			_, err := fmt.Fprint(p.out, text)
			return err
		}
		return p.writeConfig(cmp.Or(file, filepath.Join("conf", name, "cluster.yaml")), text)
	}
	return cmd
}

// checkInit checks what options ask for. The internal address of a host that is
// given by name may stay open.
func checkInit(text string) (open bool, err error) {
	_, _, err = config.Parse("", []byte(text))
	all, _ := errors.AsType[config.Errors](err)
	wrong := slices.DeleteFunc(slices.Clone(all), func(e config.Error) bool { return strings.HasSuffix(e.Path, ".internalAddress") && e.Value == "" })
	if len(wrong) == 0 {
		return len(all) > 0, nil
	}
	return false, usage(fault.Advise(wrong, "correct the options --name, --address (each machine once), --user, --key, --vip"))
}

func (p *program) writeConfig(file, text string) error {
	err := writeFile(file, text)
	if err == nil && !p.quiet {
		fmt.Fprintf(p.err, "Wrote %s. Enter your machines in it, then:\n  kubexm create cluster%s\n", file, p.app.Which(p.request))
	}
	return err
}

// writeFile writes a configuration to a file that is not there yet.
func writeFile(file, text string) error {
	err := os.MkdirAll(filepath.Dir(file), 0o750)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if errors.Is(err, fs.ErrExist) {
		return usage(fault.Advise(fmt.Errorf("%s already exists", file), "edit it, or remove it first"))
	}
	if err == nil {
		_, err = f.WriteString(text)
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(file) // or the next one finds half of it
		}
	}
	if err != nil {
		return fault.Advise(fmt.Errorf("writing the configuration: %w", err), "work in a writable directory, or name a file in one with -f FILE")
	}
	return nil
}

func (p *program) configValidate() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "validate", Short: "Check a configuration, without contacting machines",
		Long:    "Check a configuration. All problems are reported at once, with their lines.\nNo machine is contacted. The exit code is 2 if there is a problem.",
		Example: "  kubexm config validate --name prod\n  kubexm config validate -f cluster.yaml",
	})
	format := output(cmd, "text", "json", "yaml")
	cmd.RunE = func(*cobra.Command, []string) error {
		is := validity{Valid: true, Errors: []config.Error{}, Warnings: []string{}}
		o := p.observer()
		if format.value != "text" {
			o.Notice = func(text string) { is.Warnings = append(is.Warnings, strings.TrimPrefix(text, "warning: ")) }
		}
		file, conf, err := p.app.Config(p.request, o)
		if format.value != "text" {
			if wrong, ok := errors.AsType[config.Errors](err); ok {
				is.Valid, is.Errors = false, wrong
			} else if err != nil {
				return err
			}
			return cmp.Or(p.print(format.value, is), err)
		}
		if err != nil {
			return err
		}
		if !p.quiet {
			fmt.Fprintf(p.out, "%s is valid: cluster %s, Kubernetes %s, %s\n", file, conf.Metadata.Name, conf.Spec.Kubernetes.Version, human.Count(len(conf.Spec.Hosts), "host"))
		}
		return nil
	}
	return cmd
}

// validity is what is right and wrong with a configuration.
type validity struct {
	Valid    bool           `json:"valid"`
	Errors   []config.Error `json:"errors"`
	Warnings []string       `json:"warnings"`
}

func (p *program) configShow() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "show", Short: "Print a configuration with all defaults; secrets are masked",
		Example: "  kubexm config show --name prod\n  kubexm config show -f cluster.yaml -o json",
	})
	format := output(cmd, "yaml", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		_, conf, err := p.app.Config(p.request, p.observer())
		if err != nil {
			return err
		}
		text, err := config.Show(conf)
		if err != nil {
			return err
		}
		if format.value == "json" {
			if text, err = yaml.YAMLToJSON(text); err != nil {
				return err
			}
			return p.print("json", json.RawMessage(text))
		}
		p.answered = true
		_, err = p.out.Write(text)
		return err
	}
	return cmd
}

func (p *program) configExplain() *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain [FIELD]", Short: "Explain a field: its meaning, type, default and values",
		Long: "Explain a field: its meaning, type, default and allowed values, and how a change of it is applied to a\n" +
			"running cluster.",
		Example: "  kubexm config explain\n  kubexm config explain spec.hosts\n  kubexm config explain spec.kubernetes.proxyMode\n" +
			"  kubexm config explain spec.network --recursive",
		Args: arguments(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace // a dot may follow
			if len(args) > 0 {
				return nil, directive
			}
			return config.Complete(begun), directive
		},
	}
	recursive := cmd.Flags().Bool("recursive", false, "list all fields below, a line for each")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		explain := config.Explain
		if *recursive {
			explain = config.ExplainAll
		}
		text, err := explain(strings.Join(args, ""))
		if err != nil {
			return usage(err)
		}
		_, err = fmt.Fprint(p.out, text)
		return err
	}
	return cmd
}

func (p *program) configSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the configuration, for editors",
		Example: "  kubexm config schema > cluster.schema.json\n  # first line of cluster.yaml: # yaml-language-server: $schema=cluster.schema.json",
		Args:    arguments(0),
		RunE: func(*cobra.Command, []string) error {
			_, err := p.out.Write(config.Schema())
			return err
		},
	}
}

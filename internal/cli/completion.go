package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

func (p *program) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "completion SHELL", Short: "Print a shell completion script", GroupID: groupConfig,
		Long: "Print a shell completion script for kubexm's commands, flags, clusters and runs.\nSHELL is bash, zsh, fish or powershell.",
		Example: `  source <(kubexm completion bash)
  kubexm completion bash > /etc/bash_completion.d/kubexm
  kubexm completion zsh > "${fpath[1]}/_kubexm"
  kubexm completion fish > ~/.config/fish/completions/kubexm.fish`,
		Args: arguments(1), ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(fault.Advise(errors.New("for which shell?"), "name one: kubexm completion bash|zsh|fish|powershell"))
			}
			root := cmd.Root()
			switch args[0] {
			case "zsh":
				return root.GenZshCompletion(p.out)
			case "fish":
				return root.GenFishCompletion(p.out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(p.out)
			}
			return root.GenBashCompletionV2(p.out, true)
		},
	}
}

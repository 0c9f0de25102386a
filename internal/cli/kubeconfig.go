package cli

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

func (p *program) kubeconfigCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "kubeconfig", Short: "Print the administrator's kubeconfig, or merge it into one", GroupID: groupLook,
		Long: `Print the administrator's kubeconfig of a cluster. With --merge it is added to the file that kubectl writes to: the first one of
KUBECONFIG that exists, else ~/.kube/config. Its context is named like the cluster, or by --context, and becomes the current one; a
cluster, user or context of that name that kubexm did not add for this cluster is replaced only with --force.`,
		Example: `  kubexm kubeconfig --name prod > prod.conf
  kubexm kubeconfig --name prod --merge && kubectl get nodes
  kubexm kubeconfig --name prod --merge=/home/me/.kube/config --context work`,
	})
	context := cmd.Flags().String("context", "", "`name` of the context (default: the cluster's name)")
	into := cmd.Flags().String("merge", "", "add it to the kubeconfig `file` of kubectl, or to this one")
	cmd.Flags().Lookup("merge").NoOptDefVal = kubectlFile
	force := cmd.Flags().Bool("force", false, "replace a cluster, user or context of the same name")
	_ = cmd.MarkFlagFilename("merge")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("merge") && *into == "" {
			return usage(fault.Advise(errors.New("--merge= names no file"), "name one, or leave out the =: --merge"))
		}
		name, text, err := p.app.Kubeconfig(p.request, p.observer())
		if err != nil {
			return err
		}
		name = cmp.Or(*context, name)
		if text, err = pki.RenameKubeconfig(text, name); err != nil {
			return err
		}
		if *into == "" {
			_, err = p.out.Write(text)
			return err
		}
		file := *into
		if file == kubectlFile {
			file = pki.KubectlFile()
		}
		if err := pki.MergeKubeconfig(text, file, *force); err != nil {
			return err
		}
		if !p.quiet {
			fmt.Fprintf(p.err, "Added context %s to %s, as the current one.\n", name, file)
		}
		return nil
	}
	return cmd
}

// kubectlFile stands for the file that kubectl uses.
const kubectlFile = "kubectl's"

package pki

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// KubectlFile is the kubeconfig that kubectl writes to: the first one of KUBECONFIG that exists, else its last one or ~/.kube/config.
func KubectlFile() string { return clientcmd.NewDefaultPathOptions().GetDefaultFilename() }

// RenameKubeconfig names the current context of a kubeconfig, its cluster and its user after name, and leaves out all else.
func RenameKubeconfig(text []byte, name string) ([]byte, error) {
	conf, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	was := conf.Contexts[conf.CurrentContext]
	if was == nil {
		return nil, errors.New("reading the kubeconfig: it has no current context")
	}
	is := was.DeepCopy()
	is.Cluster, is.AuthInfo = name, name+"-admin"
	out := api.NewConfig()
	out.Clusters[is.Cluster], out.AuthInfos[is.AuthInfo], out.Contexts[name] = conf.Clusters[was.Cluster], conf.AuthInfos[was.AuthInfo], is
	out.CurrentContext = name
	return clientcmd.Write(*out)
}

// MergeKubeconfig adds a renamed kubeconfig to a file, which need not exist yet, and makes its context the current one. What has its names there
// is replaced where it is of the same authority, or with force.
func MergeKubeconfig(text []byte, file string, force bool) error {
	conf, err := clientcmd.Load(text)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real // the link stays one
	}
	lock, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_EXCL, 0) // as kubectl locks it
	switch {
	case errors.Is(err, os.ErrExist):
		return fault.Advise(fmt.Errorf("%s is being changed by somebody else", file), "try again; if nobody is, remove "+file+".lock")
	case err == nil:
		defer func() { lock.Close(); os.Remove(lock.Name()) }()
	}
	all, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, os.ErrNotExist) {
		all, err = api.NewConfig(), os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err != nil {
		return fault.Advise(fmt.Errorf("reading %s: %w", file, err), "fix that file, or name another one: --merge=FILE")
	}
	name := conf.CurrentContext
	added := conf.Contexts[name]
	cluster, context, user := all.Clusters[added.Cluster], all.Contexts[name], all.AuthInfos[added.AuthInfo]
	own := cluster != nil && slices.Equal(cluster.CertificateAuthorityData, conf.Clusters[added.Cluster].CertificateAuthorityData) &&
		(context == nil || context.Cluster == added.Cluster && context.AuthInfo == added.AuthInfo)
	if (cluster != nil || context != nil || user != nil) && !own && !force {
		return fault.Advise(fmt.Errorf("%s has another cluster, user or context named %s", file, name), "choose another name with --context, or replace it with --force")
	}
	all.Clusters[added.Cluster], all.AuthInfos[added.AuthInfo], all.Contexts[name] = conf.Clusters[added.Cluster], conf.AuthInfos[added.AuthInfo], added
	all.CurrentContext = name
	if text, err = clientcmd.Write(*all); err == nil {
		err = durable.Write(file, text)
	}
	if err != nil {
		return fault.Advise(fmt.Errorf("writing %s: %w", file, err), "see that you may write it, or name another one: --merge=FILE")
	}
	return nil
}

package pki

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubexm/kubexm/pkg/util/secret"
)

// Kubeconfig returns the file with which user, whose certificate is pair, reaches
// the API server at server ("https://host:port"), trusted by caPEM. cluster names
// it for people; kubeadm's is "kubernetes". The same input gives the same bytes.
func Kubeconfig(cluster, server string, caPEM []byte, user string, pair *Pair) (secret.Secret, error) {
	context := user + "@" + cluster
	config := api.NewConfig()
	config.Clusters[cluster] = &api.Cluster{Server: server, CertificateAuthorityData: caPEM}
	config.AuthInfos[user] = &api.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: []byte(pair.Key.Reveal())}
	config.Contexts[context] = &api.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = context
	data, err := clientcmd.Write(*config)
	if err != nil {
		return secret.Secret{}, fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
	}
	return secret.New(string(data)), nil
}

// ServerOf returns the API server that a kubeconfig leads to, and the authority (PEM) by which it is trusted, if any is in it.
func ServerOf(kubeconfig []byte) (server string, caPEM []byte, err error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return "", nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	for _, c := range config.Clusters {
		return c.Server, c.CertificateAuthorityData, nil
	}
	return "", nil, errors.New("reading a kubeconfig: it names no API server")
}

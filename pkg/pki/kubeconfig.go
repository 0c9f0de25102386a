package pki

import (
	"bytes"
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

// ClusterInfo is a kubeconfig that only says where a cluster is and by which authority it is trusted, as kubeadm writes it into the
// ConfigMap kube-public/cluster-info.
func ClusterInfo(server string, caPEM []byte) (string, error) {
	config := api.NewConfig()
	config.Clusters[""] = &api.Cluster{Server: server, CertificateAuthorityData: caPEM}
	data, err := clientcmd.Write(*config)
	if err != nil {
		err = fmt.Errorf("writing cluster-info: %w", err)
	}
	return string(data), err
}

// LoginOf returns the API server that the current context of a kubeconfig leads to, the authority (PEM) by which it is trusted, and the certificate
// that logs in there. All must be in the file itself, as they are in those of kubeadm and kubexm.
func LoginOf(kubeconfig []byte) (server string, caPEM []byte, user *Pair, err error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return "", nil, nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	var at *api.Cluster
	var who *api.AuthInfo
	if current := config.Contexts[config.CurrentContext]; current != nil {
		at, who = config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	}
	if at == nil || who == nil || len(at.CertificateAuthorityData) == 0 || len(who.ClientCertificateData) == 0 {
		return "", nil, nil, errors.New("reading a kubeconfig: it holds no server with its authority, or no certificate that logs in")
	}
	user, err = parsePair(who.ClientCertificateData, who.ClientKeyData)
	if err != nil {
		err = fmt.Errorf("reading a kubeconfig: %w", err)
	}
	return at.Server, at.CertificateAuthorityData, user, err
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

// Trusting returns a kubeconfig that trusts other authorities (PEM); nil: it trusts those already.
func Trusting(kubeconfig, caPEM []byte) ([]byte, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, err
	}
	changed := false
	for _, c := range config.Clusters {
		if !bytes.Equal(bytes.TrimSpace(c.CertificateAuthorityData), bytes.TrimSpace(caPEM)) {
			c.CertificateAuthorityData, changed = caPEM, true
		}
	}
	if !changed {
		return nil, nil
	}
	return clientcmd.Write(*config)
}

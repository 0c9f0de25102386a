package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

const externalEtcd = "spec.etcd.external"

// EtcdClient is with what API servers call an etcd that kubexm does not run.
type EtcdClient struct {
	CA, Cert []byte // PEM
	Key      secret.Secret
}

// ReadEtcdClient reads the files that the configuration names.
func ReadEtcdClient(x *v1alpha1.ExternalEtcd) (EtcdClient, error) {
	ca, err1 := os.ReadFile(x.CAFile)
	cert, err2 := os.ReadFile(x.CertFile)
	key, err3 := os.ReadFile(x.KeyFile)
	err := errors.Join(err1, err2, err3)
	if err != nil {
		err = fault.Advise(fmt.Errorf("reading the files of %s: %w", externalEtcd, err), "put the file there, or correct the path in "+externalEtcd)
	}
	return EtcdClient{CA: ca, Cert: cert, Key: secret.New(string(key))}, err
}

// TLS returns the client for a connection of this process. The Error of files that do not go
// together names the field; that the certificate, or its authority, is not valid at this time is told apart.
func (c EtcdClient) TLS() (conf *tls.Config, expired, err error) {
	wrong := func(field, msg string, args ...any) (*tls.Config, error, error) {
		return nil, nil, Error{Path: externalEtcd + "." + field, Msg: fmt.Sprintf(msg, args...)}
	}
	roots, chain := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.CA) {
		return wrong("caFile", "holds no certificate (PEM)")
	}
	if first, _ := pem.Decode(c.Cert); first == nil || first.Type != "CERTIFICATE" {
		return wrong("certFile", "does not begin with a certificate (PEM)")
	}
	pair, err := tls.X509KeyPair(c.Cert, []byte(c.Key.Reveal()))
	if err != nil {
		return wrong("keyFile", "is not the key of certFile, or has a passphrase: %v", err)
	}
	// Its authority may be another than that of the servers; whether they accept it is found out by asking them.
	chain.AddCert(pair.Leaf)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: chain, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		expired, err = err, nil
	}
	if err != nil {
		return wrong("certFile", "is not a client's certificate: %v", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}, expired, nil
}

func (k *checker) checkEtcd() {
	x := k.Etcd.External
	if k.Etcd.Type == v1alpha1.TypeExternal {
		const why = "not with etcd.type external: kubexm does not run that etcd"
		for field, value := range map[string]string{"version": k.Etcd.Version, "dataDir": k.Etcd.DataDir} {
			if value != "" {
				k.fail("spec.etcd."+field, value, why)
			}
		}
		if len(k.Etcd.ExtraArgs) > 0 {
			k.fail("spec.etcd.extraArgs", "", why)
		}
	}
	k.checkTimers()
	if x == nil {
		return
	}
	seen := map[string]bool{}
	for i, endpoint := range x.Endpoints {
		at := fmt.Sprintf("%s.endpoints[%d]", externalEtcd, i)
		u, err := url.Parse(endpoint)
		switch {
		case err != nil || u.User != nil:
			k.fail(at, "", "must be like https://192.0.2.21:2379")
		case u.Scheme != "https" || u.Port() == "" || u.Hostname() == "" || *u != (url.URL{Scheme: u.Scheme, Host: u.Host}):
			k.fail(at, endpoint, "must be like https://192.0.2.21:2379")
		case seen[endpoint]:
			k.fail(at, endpoint, "given twice")
		}
		seen[endpoint] = true
	}
	whole := true
	for _, f := range []struct{ name, file string }{{"caFile", x.CAFile}, {"certFile", x.CertFile}, {"keyFile", x.KeyFile}} {
		whole = f.file != "" && k.readable(externalEtcd+"."+f.name, f.file) && whole
	}
	if whole {
		k.checkEtcdClient(x)
	}
}

// checkEtcdClient checks whether the files go together. A certificate that has expired must hinder neither
// a look at a cluster nor its deletion: the preflight refuses to make one with it.
func (k *checker) checkEtcdClient(x *v1alpha1.ExternalEtcd) {
	client, err := ReadEtcdClient(x)
	if err != nil {
		k.fail(externalEtcd, "", "%v", err)
		return
	}
	_, expired, err := client.TLS()
	if broken := (Error{}); errors.As(err, &broken) {
		broken.Value = map[string]string{"caFile": x.CAFile, "certFile": x.CertFile, "keyFile": x.KeyFile}[broken.Path[len(externalEtcd)+1:]]
		k.errs = append(k.errs, broken)
		return
	}
	if expired != nil {
		k.warn(externalEtcd+".certFile", x.CertFile, "%v", expired)
	}
	if info, err := os.Stat(x.KeyFile); err == nil && info.Mode()&0o077 != 0 {
		k.warn(externalEtcd+".keyFile", x.KeyFile, "others can read this secret; chmod 600 it")
	}
}

package observe

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Certificates reads all certificates of a cluster: those in files of its hosts and of the control machine, also in kubeconfigs, and those that servers
// present. What could not be read is a problem.
func Certificates(ctx context.Context, c *cluster.Cluster, hosts map[string]*runner.Runner, unreached map[string]error) ([]cluster.Certificate, []string) {
	l := &look{Cluster: c, hosts: hosts, unreached: unreached}
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, h := range c.All() {
		if err := unreached[h]; err != nil {
			l.problem("host %s: %v", h, err)
		}
		if r := hosts[h]; r != nil {
			group.Go(func() error {
				l.certificates(ctx, r)
				for _, s := range l.servers(h) {
					l.presented(ctx, r, s.program, s.address)
				}
				return nil
			})
		}
	}
	group.Go(func() error { l.ownCertificates(); return nil })
	_ = group.Wait() // what fails is a problem
	is := l.sorted()
	return is.Certificates, is.Problems
}

// certificateFiles prints certificates of a host with the files that have them: of a key, nothing.
const certificateFiles = `for f in /etc/kubernetes/pki/*.crt /etc/kubernetes/pki/etcd/*.crt /etc/ssl/etcd/ssl/*.pem /etc/registry/*.crt /var/lib/kubelet/pki/*.crt /var/lib/kubelet/pki/*-current.pem; do
if [ ! -f "$f" ]; then continue; fi
echo "# $f"; on=
while read -r line; do
case $line in "-----BEGIN CERTIFICATE-----") on=yes ;; -----BEGIN*) on= ;; esac
if [ -n "$on" ]; then echo "$line"; fi
done <"$f"
done
for f in /etc/kubernetes/*.conf /var/lib/kube-proxy/*.conf /root/.kube/config; do
if [ ! -f "$f" ]; then continue; fi
echo "# $f"
while read -r name value; do
case $name in certificate-authority-data:|client-certificate-data:) echo "$name $value" ;; esac
done <"$f"
done`

// certificates reads those in files of a host.
func (l *look) certificates(ctx context.Context, r *runner.Runner) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	out, err := r.Sh(ctx, certificateFiles)
	if err != nil {
		l.problem("reading the certificates of %s: %v", r.Host, err)
		return
	}
	for file := range strings.SplitSeq("\n"+out, "\n# ") {
		path, text, _ := strings.Cut(file, "\n")
		l.found(r.Host, human.Line(path), []byte(text))
	}
}

// due tells of the first certificate that is to be replaced now.
func (l *look) due() {
	var first *cluster.Certificate
	for i, c := range l.is.Certificates {
		if time.Until(c.Expires) < c.Due() && (first == nil || c.Expires.Before(first.Expires)) {
			first = &l.is.Certificates[i]
		}
	}
	if first != nil {
		l.problem("%s on %s expires %s", first.Path, first.Host, first.Expires.Format(time.DateOnly))
	}
}

// ownCertificates reads those of the control machine: what the authorities there have signed, and the administrator's.
func (l *look) ownCertificates() {
	var files []string
	err := filepath.WalkDir(l.Certs.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".crt") && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	for _, path := range append(files, filepath.Join(l.Dir, cluster.AdminConf)) {
		text, failed := os.ReadFile(path)
		if !errors.Is(failed, fs.ErrNotExist) { // the administrator's is made last
			err = cmp.Or(err, failed)
		}
		l.found(plan.Control, path, text)
	}
	if err != nil {
		l.problem("reading the certificates of the control machine: %v", err)
	}
}

// embedded matches the certificates in a kubeconfig.
var embedded = regexp.MustCompile(`(?m)^ *(?:certificate-authority|client-certificate)-data: *"?([^" \r\n]+)`)

// found adds the certificates of a file: PEM, or a kubeconfig.
func (l *look) found(host, path string, text []byte) {
	for _, m := range embedded.FindAllSubmatch(text, -1) {
		if decoded, err := base64.StdEncoding.DecodeString(string(m[1])); err == nil {
			l.found(host, path, decoded)
		}
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			l.keep(host, cert, func(c *cluster.Certificate) {
				switch {
				case c.Path == "":
					c.Path = path
				case c.Path != path && !slices.Contains(c.Also, path):
					c.Also = append(c.Also, path)
				}
			})
		}
	}
}

// keep adds a certificate, or what else is known of it.
func (l *look) keep(host string, cert *x509.Certificate, also func(*cluster.Certificate)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.is.Certificates
	i := slices.IndexFunc(all, func(c cluster.Certificate) bool { return c.Host == host && bytes.Equal(c.Raw, cert.Raw) })
	if i < 0 {
		is := cluster.Certificate{
			Host: host, Subject: human.Line(nameOf(cert.Subject.CommonName, cert.Subject.Organization)), Signer: human.Line(cert.Issuer.CommonName), Authority: cert.IsCA,
			Begins: cert.NotBefore, Expires: cert.NotAfter, Raw: cert.Raw,
		}
		for _, name := range cert.DNSNames {
			is.Names = append(is.Names, human.Line(name))
		}
		for _, ip := range cert.IPAddresses {
			is.Names = append(is.Names, ip.String())
		}
		all, i = append(all, is), len(all)
	}
	also(&all[i])
	l.is.Certificates = all
}

// nameOf is a user with the groups, as Kubernetes sees it.
func nameOf(user string, groups []string) string {
	if len(groups) == 0 {
		return user
	}
	return user + " (" + strings.Join(groups, ", ") + ")"
}

// server is a program that presents a certificate of the cluster's authorities.
type server struct{ program, address string }

func (l *look) servers(host string) (all []server) {
	at := func(program string, port int) {
		all = append(all, server{program, net.JoinHostPort(l.IP(host), strconv.Itoa(port))})
	}
	is := l.Host(host).Is
	if is(v1alpha1.RoleMaster) {
		at("kube-apiserver", l.APIPort())
	}
	if is(v1alpha1.RoleEtcd) && !l.ExternalEtcd() {
		at("etcd", 2379)
		at("etcd", 2380)
	}
	if l.IsNode(host) {
		at("kubelet", 10250)
	}
	if is(v1alpha1.RoleRegistry) {
		at("registry", l.RegistryPort())
	}
	return all
}

// presented asks a server for its certificate. One that wants a certificate of its client shows its own before.
func (l *look) presented(ctx context.Context, r *runner.Runner, program, address string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := r.Dial(ctx, "tcp", address)
	if err == nil {
		defer conn.Close()
		t := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is looked at, not trusted; the way there is SSH
		err = t.HandshakeContext(ctx)
		if certs := t.ConnectionState().PeerCertificates; len(certs) > 0 {
			l.keep(r.Host, certs[0], func(c *cluster.Certificate) { c.Servers = append(c.Servers, fmt.Sprintf("%s %s", program, address)) })
			return
		}
	}
	l.problem("the certificate of %s on %s: %v", program, r.Host, err)
}

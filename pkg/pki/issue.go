package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

const (
	caValidity       = 10 * 365 * 24 * time.Hour // as kubeadm's
	operatorValidity = 24 * time.Hour            // longer than one run
	backdate         = time.Hour                 // for nodes whose clock is behind
)

// newKey makes an ECDSA P-256 key.
func newKey() (crypto.Signer, []byte, error) {
	return encoded(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
}

// encoded adds a new key's PEM form.
func encoded[K crypto.Signer](key K, err error) (crypto.Signer, []byte, error) {
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key: %w", err)
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	return key, data, err
}

func (s *Store) template(cn string, org []string, validity time.Duration) *x509.Certificate {
	now := s.now().UTC()
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: cn, Organization: org},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true,
	}
}

// leafTemplate turns spec into what is to be signed. It ends no later than its issuer.
func (s *Store) leafTemplate(spec Spec, issuer *Pair, validity time.Duration) (*x509.Certificate, error) {
	t := s.template(spec.CN, spec.Org, validity)
	t.ExtKeyUsage = spec.Usages
	if t.NotAfter.After(issuer.X509.NotAfter) {
		t.NotAfter = issuer.X509.NotAfter
	}
	sans := slices.Clone(spec.SANs)
	slices.Sort(sans)
	for _, name := range slices.Compact(sans) {
		if ip, err := netip.ParseAddr(name); err == nil {
			t.IPAddresses = append(t.IPAddresses, ip.Unmap().AsSlice())
			continue
		}
		if len(validation.IsDNS1123Subdomain(name)) > 0 && len(validation.IsWildcardDNS1123Subdomain(name)) > 0 {
			return nil, fault.Advise(fmt.Errorf("certificate %s: name %q is neither an IP address nor a DNS name", spec.Name, name),
				"correct the host name or the entry of certSANs")
		}
		t.DNSNames = append(t.DNSNames, name)
	}
	return t, nil
}

// names lists what a certificate is good for, in an order of its own.
func names(c *x509.Certificate) []string {
	all := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// SelfSigned makes a certificate for what serves at an address during one run, whose key is nowhere else.
func SelfSigned(ip net.IP) (*Pair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubexm"}, IPAddresses: []net.IP{ip}, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(operatorValidity),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}, nil, key, keyPEM)
}

// sign makes a certificate for key from the template; issuer nil: self-signed.
func sign(template *x509.Certificate, issuer *Pair, key crypto.Signer, keyPEM []byte) (*Pair, error) {
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.X509, issuer.signer
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	certPEM, err := certutil.EncodeCertificates(cert)
	if err != nil {
		return nil, err
	}
	return &Pair{Cert: certPEM, Key: secret.New(string(keyPEM)), X509: cert, signer: key, issuer: issuer}, nil
}

// Expires is when the last of some certificates (PEM) does: of authorities one is enough.
func Expires(certs []byte) (last time.Time, err error) {
	all, err := certutil.ParseCertsPEM(certs)
	for _, c := range all {
		if c.NotAfter.After(last) {
			last = c.NotAfter
		}
	}
	return last, err
}

// SignedBy reports whether an authority has signed the first of some certificates (PEM, among which there may be a key).
func SignedBy(certs, authority []byte) (bool, error) {
	signers, err := certutil.ParseCertsPEM(authority)
	if err != nil {
		return false, err
	}
	shown, err := certutil.ParseCertsPEM(certs)
	if err != nil {
		return false, err
	}
	return shown[0].CheckSignatureFrom(signers[0]) == nil, nil
}

// Spec says what a leaf certificate is for.
type Spec struct {
	CA     CA
	Name   string   // of its files in the store, without ".crt"
	Node   string   // the host that has it; empty: several do
	CN     string   // the user, for a client certificate
	Org    []string // the groups, for a client certificate
	SANs   []string // DNS names and IP addresses, in any order
	Usages []x509.ExtKeyUsage
}

// String names the certificate: "kubernetes/apiserver-node1".
func (s Spec) String() string { return strings.Join([]string{string(s.CA), s.Name}, "/") }

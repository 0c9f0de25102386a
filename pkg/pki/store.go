package pki

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// CA names a certificate authority of a cluster. It is also the directory that
// holds the authority and what it signed.
type CA string

// The authorities of a cluster. The front proxy has its own, or every client
// certificate of the cluster could pose as the aggregator.
const (
	Kubernetes CA = "kubernetes"
	Etcd       CA = "etcd"
	FrontProxy CA = "front-proxy"
	Registry   CA = "registry" // of the private image registry
)

// commonName is the subject kubeadm gives the authority.
func (ca CA) commonName() string {
	if ca == Kubernetes {
		return "kubernetes"
	}
	return string(ca) + "-ca"
}

// Pair is a certificate and its private key.
type Pair struct {
	Cert []byte            // PEM
	Key  secret.Secret     // PEM: "EC PRIVATE KEY", or what a file put in place by hand holds
	X509 *x509.Certificate // the first certificate of Cert

	signer crypto.Signer
	issuer *Pair // known to have signed it; nil: it is not known who has
}

// Hash returns the pin of the certificate's public key in the form kubeadm's
// discovery takes as caCertHashes: "sha256:" and the hexadecimal sum of the
// SubjectPublicKeyInfo (RFC 7469); empty: the pair is, as its making failed.
func (p *Pair) Hash() string {
	if p.X509 == nil {
		return ""
	}
	sum := sha256.Sum256(p.X509.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// TLS returns the pair for a connection of this process.
func (p *Pair) TLS() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.X509.Raw}, PrivateKey: p.signer, Leaf: p.X509}
}

// Store keeps authorities and leaf certificates in a directory, one directory
// per authority below it: <ca>/ca.crt, <ca>/ca.key, <ca>/trust.crt, <ca>/<name>.crt,
// <ca>/<name>.key, and what a rotation needs. Files are 0600, directories 0700, and each file is replaced
// whole. What is made is chosen in memory, answered from there, and written by Flush:
// who only plans leaves nothing behind. It is safe for concurrent use within one process.
type Store struct {
	Dir      string
	Validity time.Duration    // of new leaf certificates; 0: one year; never beyond their authority's
	Now      func() time.Time // nil: time.Now
	Existing bool             // nothing is made: what is not there is an error
	Renew    Renewal          // what is made anew

	mu     sync.Mutex        // guards what follows
	staged map[string]staged // by path
	order  []string          // of paths, in which they are to be written
	loaded map[string]*Pair  // by path: what was parsed, which holds as long as the files say the same
	own    map[string]*Pair  // by name: for this process's own calls
}

// CA returns the signer of an authority. It is made when it is first asked for and kept from
// then on: files that do not fit together are an error, never a new authority.
func (s *Store) CA(ca CA) (*Pair, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.authority(ca)
}

// Trust returns the certificates (PEM) that are trusted as an authority: the signer's, that of its predecessor before or of its successor after it while it is rotated,
// and those of the file <ca>/trust.crt, where there is one. What is trusted stays the same, byte by byte, when a successor takes over.
func (s *Store) Trust(ca CA) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	signer, err := s.authority(ca)
	if err != nil {
		return nil, err
	}
	var all []*x509.Certificate
	for _, name := range []string{formerName, "", nextName, "trust"} {
		more := []*x509.Certificate{signer.X509}
		if name != "" {
			path := s.path(ca, name+".crt")
			text, err := s.optional(path)
			if err != nil {
				return nil, err
			}
			if text == nil {
				continue
			}
			if more, err = certutil.ParseCertsPEM(text); err != nil {
				return nil, fault.Advise(fmt.Errorf("loading %s: %w", path, err), "put the file back from a backup")
			}
		}
		for _, c := range more {
			if !slices.ContainsFunc(all, c.Equal) {
				all = append(all, c)
			}
		}
	}
	if len(all) == 1 {
		return signer.Cert, nil
	}
	return certutil.EncodeCertificates(all...)
}

func (s *Store) authority(ca CA) (*Pair, error) {
	pair, err := s.existing(ca)
	if errors.Is(err, fs.ErrNotExist) && !s.orphans(ca) {
		return s.newAuthority(ca)
	}
	return pair, err
}

// lost reports whether neither half of the authority is there that every cluster with an ID has.
func (s *Store) lost(ca CA) bool {
	_, err := os.Stat(s.path("", idFile))
	return ca == Kubernetes && err == nil && !s.exists(s.path(ca, "ca.key"))
}

// existing returns an authority that was made before.
func (s *Store) existing(ca CA) (*Pair, error) {
	pair, err := s.load(ca, caName)
	if err == nil && !pair.owns() {
		if next := s.cutSwap(ca, pair); next != nil {
			pair = next
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.lost(ca):
		err = errors.New("it is lost: the cluster exists, but neither ca.crt nor ca.key is there")
	case err != nil:
	case !pair.X509.IsCA:
		err = errors.New("the certificate is not a CA certificate")
	case !pair.owns():
		err = errors.New("ca.key is not the key of ca.crt")
	case s.now().After(pair.X509.NotAfter):
		err = fmt.Errorf("it expired on %s", pair.X509.NotAfter.Format(time.RFC3339))
	}
	if err != nil {
		return nil, fault.Advise(fmt.Errorf("loading the %s authority from %s: %w", ca, s.path(ca, ""), err),
			"put ca.crt and ca.key back from a backup: every certificate of a running cluster depends on them. Without a cluster, remove the directory "+s.Dir)
	}
	return pair, nil
}

// orphans reports whether there are certificates but neither half of the authority
// that signed them: a new one would disown a running cluster.
func (s *Store) orphans(ca CA) bool {
	if s.exists(s.path(ca, "ca.key")) {
		return false
	}
	certs, _ := fs.Glob(os.DirFS(s.path(ca, "")), "*.crt") // the only error is a bad pattern
	return len(certs) > 0
}

// newAuthority makes an authority from the key that is there, or a new one. The
// key is written first: where a run was cut between the two files, or ca.crt was
// lost, the same key gives an authority that what it signed still verifies against.
func (s *Store) newAuthority(ca CA) (*Pair, error) {
	key, keyPEM, err := s.key(ca, caName, newKey)
	if err != nil {
		return nil, err
	}
	pair, err := s.selfSigned(ca, key, keyPEM)
	if err != nil {
		return nil, err
	}
	return pair, s.write(s.path(ca, "ca.crt"), pair.Cert, "")
}

func (s *Store) selfSigned(ca CA, key crypto.Signer, keyPEM []byte) (*Pair, error) {
	pair, err := sign(s.authorityTemplate(ca), nil, key, keyPEM)
	if err != nil {
		err = fmt.Errorf("making the %s authority: %w", ca, err)
	}
	return pair, err
}

func (s *Store) authorityTemplate(ca CA) *x509.Certificate {
	template := s.template(ca.commonName(), nil, caValidity)
	template.IsCA = true
	template.KeyUsage |= x509.KeyUsageCertSign
	template.DNSNames = []string{ca.commonName()}
	return template
}

// Leaf returns the certificate that spec describes. The stored one is returned as
// long as it fits: signed by the present signer, same subject, names and
// usages, its own key, and enough life left (30 days, or a third of Validity
// where that is less). Else a new one is made.
func (s *Store) Leaf(spec Spec) (*Pair, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	issuer, err := s.authority(spec.CA)
	if err != nil {
		return nil, err
	}
	want, err := s.leafTemplate(spec, issuer, s.validity())
	if err != nil {
		return nil, err
	}
	have, err := s.load(spec.CA, spec.Name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Advise(fmt.Errorf("loading certificate %s: %w", s.path(spec.CA, spec.Name), err),
			"remove the file; a new certificate is made on the next run")
	}
	why := ""
	if err == nil {
		if why = s.unfit(have, want, issuer); why == "" && s.Renew.covers(spec, have.X509, issuer.X509) {
			why = "renewed"
		}
		if why == "" {
			have.issuer = issuer
			return s.chained(spec, have)
		}
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	pair, err := sign(want, issuer, key, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("making certificate %s: %w", s.path(spec.CA, spec.Name), err)
	}
	err = cmp.Or(s.write(s.path(spec.CA, spec.Name+".key"), keyPEM, why), s.write(s.path(spec.CA, spec.Name+".crt"), pair.Cert, why))
	if err != nil {
		return nil, err
	}
	return s.chained(spec, pair)
}

// unfit says why have does not do what the template want asks for; empty: it does.
func (s *Store) unfit(have *Pair, want *x509.Certificate, issuer *Pair) string {
	got := have.X509
	least := min(30*24*time.Hour, s.validity()/3)
	switch {
	case !have.owns():
		return "its key does not match"
	case have.issuer != issuer && got.CheckSignatureFrom(issuer.X509) != nil:
		return "signed by another authority"
	case got.NotAfter.Sub(s.now()) <= least && !got.NotAfter.Equal(issuer.X509.NotAfter):
		return "expires on " + got.NotAfter.Format(time.DateOnly)
	case got.Subject.String() != want.Subject.String():
		return "subject changed"
	case !slices.Equal(names(got), names(want)):
		return "names changed"
	case !slices.Equal(got.ExtKeyUsage, want.ExtKeyUsage):
		return "usages changed"
	}
	return ""
}

// Operator returns a new client certificate for kubexm's own calls to the API
// server: group system:masters, which no role binding can lock out, one day, and
// never on disk. The authority must exist.
func (s *Store) Operator() (*Pair, error) { return s.operates(operator()) }

// EtcdOperator is Operator for kubexm's own calls to etcd.
func (s *Store) EtcdOperator() (*Pair, error) { return s.operates(EtcdAdmin("kubexm")) }

// operates returns a certificate that was made before, as long as its authority is the same and half of its life is left.
func (s *Store) operates(spec Spec) (*Pair, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	issuer, err := s.existing(spec.CA)
	if err != nil {
		return nil, err
	}
	at := s.path(spec.CA, spec.Name)
	if p := s.own[at]; p != nil && p.issuer == issuer && p.X509.NotAfter.Sub(s.now()) > operatorValidity/2 {
		return p, nil
	}
	p, err := s.fresh(spec, issuer, operatorValidity)
	if s.own == nil {
		s.own = map[string]*Pair{}
	}
	if err == nil {
		s.own[at] = p
	}
	return p, err
}

// Joining returns a new client certificate for the kubelet of a node that joins. Its
// key is on that node alone, and the kubelet renews both by itself, within a year as
// those that the controller manager signs. The authority must exist.
func (s *Store) Joining(node string) (*Pair, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	issuer, err := s.existing(Kubernetes)
	if err != nil {
		return nil, err
	}
	return s.fresh(Kubelet(node), issuer, min(s.validity(), 365*24*time.Hour))
}

func (s *Store) fresh(spec Spec, issuer *Pair, validity time.Duration) (*Pair, error) {
	want, err := s.leafTemplate(spec, issuer, validity)
	if err != nil {
		return nil, err
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	return sign(want, issuer, key, keyPEM)
}

// ServiceAccountKey returns the key that signs service-account tokens and the public
// halves (PEM) of all whose tokens are valid, RSA-2048 as kubeadm makes it. It is made when it is first
// asked for, and kept as kubernetes/sa.key.
func (s *Store) ServiceAccountKey() (private secret.Secret, public []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, keyPEM, err := s.key(Kubernetes, "sa", newServiceAccountKey)
	if err != nil {
		return secret.Secret{}, nil, err
	}
	for _, name := range []string{"sa-former", "sa", "sa-next"} {
		text, err := s.optional(s.path(Kubernetes, name+".key"))
		if err != nil {
			return secret.Secret{}, nil, err
		}
		if text == nil {
			continue
		}
		key, err := parseKey(text)
		if err != nil {
			return secret.Secret{}, nil, fault.Advise(fmt.Errorf("loading key %s: %w", s.path(Kubernetes, name+".key"), err), "put the file back from a backup")
		}
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			return secret.Secret{}, nil, fmt.Errorf("encoding the service-account public key: %w", err)
		}
		if one := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}); !bytes.Contains(public, one) {
			public = append(public, one...)
		}
	}
	return secret.New(string(keyPEM)), public, nil
}

func newServiceAccountKey() (crypto.Signer, []byte, error) {
	return encoded(rsa.GenerateKey(rand.Reader, 2048))
}

// key returns the key of that name, or makes one.
func (s *Store) key(ca CA, name string, generate func() (crypto.Signer, []byte, error)) (crypto.Signer, []byte, error) {
	path := s.path(ca, name+".key")
	data, err := s.read(path)
	if err == nil {
		key, err := parseKey(data)
		if err != nil {
			return nil, nil, fault.Advise(fmt.Errorf("loading key %s: %w", path, err),
				"put the file back from a backup; what it signed is invalid without it")
		}
		return key, data, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	key, data, err := generate()
	if err != nil {
		return nil, nil, err
	}
	return key, data, s.write(path, data, "")
}

// load reads <name>.crt and <name>.key. The error is fs.ErrNotExist only where
// there is no certificate.
func (s *Store) load(ca CA, name string) (*Pair, error) {
	cert, err := s.read(s.path(ca, name+".crt"))
	if err != nil {
		return nil, err
	}
	keyPEM, err := s.read(s.path(ca, name+".key"))
	if err != nil {
		return nil, fmt.Errorf("%s.key: %v", name, err) //nolint:errorlint // a missing key is not a missing pair
	}
	if p := s.loaded[s.path(ca, name)]; p != nil && bytes.Equal(p.Cert, cert) && p.Key.Reveal() == string(keyPEM) {
		return p, nil
	}
	p, err := parsePair(cert, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s%w", name, err)
	}
	if s.loaded == nil {
		s.loaded = map[string]*Pair{}
	}
	s.loaded[s.path(ca, name)] = p
	return p, nil
}

// parsePair reads a certificate and its key. Its errors begin with which of the two files, of one name, they are about.
func parsePair(cert, keyPEM []byte) (*Pair, error) {
	certs, err := certutil.ParseCertsPEM(cert)
	if err != nil {
		return nil, fmt.Errorf(".crt: %w", err)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf(".key: %w", err)
	}
	return &Pair{Cert: cert, Key: secret.New(string(keyPEM)), X509: certs[0], signer: key}, nil
}

// owns reports whether the key is that of the certificate.
func (p *Pair) owns() bool {
	public, ok := p.signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(p.X509.PublicKey)
}

func parseKey(data []byte) (crypto.Signer, error) {
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a %T cannot sign", key)
	}
	return signer, nil
}

func (s *Store) path(ca CA, file string) string { return filepath.Join(s.Dir, string(ca), file) }

func (s *Store) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func (s *Store) validity() time.Duration {
	if s.Validity == 0 {
		return 365 * 24 * time.Hour
	}
	return s.Validity
}

package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// shortest is how long an authority of the user's must at least be good for: what it signs ends with it.
const shortest = 90 * 24 * time.Hour

// GivenAuthority reads an authority of the user's, which may be an intermediate of another one: the first certificate of a file (PEM), and its key. It alone is trusted, and not
// what has signed it: else all that has a certificate of that could call the API.
func GivenAuthority(cert, key []byte, now time.Time) (*Pair, error) {
	p, err := parsePair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("the authority's files: %w", err)
	}
	c := p.X509
	switch public := c.PublicKey.(type) {
	case *rsa.PublicKey:
		if public.N.BitLen() < 2048 {
			err = fmt.Errorf("its key has %d bits, and 2048 are needed", public.N.BitLen())
		}
	case *ecdsa.PublicKey:
	default:
		err = fmt.Errorf("its key is a %T: Kubernetes needs RSA or ECDSA", public)
	}
	constrained := c.PermittedDNSDomainsCritical || len(c.PermittedDNSDomains)+len(c.ExcludedDNSDomains)+len(c.PermittedIPRanges)+len(c.ExcludedIPRanges)+
		len(c.PermittedURIDomains)+len(c.ExcludedURIDomains)+len(c.PermittedEmailAddresses)+len(c.ExcludedEmailAddresses) > 0
	limited := len(c.ExtKeyUsage) > 0 && !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny) &&
		(!slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth) || !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth))
	switch {
	case err != nil:
	case !c.BasicConstraintsValid || !c.IsCA:
		err = errors.New("it is not a CA certificate (basicConstraints)")
	case c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
		err = errors.New("it may not sign certificates (keyUsage)")
	case limited:
		err = errors.New("it may not sign those of servers and clients (extendedKeyUsage)")
	case constrained:
		err = errors.New("it may only sign some names (nameConstraints)")
	case len(c.UnhandledCriticalExtensions) > 0:
		err = fmt.Errorf("it has critical extensions that programs do not know: %v", c.UnhandledCriticalExtensions)
	case !p.owns():
		err = errors.New("the key is not its key")
	case now.Before(c.NotBefore):
		err = fmt.Errorf("it is valid from %s", c.NotBefore.Format(time.RFC3339))
	case c.NotAfter.Sub(now) < shortest:
		err = fmt.Errorf("it ends on %s: that is less than %d days", c.NotAfter.Format(time.DateOnly), int(shortest.Hours()/24))
	}
	if err != nil {
		return nil, fault.Exit(fmt.Errorf("the certificate of %q cannot be an authority of a cluster: %w", c.Subject, err), fault.ExitUsage)
	}
	p.Cert, err = certutil.EncodeCertificates(c)
	return p, err
}

// Use makes an authority of the user's one of the store, which has none yet.
func (s *Store) Use(ca CA, given *Pair) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cert, err1 := s.optional(s.path(ca, "ca.crt"))
	key, err2 := s.optional(s.path(ca, "ca.key"))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	switch same := bytes.Equal(cert, given.Cert); {
	case same && string(key) == given.Key.Reveal():
		return nil
	case same && key == nil: // a run was cut off
	case cert != nil || key != nil:
		return fault.Exit(fault.Advise(fmt.Errorf("there is an authority %s already: %s", ca, s.path(ca, "ca.crt")), "exchange it: kubexm certs rotate-ca "+string(ca)+" --cert FILE --key FILE"), fault.ExitUsage)
	}
	if err := s.apart(given); err != nil {
		return err
	}
	// A key alone would get a certificate of its own by the next run.
	return errors.Join(s.write(s.path(ca, "ca.crt"), given.Cert, ""), s.write(s.path(ca, "ca.key"), []byte(given.Key.Reveal()), ""))
}

// apart refuses an authority whose key another one has: whom one of them believes, the other would, too.
func (s *Store) apart(given *Pair) error {
	for _, other := range []CA{Kubernetes, Etcd, FrontProxy, Registry} {
		for _, name := range []string{caName, nextName, formerName} {
			if p, err := s.load(other, name); err == nil && bytes.Equal(p.X509.RawSubjectPublicKeyInfo, given.X509.RawSubjectPublicKeyInfo) {
				return fault.Exit(fmt.Errorf("it has the key of the authority %s: each needs a key of its own", other), fault.ExitUsage)
			}
		}
	}
	return nil
}

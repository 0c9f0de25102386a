package pki

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// corporate makes an authority that another one, of the user's, has signed.
func corporate(t *testing.T, change func(*x509.Certificate), key any) (cert, keyPEM []byte) {
	t.Helper()
	root := authority(t, &Store{Dir: t.TempDir()}, FrontProxy)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(77), Subject: pkix.Name{CommonName: "Clusters", Organization: []string{"Example"}}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(3 * 365 * 24 * time.Hour),
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if change != nil {
		change(template)
	}
	if key == nil {
		made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		key = made
	}
	var public any
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		public = k.Public()
	case *rsa.PrivateKey:
		public = k.Public()
	case ed25519.PrivateKey:
		public = k.Public()
	}
	der, err := x509.CreateCertificate(rand.Reader, template, root.X509, public, root.signer)
	if err != nil {
		t.Fatal(err)
	}
	is, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = certutil.EncodeCertificates(is, root.X509); err != nil { // with what has signed it, as such files often are
		t.Fatal(err)
	}
	if pk, ok := key.(ed25519.PrivateKey); ok {
		der, err := x509.MarshalPKCS8PrivateKey(pk)
		if err != nil {
			t.Fatal(err)
		}
		return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	return cert, keyPEM
}

func given(t *testing.T) *Pair {
	t.Helper()
	cert, key := corporate(t, nil, nil)
	p, err := GivenAuthority(cert, key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestGiven rotates to an authority of the user's, from one that kubexm has made and from another one of the user's.
func TestGiven(t *testing.T) {
	for name, first := range map[string]*Pair{"made": nil, "given": given(t)} {
		t.Run(name, func(t *testing.T) {
			s := &Store{Dir: t.TempDir()}
			if first != nil {
				if err := s.Use(Etcd, first); err != nil {
					t.Fatal(err)
				}
				if is := authority(t, s, Etcd); !is.X509.Equal(first.X509) || strings.Count(string(trusted(t, s)), "BEGIN") != 1 {
					t.Errorf("it is not used, or more is trusted:\n%s", trusted(t, s))
				}
			}
			old, oldLeaf := authority(t, s, Etcd).Cert, leaf(t, s, member)
			flush(t, s)
			next := given(t)
			for _, r := range rotates {
				s = &Store{Dir: s.Dir}
				err := r.begin(s, Etcd)
				if r.phase == Added {
					s = &Store{Dir: s.Dir}
					err = s.AddGiven(Etcd, next)
				}
				if err != nil {
					t.Fatal(err)
				}
				flush(t, s)
				if first == nil || r.phase != Swapped { // else nothing can vouch for the successor
					checkTrust(t, s.Dir, r.phase, old, oldLeaf)
				}
				leaf(t, s, member)
				flush(t, s)
				if bridged, err := s.Bridged(Etcd); err != nil || bridged != (first == nil && r.phase == Added) {
					t.Errorf("%s: bridged %t, %v", r.phase, bridged, err)
				}
			}
			if is := authority(t, s, Etcd); !is.X509.Equal(next.X509) {
				t.Errorf("it is %s", is.X509.Subject)
			}
			if err := s.Use(Etcd, given(t)); err == nil || !strings.Contains(err.Error(), "there is an authority etcd already") {
				t.Errorf("a second one: %v", err)
			}
			if err := s.Use(Kubernetes, next); err == nil || !strings.Contains(err.Error(), "has the key of the authority etcd") {
				t.Errorf("the same for two: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(s.Dir, "kubernetes", "*")); left != nil {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// TestNotGiven refuses what could not sign for a cluster.
func TestNotGiven(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if cert, key := corporate(t, nil, small); true {
		if _, err := GivenAuthority(cert, key, time.Now()); err != nil {
			t.Errorf("RSA: %v", err)
		}
	}
	for want, c := range map[string]struct {
		change func(*x509.Certificate)
		key    any
		other  bool
	}{
		"not a CA certificate": {change: func(c *x509.Certificate) {
			c.IsCA, c.MaxPathLenZero, c.KeyUsage = false, false, x509.KeyUsageDigitalSignature
		}},
		"may not sign certificates":     {change: func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }},
		"servers and clients":           {change: func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }},
		"only sign some names":          {change: func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"example.com"} }},
		"that is less than 90 days":     {change: func(c *x509.Certificate) { c.NotAfter = time.Now().Add(80 * 24 * time.Hour) }},
		"it is valid from":              {change: func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }},
		"Kubernetes needs RSA or ECDSA": {key: edwards},
		"the key is not its key":        {other: true},
	} {
		cert, key := corporate(t, c.change, c.key)
		if c.other {
			_, key = corporate(t, nil, nil)
		}
		if _, err := GivenAuthority(cert, key, time.Now()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := GivenAuthority([]byte("rubbish"), nil, time.Now()); err == nil {
		t.Error("rubbish is taken")
	}
}

package signature

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/x509"
	_ "embed" // for the certificates
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Identity is who signs, as the certificate says it.
type Identity struct {
	Name   string // an email address, or a URI
	Issuer string // URL of the OpenID Connect provider where they logged in
}

// Authority issues certificates to who logs in, each for the minutes that it takes to sign: nobody keeps a key.
type Authority struct{ Roots, Intermediates *x509.CertPool }

// The certificates of Sigstore's authority, Fulcio: byte for byte the files of that name in the Go module
// github.com/sigstore/sigstore v1.11.3, in pkg/tuf/repository/targets.
var (
	//go:embed fulcio_v1.crt.pem
	fulcioRoot []byte
	//go:embed fulcio_intermediate_v1.crt.pem
	fulcioIntermediate []byte
)

// Sigstore returns the authority that everybody may use: https://fulcio.sigstore.dev.
func Sigstore() Authority {
	a := Authority{x509.NewCertPool(), x509.NewCertPool()}
	a.Roots.AppendCertsFromPEM(fulcioRoot)
	a.Intermediates.AppendCertsFromPEM(fulcioIntermediate)
	return a
}

// The extensions of a certificate that name Identity.Issuer: the older one as it is, the newer one as a string of ASN.1
// (https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md).
const (
	issuerV1 = "1.3.6.1.4.1.57264.1.1"
	issuerV2 = "1.3.6.1.4.1.57264.1.8"
)

// Verify checks that somebody signed the file that has this SHA-256 digest. Signature (ECDSA) and certificate are as cosign writes them: in base64, the
// certificate as PEM. The certificate has expired long ago: what counts is that it was right when it began.
func (a Authority) Verify(digest, signature, certificate []byte, who Identity) error {
	leaf, err := readCertificate(certificate)
	if err != nil {
		return fmt.Errorf("reading its certificate: %w", err)
	}
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots:         cmp.Or(a.Roots, x509.NewCertPool()), // nil would be those of the system
		Intermediates: a.Intermediates, CurrentTime: leaf.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
	})
	if err != nil {
		return fmt.Errorf("its certificate cannot be believed: %w", err)
	}
	if !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageCodeSigning) { // one that says nothing is for everything
		return errors.New("its certificate is not for signing code")
	}
	names := leaf.EmailAddresses
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	if !slices.Contains(names, who.Name) {
		return fmt.Errorf("it is signed by %s, and not by %s", cmp.Or(strings.Join(names, ", "), "nobody"), who.Name)
	}
	if at := issuer(leaf); at != who.Issuer {
		return fmt.Errorf("%s logged in at %s, and not at %s", who.Name, cmp.Or(at, "no known place"), who.Issuer)
	}
	key, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return fmt.Errorf("its certificate has a key of %s, and not of ECDSA", leaf.PublicKeyAlgorithm)
	}
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(signature))); err != nil || !ecdsa.VerifyASN1(key, digest, raw) {
		return fmt.Errorf("it is no signature of this file by %s", who.Name)
	}
	return nil
}

func readCertificate(text []byte) (*x509.Certificate, error) {
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text))); err == nil {
		text = raw
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("there is none")
	}
	return x509.ParseCertificate(block.Bytes)
}

// issuer returns what a certificate says of Identity.Issuer. Where it says it twice the newer extension counts.
func issuer(c *x509.Certificate) (at string) {
	for _, e := range c.Extensions {
		var text string
		switch rest, err := asn1.Unmarshal(e.Value, &text); {
		case e.Id.String() == issuerV2 && err == nil && len(rest) == 0:
			return text
		case e.Id.String() == issuerV1:
			at = string(e.Value)
		}
	}
	return at
}

package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// signs makes an authority that has one certificate, issues one more from a template, and signs text with that one's key.
func signs(t *testing.T, edit func(c *x509.Certificate)) (a Authority, signature, certificate []byte) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotBefore: long, NotAfter: long.AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, root, root, public, key)
	if err != nil {
		t.Fatal(err)
	}
	if root, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	newer, err := asn1.MarshalWithParams(google, "utf8")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: long.AddDate(0, 1, 0), NotAfter: long.AddDate(0, 1, 0).Add(10 * time.Minute), PublicKey: &signer.PublicKey,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}, EmailAddresses: []string{me},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}, Value: []byte(google)}, {Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}, Value: newer}},
	}
	edit(leaf)
	if raw, err = x509.CreateCertificate(rand.Reader, leaf, root, leaf.PublicKey, key); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	sig, err := signer.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	a.Roots = x509.NewCertPool()
	a.Roots.AddCert(root)
	file := filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", file) // this machine trusts it: that must not count
	return a, encode(sig), encode(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
}

const (
	me     = "me@example.com"
	google = "https://accounts.google.com"
)

func encode(b []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(b) + "\n") }

func TestKeyless(t *testing.T) {
	sum, other := sha256.Sum256(text), sha256.Sum256([]byte("other"))
	_, foreign, _ := signs(t, func(*x509.Certificate) {})
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	type input struct {
		a                              Authority
		digest, signature, certificate []byte
		who                            Identity
	}
	for name, tt := range map[string]struct {
		leaf func(c *x509.Certificate)
		edit func(in *input)
		want string // part of the error; empty: it is good
	}{
		"good": {},
		"a certificate in bare PEM": {edit: func(in *input) {
			in.certificate, _ = base64.StdEncoding.DecodeString(strings.TrimSpace(string(in.certificate)))
		}},
		"the older issuer alone":        {leaf: func(c *x509.Certificate) { c.ExtraExtensions = c.ExtraExtensions[:1] }},
		"the newer issuer alone":        {leaf: func(c *x509.Certificate) { c.ExtraExtensions = c.ExtraExtensions[1:] }},
		"another identity":              {leaf: func(c *x509.Certificate) { c.EmailAddresses = []string{"eve@example.com"} }, want: "it is signed by eve@example.com, and not by " + me},
		"an identity that begins so":    {edit: func(in *input) { in.who.Name = me[:len(me)-1] }, want: "and not by me@example.co"},
		"no identity":                   {leaf: func(c *x509.Certificate) { c.EmailAddresses = nil; c.Subject.CommonName = me }, want: "it is signed by nobody"},
		"another issuer":                {edit: func(in *input) { in.who.Issuer = "https://example.com" }, want: "logged in at " + google + ", and not at https://example.com"},
		"another newer issuer":          {leaf: func(c *x509.Certificate) { c.ExtraExtensions[1].Value = []byte("\x0c\x01x") }, want: "logged in at x"},
		"no issuer":                     {leaf: func(c *x509.Certificate) { c.ExtraExtensions = nil }, want: "logged in at no known place"},
		"another root":                  {edit: func(in *input) { in.a = Sigstore() }, want: "unknown authority"},
		"no root":                       {edit: func(in *input) { in.a = Authority{} }, want: "unknown authority"},
		"begun before its authority":    {leaf: func(c *x509.Certificate) { c.NotBefore = c.NotBefore.AddDate(-1, 0, 0) }, want: "is before"},
		"begun after its authority":     {leaf: func(c *x509.Certificate) { c.NotBefore = c.NotBefore.AddDate(2, 0, 0); c.NotAfter = c.NotBefore }, want: "is after"},
		"for servers":                   {leaf: func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, want: "incompatible key usage"},
		"for everything":                {leaf: func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }, want: "not for signing code"},
		"without a usage":               {leaf: func(c *x509.Certificate) { c.ExtKeyUsage = nil }, want: "not for signing code"},
		"a key of another kind":         {leaf: func(c *x509.Certificate) { c.PublicKey = public }, want: "a key of Ed25519"},
		"another digest":                {edit: func(in *input) { in.digest = other[:] }, want: "it is no signature of this file by me@example.com"},
		"no digest":                     {edit: func(in *input) { in.digest = nil }, want: "it is no signature of this file"},
		"a signature by another key":    {edit: func(in *input) { in.signature = foreign }, want: "it is no signature of this file"},
		"a signature that is a page":    {edit: func(in *input) { in.signature = []byte("<html>") }, want: "it is no signature of this file"},
		"a certificate that is a page":  {edit: func(in *input) { in.certificate = []byte("<html>") }, want: "reading its certificate: there is none"},
		"a certificate that is garbage": {edit: func(in *input) { in.certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text}) }, want: "reading its certificate: x509"},
		"nothing":                       {edit: func(in *input) { in.certificate, in.signature = nil, nil }, want: "there is none"},
	} {
		if tt.leaf == nil {
			tt.leaf = func(*x509.Certificate) {}
		}
		in := input{digest: sum[:], who: Identity{me, google}}
		in.a, in.signature, in.certificate = signs(t, tt.leaf)
		if tt.edit != nil {
			tt.edit(&in)
		}
		err := in.a.Verify(in.digest, in.signature, in.certificate, in.who)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

// TestSigstore has a certificate that Fulcio issued in 2023 and what was signed with it: the attestation of sigstore.js 2.0.0, as
// github.com/sigstore/sigstore-go v1.4.0 has it in pkg/testing/data/bundles.
func TestSigstore(t *testing.T) {
	digest, err := hex.DecodeString("a280c37d42ee7073a8ff5177d7e9a79465db5683ae21147267eb855978dcadc3")
	if err != nil {
		t.Fatal(err)
	}
	signature := []byte("MEQCIFWrPp3i58snUIk9H59hzyXHzPFs3+GZDp+CzdNKXcBEAiBQQjvUaTGxKiOGlG1GQxKl91YZE8kEX2waQps0NNSSEg==")
	certificate, err := os.ReadFile("testdata/sigstore-js.pem")
	if err != nil {
		t.Fatal(err)
	}
	who := Identity{"https://github.com/sigstore/sigstore-js/.github/workflows/release.yml@refs/heads/main", "https://token.actions.githubusercontent.com"}
	if err := Sigstore().Verify(digest, signature, certificate, who); err != nil {
		t.Error(err)
	}
	digest[0] ^= 1
	if err := Sigstore().Verify(digest, signature, certificate, who); err == nil {
		t.Error("another digest is good, too")
	}
	for name, text := range map[string][]byte{"sigstore": fulcioRoot, "sigstore-intermediate": fulcioIntermediate} {
		c, err := readCertificate(text)
		if err != nil || c.Subject.CommonName != name || c.Issuer.CommonName != "sigstore" || !c.IsCA || bytes.Count(text, []byte("BEGIN")) != 1 {
			t.Fatalf("%s: %+v, %v", name, c, err)
		}
		if end := time.Date(2031, 10, 5, 13, 56, 58, 0, time.UTC); !c.NotAfter.Equal(end) {
			t.Errorf("%s ends at %s, want %s", name, c.NotAfter, end)
		}
	}
}

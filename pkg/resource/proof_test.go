package resource

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/signature"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// fulcio stands in for Sigstore's authority.
type fulcio struct {
	key  *ecdsa.PrivateKey
	root *x509.Certificate
}

func newFulcio(t testing.TB) fulcio {
	t.Helper()
	f := fulcio{root: &x509.Certificate{IsCA: true, BasicConstraintsValid: true, Subject: pkix.Name{CommonName: "fulcio"}}}
	f.key, f.root = f.issue(t, f.root)
	return f
}

// issue makes a key and a certificate of a time long ago.
func (f fulcio) issue(t testing.TB, c *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Unix(1_600_000_000, 0), time.Unix(1_600_000_600, 0)
	by, with := f.root, f.key
	if with == nil {
		by, with = c, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, with)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	return key, c
}

// sign adds the signature of who has a name to what a server offers at a path.
func (f fulcio) sign(t testing.TB, u *upstream, file, name string, content []byte) {
	t.Helper()
	key, c := f.issue(t, &x509.Certificate{
		EmailAddresses: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}, Value: []byte("https://accounts.google.com")}},
	})
	sum := sha256.Sum256(content)
	sig, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	text := func(b []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(b) + "\n") }
	u.mu.Lock()
	defer u.mu.Unlock()
	u.files[file+".sig"] = text(sig)
	u.files[file+".cert"] = text(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

// trusts lets a store believe the authority.
func (f fulcio) trusts(s *Store) *Store {
	s.authority = signature.Authority{Roots: x509.NewCertPool()}
	s.authority.Roots.AddCert(f.root)
	return s
}

const release = "krel-staging@k8s-releng-prod.iam.gserviceaccount.com"

// theatre has a publisher and a mirror of a zone, or of the user's own, with the same program.
type theatre struct {
	t                 *testing.T
	publisher, mirror *upstream
	a                 Artifact
	file              string // its path on the publisher
	ca                fulcio
	conf              source.Config
	away              bool // the publisher
}

func newTheatre(t *testing.T) *theatre {
	th := &theatre{t: t, publisher: newUpstream(t), mirror: newUpstream(t), a: mustNew(t, "kubelet", "1.99.7"), ca: newFulcio(t), conf: source.Config{Zone: "cn"}}
	th.file = th.publisher.publish(t, th.a, program)
	th.publish(program)
	return th
}

// publish has the mirror offer a program, with its checksum.
func (th *theatre) publish(content []byte) {
	th.mirror.publish(th.t, th.a, content)
	th.mirror.move("/files.m.daocloud.io")
}

// own makes the mirror one that the user has named.
func (th *theatre) own() {
	th.conf = source.Config{Mirrors: map[string]string{"https://dl.k8s.io": "https://files.m.daocloud.io/dl.k8s.io"}}
}

func (th *theatre) open() *Store {
	th.t.Setenv("KXZONE", "")
	th.conf.Transport = &http.Transport{DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		switch {
		case strings.HasPrefix(address, "files.m.daocloud.io"):
			address = th.mirror.Listener.Addr().String()
		case th.away:
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no such host")}
		default:
			address = th.publisher.Listener.Addr().String()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	s, err := Open(th.t.TempDir(), th.conf)
	if err != nil {
		th.t.Fatal(err)
	}
	th.t.Cleanup(s.source.Transport.CloseIdleConnections)
	s.retry.Pause, s.retry.Longest = time.Millisecond, 5*time.Millisecond
	return th.ca.trusts(s)
}

func TestSigned(t *testing.T) {
	other := []byte("another program")
	const mirrored = "/files.m.daocloud.io"
	type asked struct{ publisher, mirror int } // for signatures and certificates
	var text strings.Builder
	for _, tt := range []struct {
		name   string
		set    func(th *theatre)
		signed bool // in the lock
		asked  asked
	}{
		{"by the release", func(th *theatre) { th.ca.sign(t, th.publisher, th.file, release, program) }, true, asked{2, 0}},
		{"by the release, at a mirror alone", func(th *theatre) {
			th.away = true
			th.ca.sign(t, th.mirror, mirrored+th.file, release, program)
		}, true, asked{0, 2}},
		{"by somebody else", func(th *theatre) { th.ca.sign(t, th.publisher, th.file, "eve@example.com", program) }, false, asked{2, 0}},
		{"by another authority", func(th *theatre) { newFulcio(t).sign(t, th.publisher, th.file, release, program) }, false, asked{2, 0}},
		{"a lying mirror with the true signature", func(th *theatre) {
			th.away = true
			th.publish(other)
			th.ca.sign(t, th.mirror, mirrored+th.file, release, program)
		}, false, asked{0, 2}},
		{"a lying mirror with a certificate of its own", func(th *theatre) {
			th.away = true
			th.publish(other)
			newFulcio(t).sign(t, th.mirror, mirrored+th.file, release, other)
		}, false, asked{0, 2}},
		{"an own mirror with a wrong one", func(th *theatre) {
			th.own()
			th.ca.sign(t, th.mirror, mirrored+th.file, release, other)
		}, false, asked{0, 2}},
		{"missing", func(*theatre) {}, false, asked{1, 0}},
		{"missing at a mirror, the publisher is away", func(th *theatre) { th.away = true }, false, asked{0, 1}},
		{"missing, an own build", func(th *theatre) {
			th.own()
			th.publish(other)
			th.ca.sign(t, th.publisher, th.file, release, program)
		}, false, asked{0, 1}},
		{"without its certificate", func(th *theatre) {
			th.ca.sign(t, th.publisher, th.file, release, program)
			delete(th.publisher.files, th.file+".cert")
		}, false, asked{2, 0}},
		{"empty", func(th *theatre) {
			th.conf.Signed = true
			th.publisher.files[th.file+".sig"], th.publisher.files[th.file+".cert"] = nil, nil
		}, false, asked{2, 0}},
		{"overloaded", func(th *theatre) {
			th.publisher.fail(".sig", func(w http.ResponseWriter, _ *http.Request) bool { status(503)(w, nil); return true })
		}, false, asked{2, 1}},
		{"missing and required", func(th *theatre) { th.conf.Signed = true }, false, asked{1, 0}},
		{"missing at an own mirror, and required", func(th *theatre) {
			th.own()
			th.conf.Signed = true
			th.ca.sign(t, th.publisher, th.file, release, program)
		}, true, asked{2, 1}},
		{"an own build, and required", func(th *theatre) {
			th.own()
			th.publish(other)
			th.conf.Signed = true
			th.ca.sign(t, th.publisher, th.file, release, program)
		}, false, asked{2, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			th := newTheatre(t)
			tt.set(th)
			s := th.open()
			_, err := s.Fetch(t.Context(), th.a, nil)
			l, lockErr := s.readLock()
			f, locked := l.Files[th.a.key()]
			if lockErr != nil || locked != (err == nil) || (f.Signature != "" && f.Certificate != "") != tt.signed || locked && f.Unsigned == tt.signed {
				t.Errorf("in the lock: %+v, %v, %v", f, err, lockErr)
			}
			if err != nil {
				fmt.Fprintf(&text, "== %s\n%s", tt.name, told(err, sumOf(program), "SUM", sumOf(other), "OTHER"))
			}
			count := func(u *upstream) int {
				return len(slices.DeleteFunc(u.requests(), func(r string) bool { return !strings.HasSuffix(r, ".sig") && !strings.HasSuffix(r, ".cert") }))
			}
			if got := (asked{count(th.publisher), count(th.mirror)}); got != tt.asked {
				t.Errorf("asked for signatures: %+v, want %+v", got, tt.asked)
			}
			if _, err := s.Programs(t.Context(), th.a); (err == nil) != locked {
				t.Errorf("used: %v", err)
			}
		})
	}
	golden.Equal(t, text.String())
}

// TestSignedLater requires signatures of what was locked without one: it is not there until its signature is.
func TestSignedLater(t *testing.T) {
	th := newTheatre(t)
	s := th.open()
	mustFetch(t, s, th.a, program)
	s.source.Signed = true
	items := []Item{{Artifact: th.a}}
	if stock, err := s.Look(t.Context(), items, false); err != nil || stock[0].There {
		t.Errorf("there without a signature: %+v, %v", stock, err)
	}
	var text strings.Builder
	refused := func() {
		_, err := s.Fetch(t.Context(), th.a, nil)
		text.WriteString(told(err, s.dir, "STORE", sumOf(program), "SUM"))
	}
	_, err := s.Programs(t.Context(), th.a)
	text.WriteString(told(err, s.dir, "STORE"))
	refused()
	th.ca.sign(t, th.publisher, th.file, release, []byte("another program"))
	refused()
	s.source.Offline = true
	refused()
	s.source.Offline = false
	golden.Equal(t, text.String())
	th.ca.sign(t, th.publisher, th.file, release, program)
	th.publisher.requests()
	mustFetch(t, s, th.a, program)
	if got := th.publisher.requests(); !slices.Equal(got, []string{"kubelet.sig", "kubelet.cert"}) {
		t.Errorf("asked for %q", got)
	}
	if stock, err := s.Look(t.Context(), items, false); err != nil || !stock[0].There || !stock[0].Signed {
		t.Errorf("%+v, %v", stock, err)
	}
}

// TestSignedBundles has the proof go with a bundle, and be judged where that arrives.
func TestSignedBundles(t *testing.T) {
	th := newTheatre(t)
	th.ca.sign(t, th.publisher, th.file, release, program)
	s := th.open()
	mustFetch(t, s, th.a, program)
	items := []Item{{Artifact: th.a}}
	good, bare := filepath.Join(t.TempDir(), "good"), filepath.Join(t.TempDir(), "bare")
	mustPack(t, s, Bundle{Path: good, Items: items})
	packBundle(t, bare, relock(func(l *lock) { l.Files[kubeletKey] = lockedFile{SHA256: sumOf(program), proof: proof{Unsigned: true}} })(t, unpackBundle(t, good)))

	to := th.ca.trusts(empty(t))
	to.source.Signed = true
	for n, file := range []string{bare, good, bare} { // a proof is added to what is there, and stays
		if _, err := to.Import(t.Context(), file, nil, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Programs(t.Context(), th.a); (err == nil) != (n > 0) {
			t.Errorf("after import %d: %v", n, err)
		}
	}
	from, err1 := s.readLock()
	got, err2 := to.readLock()
	if err := errors.Join(err1, err2); err != nil || got.Files[kubeletKey].proof != from.Files[kubeletKey].proof || got.Files[kubeletKey].Unsigned {
		t.Errorf("%+v, %v", got.Files[kubeletKey], err)
	}
	if v, err := to.Verify(t.Context()); err != nil || v.Signed != 1 || v.Unsigned != 0 || len(v.Flaws) != 0 {
		t.Errorf("%+v, %v", v, err)
	}

	other := []byte("another program")
	bad := filepath.Join(t.TempDir(), "bad")
	packBundle(t, bad, list(t, unpackBundle(t, good), func(m *manifest, l *lock) {
		f := l.Files[kubeletKey]
		f.SHA256 = sumOf(other)
		l.Files[kubeletKey] = f
		m.Members[len(m.Members)-1] = packaged{kubeletKey, int64(len(other)), f.SHA256}
		m.Members[0].SHA256 = ""
	}))
	fresh := th.ca.trusts(empty(t))
	_, err := fresh.Import(t.Context(), bad, nil, nil)
	text := told(err, bad, "BUNDLE")
	if files, _ := filepath.Glob(fresh.dir + "/*"); files != nil {
		t.Errorf("something was taken: %q", files)
	}
	_, err = empty(t).Import(t.Context(), good, nil, nil) // which believes Sigstore
	golden.Equal(t, text+regexp.MustCompile(`\(possibly because of .*\)`).ReplaceAllString(told(err, good, "BUNDLE"), "..."))

	if err := to.editLock(t.Context(), func(l *lock) error {
		f := l.Files[kubeletKey]
		f.Certificate = ""
		l.Files[kubeletKey] = f
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if v, err := to.Verify(t.Context()); err != nil || v.Signed != 0 || len(v.Flaws) != 1 || !strings.HasPrefix(v.Flaws[0].What, "its signature in the lock file is wrong") {
		t.Errorf("a signature without its certificate: %+v, %v", v, err)
	}
}

// TestSigners keeps in mind which rows have a signer.
func TestSigners(t *testing.T) {
	var all []string
	for _, c := range Components() {
		if c.Signer != (plugin.Signer{}) {
			all = append(all, c.Name)
		}
	}
	if got, want := fmt.Sprint(all), "[kubeadm kubelet kubectl kube-apiserver kube-controller-manager kube-scheduler kube-proxy]"; got != want {
		t.Errorf("signed are %s, want %s", got, want)
	}
}

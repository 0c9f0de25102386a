package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

var member = EtcdMember("node1", []string{"10.0.0.11"})

// trusts reports whether a client that trusts some certificates (PEM) believes a server or client that shows others.
func trusts(t *testing.T, trust, shown []byte) bool {
	t.Helper()
	certs, err := certutil.ParseCertsPEM(shown)
	if err != nil {
		t.Fatal(err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(trust)
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	_, err = certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

// rotates are the steps of a rotation, and the phase after each.
var rotates = []struct {
	begin func(*Store, CA) error
	phase Phase
}{{(*Store).Add, Added}, {(*Store).Swap, Swapped}, {(*Store).Drop, Steady}}

func trusted(t *testing.T, s *Store) []byte {
	t.Helper()
	trust, err := s.Trust(Etcd)
	if err != nil {
		t.Fatal(err)
	}
	return trust
}

// checkTrust checks who believes whom in a phase.
func checkTrust(t *testing.T, dir string, phase Phase, old []byte, oldLeaf *Pair) {
	t.Helper()
	s := &Store{Dir: dir}
	is, trust := leaf(t, s, member), trusted(t, s)
	if !trusts(t, trust, is.Cert) {
		t.Errorf("%s: nobody believes %s", phase, member)
	}
	if has := trusts(t, trust, oldLeaf.Cert); has != (phase != Steady) {
		t.Errorf("%s: what the former authority has signed is believed: %t", phase, has)
	}
	if phase == Swapped && (is.X509.CheckSignatureFrom(authority(t, s, Etcd).X509) != nil || !trusts(t, old, is.Cert)) {
		t.Error("clients that trust the former authority alone do not believe servers")
	}
	if phase == Steady && (trusts(t, old, is.Cert) || bytes.Count(is.Cert, []byte("BEGIN")) != 1) {
		t.Error("the former authority is still there")
	}
}

// TestRotate has each phase trust what it should.
func TestRotate(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	old, oldLeaf := authority(t, s, Etcd).Cert, leaf(t, s, member)
	flush(t, s)
	var before []byte
	for _, r := range rotates {
		s = &Store{Dir: s.Dir}
		if err := r.begin(s, Etcd); err != nil {
			t.Fatal(err)
		}
		if phase, err := s.Phase(Etcd); err != nil || phase != r.phase {
			t.Fatalf("phase %s, %v", phase, err)
		}
		flush(t, s)
		checkTrust(t, s.Dir, r.phase, old, oldLeaf)
		trust := trusted(t, s)
		if r.phase == Swapped && !bytes.Equal(trust, before) {
			t.Error("a swap changes what is trusted")
		}
		before = trust
		leaf(t, s, member)
		flush(t, s)
	}
	if olds, err := filepath.Glob(filepath.Join(s.Dir, "etcd", "ca-old-*")); err != nil || len(olds) != 2 {
		t.Errorf("kept are %v, %v", olds, err)
	}
}

// TestRotationCut is cut off after each file of each phase, and carries on.
func TestRotationCut(t *testing.T) {
	for _, ca := range []CA{Etcd, ServiceAccounts} {
		for at, r := range rotates {
			for cut := 0; ; cut++ {
				s := &Store{Dir: t.TempDir()}
				old, oldLeaf := authority(t, s, Etcd).Cert, leaf(t, s, member)
				_, _, err := s.ServiceAccountKey()
				flush(t, s)
				for _, earlier := range rotates[:at] {
					err = errors.Join(err, earlier.begin(s, ca), s.Flush())
				}
				if err = errors.Join(err, r.begin(s, ca)); err != nil {
					t.Fatal(err)
				}
				if cut > len(s.order) {
					break
				}
				s.order = s.order[:cut]
				flush(t, s)

				s = &Store{Dir: s.Dir}
				phase, err := s.Phase(ca)
				if phase != r.phase {
					err = errors.Join(err, r.begin(s, ca))
				} else {
					err = errors.Join(err, s.settle(ca))
				}
				_, _, bad := s.ServiceAccountKey()
				leaf(t, s, member)
				if err := errors.Join(err, bad, s.Flush()); err != nil {
					t.Fatalf("%s, phase %s, cut after %d files: %v", ca, r.phase, cut, err)
				}
				if phase, err = s.Phase(ca); err != nil || phase != r.phase {
					t.Fatalf("%s, cut after %d files of %s: phase %s, %v", ca, cut, r.phase, phase, err)
				}
				if ca == Etcd {
					checkTrust(t, s.Dir, r.phase, old, oldLeaf)
				}
			}
		}
	}
}

// TestRotateServiceAccounts keeps the keys valid whose tokens are.
func TestRotateServiceAccounts(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	was, _, err := s.ServiceAccountKey()
	flush(t, s)
	for _, r := range rotates {
		err = errors.Join(err, r.begin(s, ServiceAccounts), s.Flush())
		private, public, bad := s.ServiceAccountKey()
		if err = errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
		n := 0
		for rest := public; len(rest) > 0; n++ {
			_, rest = pem.Decode(rest)
		}
		signs := private.Reveal() == was.Reveal()
		if want := map[Phase]int{Added: 2, Swapped: 2, Steady: 1}[r.phase]; n != want || signs != (r.phase == Added) {
			t.Errorf("%s: %d keys are valid, the former one signs: %t", r.phase, n, signs)
		}
	}
}

// TestRenew makes anew what was made before, once, and only what is asked for.
func TestRenew(t *testing.T) {
	began := time.Now()
	clock := began
	s := &Store{Dir: t.TempDir(), Now: func() time.Time { return clock }}
	first, other := leaf(t, s, member), leaf(t, s, Admin())
	flush(t, s)
	clock = began.Add(time.Hour)
	s.Renew = Renewal{Before: clock, Of: func(spec Spec) bool { return spec.CA == Etcd }}
	again, err := s.Leaf(member)
	if err != nil {
		t.Fatal(err)
	}
	if lines := s.Pending(); len(lines) != 1 || lines[0] != "~ etcd/member-node1: renewed" {
		t.Errorf("pending: %q", lines)
	}
	if again.X509.Equal(first.X509) || again.Key.Reveal() == first.Key.Reveal() || !leaf(t, s, Admin()).X509.Equal(other.X509) {
		t.Error("not the right ones were renewed")
	}
	flush(t, s)
	clock = clock.Add(time.Minute)
	if !leaf(t, s, member).X509.Equal(again.X509) {
		t.Error("renewed twice")
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "etcd", "member-node1.key")); err != nil {
		t.Error(err)
	}
}

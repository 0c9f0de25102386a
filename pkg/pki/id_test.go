package pki

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestID has the ID of a cluster outlive everything but its file.
func TestID(t *testing.T) {
	dir := t.TempDir()
	id := func() string {
		t.Helper()
		id, err := (&Store{Dir: dir}).ID()
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	if one, two := id(), id(); one == two || len(one) != 26 || strings.ToLower(one) != one {
		t.Errorf("chosen: %q and %q", one, two)
	}
	born := &Store{Dir: dir}
	chosen, err := born.ID()
	if err != nil {
		t.Fatal(err)
	}
	if recorded, err := born.RecordedID(); recorded != "" || err != nil {
		t.Errorf("recorded before it was written: %q, %v", recorded, err)
	}
	first := authority(t, born, Kubernetes)
	if got := id(); got != chosen || got == first.Hash() {
		t.Errorf("ID is %q, chosen was %q", got, chosen)
	}
	remove(t, born, "ca.crt")
	remove(t, born, "ca.key")
	if got, err := born.RecordedID(); got != chosen || err != nil {
		t.Errorf("without the authority: %q, %v", got, err)
	}
	_, err = (&Store{Dir: dir}).CA(Kubernetes)
	if check := (&Store{Dir: dir}).Check(Kubernetes); err == nil || check == nil || !strings.Contains(err.Error(), "it is lost") || !strings.Contains(fault.Advice(err), "backup") {
		t.Errorf("a new authority for a cluster that was made: %v, %v", err, check)
	}
	if err := os.WriteFile(filepath.Join(dir, idFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := (&Store{Dir: dir}).ID(); fault.Advice(err) == "" {
		t.Errorf("an empty file is %q, %v", got, err)
	}
}

// TestIDOfBefore has clusters that were made before there were IDs keep the pin of their authority, of which one half
// is enough, whatever becomes of that later.
func TestIDOfBefore(t *testing.T) {
	for name, lost := range map[string]string{"whole": "", "certificate lost": "ca.crt"} {
		t.Run(name, func(t *testing.T) {
			s := &Store{Dir: t.TempDir()}
			pin := authority(t, s, Kubernetes).Hash()
			if lost != "" {
				remove(t, s, lost)
			}
			now := &Store{Dir: s.Dir}
			if id, err := now.RecordedID(); id != pin || err != nil {
				t.Errorf("recorded %q, %v", id, err)
			}
			if id, err := now.ID(); id != pin || err != nil {
				t.Errorf("ID %q, %v", id, err)
			}
			flush(t, now)
			remove(t, s, "ca.key")
			remove(t, s, "ca.crt")
			if id, err := (&Store{Dir: s.Dir}).ID(); id != pin || err != nil {
				t.Errorf("later %q, %v", id, err)
			}
		})
	}
}

// TestTrust has one certificate unless a file says more, and the signer's first.
func TestTrust(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	signer, other := authority(t, s, Kubernetes), authority(t, &Store{Dir: t.TempDir()}, Kubernetes)
	if trust, err := s.Trust(Kubernetes); !bytes.Equal(trust, signer.Cert) || err != nil {
		t.Errorf("alone: %s, %v", trust, err)
	}
	overwrite(t, s, "trust.crt", string(other.Cert)+string(signer.Cert))
	if trust, err := s.Trust(Kubernetes); !bytes.Equal(trust, slices.Concat(signer.Cert, other.Cert)) || err != nil {
		t.Errorf("with another: %s, %v", trust, err)
	}
	if pair := authority(t, s, Kubernetes); !bytes.Equal(pair.Cert, signer.Cert) {
		t.Error("the signer is another")
	}
	overwrite(t, s, "trust.crt", "rubbish")
	if _, err := s.Trust(Kubernetes); fault.Advice(err) == "" {
		t.Errorf("rubbish: %v", err)
	}
}

// TestPlanKey has a key that lasts, of which a store that makes nothing has one for itself.
func TestPlanKey(t *testing.T) {
	dir := t.TempDir()
	key := func(s *Store) string {
		t.Helper()
		key, err := s.PlanKey()
		if err != nil || len(key) != 26 || !bytes.Equal(key, must(s.PlanKey())) && !s.Existing {
			t.Fatalf("%q, %v", key, err)
		}
		return string(key)
	}
	one := key(&Store{Dir: dir, Existing: true})
	if two := key(&Store{Dir: dir, Existing: true}); one == two {
		t.Error("one key for all")
	}
	s := &Store{Dir: dir}
	kept := key(s)
	flush(t, s)
	if key(&Store{Dir: dir, Existing: true}) != kept {
		t.Error("another key")
	}
}

func must[T any](v T, _ error) T { return v }

// TestFlush cuts a flush off after every file: the next run finds the same authority, and an ID only with everything
// that was to be written before it.
func TestFlush(t *testing.T) {
	plan := func(s *Store) {
		t.Helper()
		if _, err := s.ID(); err != nil {
			t.Fatal(err)
		}
		for _, spec := range []Spec{Admin(), EtcdClient("node1")} {
			if _, err := s.Leaf(spec); err != nil {
				t.Fatal(err)
			}
		}
	}
	whole := &Store{Dir: t.TempDir()}
	plan(whole)
	want := []string{"+ id", "+ kubernetes/ca", "+ kubernetes/admin", "+ etcd/ca", "+ etcd/node-node1"}
	if got := whole.Pending(); !slices.Equal(got, want) {
		t.Errorf("pending: %q", got)
	}
	if files, err := os.ReadDir(whole.Dir); len(files) > 0 || err != nil {
		t.Errorf("planning has written %v, %v", files, err)
	}
	for cut := range len(whole.order) {
		s := &Store{Dir: t.TempDir()}
		plan(s)
		chosen := authorityOf(t, s)
		s.order = append(slices.Clone(s.order[1:]), s.order[0])[:cut] // the ID, which was chosen first, comes last
		flush(t, s)
		again := &Store{Dir: s.Dir}
		plan(again)
		if cut > 0 && authorityOf(t, again) != chosen {
			t.Errorf("cut after %d files: another authority", cut)
		}
		flush(t, again)
		if last := (&Store{Dir: s.Dir}); authorityOf(t, last) != authorityOf(t, again) || last.Check(Kubernetes) != nil || last.Check(Etcd) != nil {
			t.Errorf("cut after %d files: it is not whole afterwards", cut)
		}
	}
}

func authorityOf(t *testing.T, s *Store) string {
	t.Helper()
	p, err := s.CA(Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	return p.Hash()
}

// TestPendingTellsWhy has a certificate that is replaced.
func TestPendingTellsWhy(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	leaf(t, s, APIServer("node1", nil, "cluster.local", services))
	if _, err := s.Leaf(APIServer("node1", nil, "example.org", services)); err != nil {
		t.Fatal(err)
	}
	if got := s.Pending(); !slices.Equal(got, []string{"~ kubernetes/apiserver-node1: names changed"}) {
		t.Errorf("pending: %q", got)
	}
}

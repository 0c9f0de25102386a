package pki

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// TestPassword has a password and its hash outlive the process that made them.
func TestPassword(t *testing.T) {
	dir := t.TempDir()
	password := func(name string) (secret.Secret, error) {
		s := &Store{Dir: dir}
		password, err := s.Password(Registry, name)
		flush(t, s)
		return password, err
	}
	bcrypted := func(password secret.Secret) (string, error) {
		s := &Store{Dir: dir}
		hash, err := s.Hash(Registry, "nodes", password)
		flush(t, s)
		return hash, err
	}
	first, err := password("nodes")
	if err != nil || len(first.Reveal()) < 26 {
		t.Fatalf("%d characters, %v", len(first.Reveal()), err)
	}
	again, err := password("nodes")
	if err != nil || again != first {
		t.Errorf("another password: %v", err)
	}
	other, err := password("others")
	if err != nil || other == first {
		t.Errorf("the same password for two: %v", err)
	}
	hash, err := bcrypted(first)
	if err != nil || bcrypt.CompareHashAndPassword([]byte(hash), []byte(first.Reveal())) != nil {
		t.Errorf("%q is no hash of it: %v", hash, err)
	}
	if same, err := bcrypted(first); err != nil || same != hash {
		t.Errorf("another hash: %v", err)
	}
	changed, err := bcrypted(other)
	if err != nil || bcrypt.CompareHashAndPassword([]byte(changed), []byte(other.Reveal())) != nil {
		t.Errorf("the hash did not follow the password: %v", err)
	}
	if _, err := bcrypted(secret.New(strings.Repeat("x", 73))); err == nil {
		t.Error("a password that bcrypt would cut was taken")
	}
	file := filepath.Join(dir, "registry", "nodes.password")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := password("nodes"); fault.Advice(err) == "" {
		t.Errorf("an empty file: %v", err)
	}
}

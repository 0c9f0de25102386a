package pki

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// Password returns a password of at least 128 random bits. It is made when it is first asked for,
// and kept as <ca>/<name>.password.
func (s *Store) Password(ca CA, name string) (secret.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.path(ca, name+".password")
	text, err := s.read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		text = []byte(rand.Text())
		err = s.write(path, append(text, '\n'), "")
	case err == nil && strings.TrimSpace(string(text)) == "":
		err = fault.Advise(fmt.Errorf("%s is empty", path), "remove the file; a new password is made on the next run")
	}
	return secret.New(strings.TrimSpace(string(text))), err
}

// Hash returns what a server knows a password by (bcrypt). The same password has the same hash from run to
// run: it is kept as <ca>/<name>.bcrypt. Servers compare it at every request, and it is not for the eyes of
// others than root: so it is of the least cost, 1 ms instead of 60.
func (s *Store) Hash(ca CA, name string, password secret.Secret) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.path(ca, name+".bcrypt")
	hash, err := s.read(path)
	why := ""
	if err == nil {
		why = "password changed"
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if bcrypt.CompareHashAndPassword(hash, []byte(password.Reveal())) == nil {
		return string(hash), nil
	}
	if hash, err = bcrypt.GenerateFromPassword([]byte(password.Reveal()), bcrypt.MinCost); err != nil {
		return "", fmt.Errorf("hashing the password of %s: %w", name, err)
	}
	return string(hash), s.write(path, hash, why)
}

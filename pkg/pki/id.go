package pki

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

const (
	idFile      = "id"
	planKeyFile = "plan.key"
)

// ID returns the cluster's identity: 130 random bits in lower-case base32, chosen when it is first asked for and kept
// in the file id, whatever becomes of authorities. A cluster that was made before clusters had one keeps the pin of
// its Kubernetes authority, by which its hosts know it.
func (s *Store) ID() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, err := s.id()
	if err != nil {
		return "", err
	}
	if id == "" {
		id = strings.ToLower(rand.Text())
	}
	if s.Existing || s.exists(s.path("", idFile)) {
		return id, nil
	}
	return id, s.write(s.path("", idFile), []byte(id+"\n"), "")
}

// RecordedID is the ID of a cluster that was made before; empty: there is none.
func (s *Store) RecordedID() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.made() {
		return "", nil
	}
	return s.id()
}

// made reports whether a cluster was made before: its ID is there, or anything of its Kubernetes authority.
func (s *Store) made() bool {
	return slices.ContainsFunc([]string{s.path("", idFile), s.path(Kubernetes, "ca.key"), s.path(Kubernetes, "ca.crt")}, func(path string) bool {
		_, err := os.Stat(path)
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// id is the ID in the file, or the one that follows from the authority of a cluster that was made before; empty:
// there is none.
func (s *Store) id() (string, error) {
	path := s.path("", idFile)
	text, err := s.read(path)
	id := strings.TrimSpace(string(text))
	switch {
	case err == nil && id == "":
		return "", fault.Advise(fmt.Errorf("%s is empty", path),
			"put it back from a backup; the cluster's hosts have the ID in /var/lib/kubexm/env, its API in the ConfigMap kube-system/kubexm")
	case err == nil:
		return id, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	case !s.made():
		return "", nil
	}
	pair, err := s.authority(Kubernetes)
	if err != nil {
		return "", err
	}
	return pair.Hash(), nil
}

// Check returns what is wrong with an authority that was made before: it is lost, damaged or expired. One that is
// still to be made is not wrong.
func (s *Store) Check(ca CA) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.existing(ca)
	if errors.Is(err, fs.ErrNotExist) && !s.orphans(ca) {
		return nil
	}
	return err
}

// PlanKey returns the key of the digests in plans, 130 random bits, kept in the file plan.key: without it nobody can
// try guesses of a password on a plan.
func (s *Store) PlanKey() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.path("", planKeyFile)
	key, err := s.read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if key = bytes.TrimSpace(key); len(key) > 0 {
		return key, nil
	}
	key = []byte(rand.Text())
	if s.Existing {
		return key, nil // for this plan alone
	}
	return key, s.write(path, append(bytes.Clone(key), '\n'), "")
}

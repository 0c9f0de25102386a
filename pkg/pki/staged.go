package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// staged is a file that is chosen, and not written yet.
type staged struct {
	path string
	data []byte
	why  string // it replaces another; empty: it is new
}

// read returns a file as the next Flush leaves it.
func (s *Store) read(path string) ([]byte, error) {
	if i := s.stagedAt(path); i >= 0 {
		return s.staged[i].data, nil
	}
	return os.ReadFile(path)
}

func (s *Store) exists(path string) bool {
	if s.stagedAt(path) >= 0 {
		return true
	}
	_, err := os.Stat(path)
	return err == nil
}

func (s *Store) stagedAt(path string) int {
	return slices.IndexFunc(s.staged, func(f staged) bool { return f.path == path })
}

// write stages a file for Flush; why says for what reason it replaces another.
func (s *Store) write(path string, data []byte, why string) error {
	if s.Existing {
		return fault.Advise(fmt.Errorf("%s is missing or no longer usable", path), "kubexm create cluster makes it")
	}
	if i := s.stagedAt(path); i >= 0 {
		s.staged = slices.Delete(s.staged, i, i+1)
	}
	s.staged = append(s.staged, staged{path, data, why})
	return nil
}

// Pending lists what Flush is going to write, a line for each key, certificate and password: "+ kubernetes/ca" is
// new, "~ kubernetes/apiserver-node1: names changed" replaces another. It holds no secret.
func (s *Store) Pending() (lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := map[string]int{}
	for _, f := range s.staged {
		rel, err := filepath.Rel(s.Dir, f.path)
		if err != nil {
			rel = f.path
		}
		name := strings.TrimSuffix(strings.TrimSuffix(rel, ".crt"), ".key")
		line := "+ " + name
		if f.why != "" {
			line = "~ " + name + ": " + f.why
		}
		if i, twice := at[name]; !twice {
			at[name] = len(lines)
			lines = append(lines, line)
		} else if f.why != "" {
			lines[i] = line
		}
	}
	return lines
}

// Flush writes what was chosen since the last one, each file whole and for good, in the order in which it was
// chosen: a key before its certificate, an authority before what it signed. The ID comes last: a run that is cut off
// before has told it to nobody.
func (s *Store) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.stagedAt(s.path("", idFile)); i >= 0 {
		s.staged = append(slices.Delete(slices.Clone(s.staged), i, i+1), s.staged[i])
	}
	for len(s.staged) > 0 {
		f := s.staged[0]
		err := durable.Write(f.path, f.data)
		if file, ok := errors.AsType[*fs.PathError](err); ok { // in the same words for all of a directory: the cause is told once
			err = durable.Advise(fmt.Errorf("writing to %s: %w", filepath.Dir(f.path), file.Err))
		}
		if err != nil {
			return err
		}
		s.staged = s.staged[1:]
	}
	return nil
}

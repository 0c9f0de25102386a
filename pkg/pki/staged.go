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
	data []byte // nil: there is to be none
	why  string // it replaces another; empty: it is new
}

// read returns a file as the next Flush leaves it.
func (s *Store) read(path string) ([]byte, error) {
	if f, chosen := s.staged[path]; chosen && f.data == nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	} else if chosen {
		return f.data, nil
	}
	return os.ReadFile(path)
}

// remove stages that there is no file any more.
func (s *Store) remove(path string) error {
	if !s.exists(path) {
		return nil
	}
	return s.write(path, nil, "rotated")
}

func (s *Store) exists(path string) bool {
	if f, chosen := s.staged[path]; chosen {
		return f.data != nil
	}
	_, err := os.Stat(path)
	return err == nil
}

// write stages a file for Flush; why says for what reason it replaces another.
func (s *Store) write(path string, data []byte, why string) error {
	if s.Existing {
		return fault.Advise(fmt.Errorf("%s is missing or no longer valid", path), "kubexm create cluster creates it")
	}
	if i := slices.Index(s.order, path); i >= 0 { // what is chosen anew may need what was chosen since
		s.order = slices.Delete(s.order, i, i+1)
	}
	s.order = append(s.order, path)
	if s.staged == nil {
		s.staged = map[string]staged{}
	}
	s.staged[path] = staged{data, why}
	return nil
}

// Pending lists what Flush is going to write, a line for each key, certificate and password: "+ kubernetes/ca" is
// new, "~ kubernetes/apiserver-node1: names changed" replaces another, "- kubernetes/former" goes. It holds no secret.
func (s *Store) Pending() (lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range s.order {
		name := strings.TrimPrefix(strings.TrimSuffix(strings.TrimSuffix(path, ".crt"), ".key"), s.Dir+string(filepath.Separator))
		line := "+ " + name
		switch f := s.staged[path]; {
		case f.data == nil:
			line = "- " + name
		case f.why != "":
			line = "~ " + name + ": " + f.why
		}
		if n := len(lines); n == 0 || lines[n-1] != line { // a key and its certificate are one
			lines = append(lines, line)
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
	id := s.path("", idFile)
	if i := slices.Index(s.order, id); i >= 0 {
		s.order = append(slices.Delete(s.order, i, i+1), id)
	}
	for len(s.order) > 0 {
		path := s.order[0]
		err := write(path, s.staged[path].data)
		if file, ok := errors.AsType[*fs.PathError](err); ok {
			err = durable.Advise(fmt.Errorf("writing to %s: %w", filepath.Dir(path), file.Err))
		}
		if err != nil {
			return err
		}
		delete(s.staged, path)
		s.order = s.order[1:]
	}
	return nil
}

// write puts a file in place, or removes it where there is no data.
func write(path string, data []byte) error {
	if data != nil {
		return durable.Write(path, data)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

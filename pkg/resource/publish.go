package resource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/kubexm/kubexm/pkg/resource/distro"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// signingFile is the key that signs the store's own repositories, 0600.
const signingFile = systemsDir + "/signing.key"

// metadata is what publish writes for a set, but for the signatures.
func (s *Store) metadata(set PackageSet) (distro.Metadata, error) {
	sys, all, err := (&Repository{System: set.System, Arch: set.Arch, Store: s}).listed()
	if err != nil {
		return distro.Metadata{}, err
	}
	m, err := sys.Metadata(set.Arch, all)
	if err != nil {
		return m, err
	}
	sums := map[string]string{}
	for _, f := range set.Files {
		sums[f.Name] = f.SHA256
	}
	m.Files[sumsFile] = formatSums(sums)
	return m, nil
}

// republish rewrites what the store itself publishes of sets that are whole, where it is not as it should be.
func (s *Store) republish(ctx context.Context) (flaws []Flaw, err error) {
	sets, err := s.PackageSets()
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		if !s.LookPackages(set).There {
			continue // what is missing is told of each package
		}
		has, err := s.HasPackages(set)
		if err == nil && !has {
			flaws = append(flaws, Flaw{set.dir(), "its index or a signature of it is missing or wrong; written again"})
			err = s.publish(ctx, set)
		}
		if err != nil {
			return flaws, err
		}
	}
	return flaws, nil
}

// publish writes the index of a set beside its packages, signed with the store's key: the folder is a
// repository, for machines that kubexm does not install. Its own hosts get theirs
// another way (ADR 0019). What is as it should be is left alone.
func (s *Store) publish(ctx context.Context, set PackageSet) error {
	m, err := s.metadata(set)
	if err != nil {
		return err
	}
	key, err := s.signingKey()
	dir := s.file(set.dir())
	if err != nil || m.IsIn(dir, key) {
		return err
	}
	files, err := m.Sign(key)
	if err != nil {
		return fmt.Errorf("signing the index of %s: %w", set, err)
	}
	maps.Copy(files, m.Files)
	delete(files, m.Top)
	for name, text := range files {
		err = errors.Join(err, replace(ctx, filepath.Join(dir, name), text))
	}
	return errors.Join(err, replace(ctx, filepath.Join(dir, m.Top), m.Files[m.Top])) // last: it tells the next time that all is there
}

// isPublished reports whether a path is one that publish writes.
func isPublished(key string) bool {
	part := strings.Split(key, "/")
	return key == signingFile || len(part) >= 4 && part[0] == systemsDir && distro.IsMetadata(path.Join(part[3:]...))
}

// signingKey returns the key of the store's repositories. It is made when it is first asked for.
func (s *Store) signingKey() (distro.Key, error) {
	key, err := s.readSigningKey()
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeSigningKey(s.file(signingFile)); err != nil {
			return key, fmt.Errorf("making the key that signs repositories: %w", err)
		}
		return s.readSigningKey()
	}
	return key, err
}

// readSigningKey returns the key that was made; fs.ErrNotExist where none was.
func (s *Store) readSigningKey() (distro.Key, error) {
	file := s.file(signingFile)
	text, err := os.ReadFile(file)
	var key distro.Key
	if err == nil {
		key, err = distro.ReadKey(text)
	}
	if err != nil {
		return key, fault.Advise(fmt.Errorf("reading the key that signs repositories, %s: %w", file, err),
			"remove the file: another key is made, which machines that use the repositories must be given")
	}
	return key, nil
}

// makeSigningKey makes the file, unless another kubexm does so first.
func makeSigningKey(file string) error {
	key, err := distro.NewKey()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), "signing*.part") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err = errors.Join(key.Write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Link(f.Name(), file); errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

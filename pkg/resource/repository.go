package resource

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// osPackage is a package in the store.
type osPackage struct {
	Member          // Name is that of the file
	name     string // of the package
	version  string // of a Debian package, as apt tells it
	provides []string
	index    string      // what the index says of a Debian package, but for where it is
	rpm      *xmlPackage // what it says of an RPM package
}

// Repository is the packages of a system in a store, for hosts of one architecture.
type Repository struct {
	System string // empty: the store can hold none for the host
	Arch   string
	Store  *Store
}

// packages reads all packages of the repository; none where the store has none. What it has
// must be whole.
func (r *Repository) packages() ([]osPackage, error) {
	l, err := r.Store.readLock()
	if err != nil || r.System == "" {
		return nil, err
	}
	set := l.set(r.System, r.Arch)
	var all []osPackage
	var missing []string
	for _, f := range set.Files {
		file := r.Store.file(path.Join(set.dir(), f.Name))
		if !r.Store.has(set, f) {
			missing = append(missing, f.Name)
			continue
		}
		p, err := r.Store.packageAt(file, f.SHA256)
		if err != nil {
			return nil, err
		}
		p.Member = Member{Name: f.Name, Mode: 0o644, Size: f.Size, SHA256: f.SHA256, Path: file}
		all = append(all, p)
	}
	if all != nil && missing != nil {
		return nil, fault.Advise(fmt.Errorf("of the %s in %s this is missing or damaged: %s", set, r.Store.dir, human.Names(missing, 5)),
			"run 'kubexm download --os "+r.System+" --arch "+r.Arch+"', or import the bundle again")
	}
	return all, nil
}

// packageAt reads a package, each only once.
func (s *Store) packageAt(file, sum string) (osPackage, error) {
	read, _ := s.read.LoadOrStore(sum, sync.OnceValues(func() (osPackage, error) {
		if strings.HasSuffix(file, ".deb") {
			return readDeb(file)
		}
		return readRPM(file)
	}))
	return read.(func() (osPackage, error))() //nolint:forcetypeassert // nothing else is put there
}

// Lacks returns those of the names that the repository has no package for.
func (r *Repository) Lacks(names []string) ([]string, error) {
	all, err := r.packages()
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for _, p := range all {
		for _, name := range append(p.provides, p.name) {
			has[name] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return has[n] }), nil
}

// Files returns the files of the packages with these names.
func (r *Repository) Files(names []string) ([]Member, error) {
	all, err := r.packages()
	if err != nil {
		return nil, err
	}
	var files []Member
	for _, p := range all {
		if slices.Contains(names, p.name) {
			files = append(files, p.Member)
		}
	}
	return files, nil
}

// Has reports whether the repository has a Debian package in that very version.
func (r *Repository) Has(name, version string) (bool, error) {
	all, err := r.packages()
	return slices.ContainsFunc(all, func(p osPackage) bool { return p.name == name && p.version == version }), err
}

// Index returns the small files that make a repository of a directory of a host, by their paths
// below it: those that list its packages, and those that lead a package manager there and nowhere
// else. The same packages give the same bytes.
func (r *Repository) Index(dir string) (map[string][]byte, error) {
	all, err := r.packages()
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fault.Advise(fmt.Errorf("the store has no packages of %s", cmp.Or(r.System, "this operating system")),
			"on a machine with internet: kubexm download --os "+cmp.Or(r.System, "NAME")+" --export; bring its file here, then: kubexm import FILE")
	}
	if s, err := FindSystem(r.System); err != nil || s.Manager == "apt" {
		return debIndex(dir, all), err
	}
	return rpmIndex(dir, all)
}

package resource

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"sync"

	"github.com/kubexm/kubexm/pkg/resource/distro"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Repository is the packages of a system in a store, for hosts of one architecture.
type Repository struct {
	System string // empty: the store can hold none for the host
	Arch   string
	Store  *Store
}

// packages reads all packages of the repository; none where the store has none. What it has
// must be whole.
func (r *Repository) packages() ([]distro.Entry, error) {
	l, err := r.Store.readLock()
	if err != nil || r.System == "" {
		return nil, err
	}
	set := l.set(r.System, r.Arch)
	var all []distro.Entry
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
		all = append(all, distro.Entry{File: f, Package: p})
	}
	if all != nil && missing != nil {
		return nil, fault.Advise(fmt.Errorf("of the %s in %s, these are missing or damaged: %s", set, r.Store.dir, human.Names(missing, 5)),
			"run 'kubexm download --os "+r.System+" --arch "+r.Arch+"', or import the bundle again")
	}
	return all, nil
}

// packageAt reads a package, each only once.
func (s *Store) packageAt(file, sum string) (distro.Package, error) {
	read, _ := s.read.LoadOrStore(sum, sync.OnceValues(func() (distro.Package, error) { return distro.Read(file) }))
	return read.(func() (distro.Package, error))() //nolint:forcetypeassert // nothing else is put there
}

// Lacks returns those of the names that the repository has no package for.
func (r *Repository) Lacks(names []string) ([]string, error) {
	all, err := r.packages()
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for _, p := range all {
		has[p.Package.Name] = true
		for _, name := range p.Package.Provides {
			has[name] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return has[n] }), nil
}

// Files returns the files of the packages with these names.
func (r *Repository) Files(names []string) ([]File, error) {
	all, err := r.packages()
	if err != nil {
		return nil, err
	}
	var files []File
	for _, p := range all {
		if slices.Contains(names, p.Package.Name) {
			files = append(files, File{Name: p.Name, Mode: 0o644, Size: p.Size, SHA256: p.SHA256, Path: r.Store.file(path.Join(systemDir(r.System, r.Arch), p.Name))})
		}
	}
	return files, nil
}

// Has reports whether the repository has a Debian package in that very version.
func (r *Repository) Has(name, version string) (bool, error) {
	all, err := r.packages()
	return slices.ContainsFunc(all, func(p distro.Entry) bool { return p.Package.Name == name && p.Package.Version == version }), err
}

// Index returns the small files that make a repository of a directory of a host, by their paths
// below it, see distro.System.Index. The same packages give the same bytes.
func (r *Repository) Index(dir string) (map[string][]byte, error) {
	sys, all, err := r.listed()
	if err != nil {
		return nil, err
	}
	return sys.Index(dir, all)
}

// listed returns the packages of the repository, of which there must be some, and the system they are of.
func (r *Repository) listed() (distro.System, []distro.Entry, error) {
	all, err := r.packages()
	if err != nil {
		return distro.System{}, nil, err
	}
	if len(all) == 0 {
		return distro.System{}, nil, fault.Advise(fmt.Errorf("the store has no packages of %s", cmp.Or(r.System, "this operating system")),
			"on a machine with internet: kubexm download --os "+cmp.Or(r.System, "NAME")+" --export; copy its file here, then: kubexm import FILE")
	}
	sys, err := distro.Find(r.System)
	return sys, all, err
}

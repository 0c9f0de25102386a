package resource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/resource/distro"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// systemsDir is the folder of operating system packages in the store.
const systemsDir = "os"

// parallelPackages is how many packages of one set are fetched at a time.
const parallelPackages = 4

// PackageSet is what a repository of the store consists of: packages of a system for one
// architecture, with all that they depend on.
type PackageSet struct {
	System string        `json:"system"`
	Arch   string        `json:"arch"`
	Names  []string      `json:"names"` // asked for, sorted
	Files  []distro.File `json:"files"` // sorted by name
}

// lockedSystem is a set in the lock. Of its files, Files of the lock has the checksums.
type lockedSystem struct {
	Names []string `json:"names"` // asked for, sorted
	Files []string `json:"files"` // names, sorted
}

// Item returns the set as a thing that the store can hold.
func (p PackageSet) Item() Item { return SystemItem(p.System, p.Arch) }

// String returns "packages of debian12 amd64".
func (p PackageSet) String() string { return p.Item().String() }

// dir is the path of the set's folder in the store.
func (p PackageSet) dir() string { return systemDir(p.System, p.Arch) }

func systemDir(system, arch string) string { return path.Join(systemsDir, system, arch) }

// askedName is a name that a package manager takes for a package, and a shell for one word.
var askedName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_:~-]*$`)

// isPackage reports whether a path is one that this kubexm gives to a package.
func isPackage(key string) bool {
	part := strings.Split(key, "/")
	if len(part) != 4 || part[0] != systemsDir || part[2] != "amd64" && part[2] != "arm64" {
		return false
	}
	s, err := distro.Find(part[1])
	return err == nil && s.IsPackage(part[3])
}

// check refuses what has no place in a store.
func (p PackageSet) check() error {
	for _, f := range p.Files {
		if !isPackage(path.Join(p.dir(), f.Name)) || !isSum(f.SHA256) {
			return fmt.Errorf("%s: %q, with SHA-256 %q, is not a package", p, f.Name, f.SHA256)
		}
	}
	return nil
}

// set returns what the lock has of a system's packages; without any it has none of the names.
func (l lock) set(system, arch string) PackageSet {
	p := PackageSet{System: system, Arch: arch}
	has := l.Systems[p.dir()]
	p.Names = has.Names
	for _, name := range has.Files {
		f := l.Files[path.Join(p.dir(), name)]
		p.Files = append(p.Files, distro.File{Name: name, URL: f.From, Size: f.Size, SHA256: f.SHA256})
	}
	return p
}

// hasSet reports whether the lock has that very set.
func (l lock) hasSet(p PackageSet) bool {
	had := l.set(p.System, p.Arch)
	return slices.Equal(had.Names, p.Names) && slices.Equal(had.Files, p.Files)
}

// PackageSets returns the sets that the lock has.
func (s *Store) PackageSets() ([]PackageSet, error) {
	l, err := s.readLock()
	var all []PackageSet
	for _, name := range distro.Names() {
		for _, arch := range []string{"amd64", "arm64"} {
			if _, ok := l.Systems[systemDir(name, arch)]; ok {
				all = append(all, l.set(name, arch))
			}
		}
	}
	return all, err
}

// has reports whether a file of the set is in the store, whole.
func (s *Store) has(p PackageSet, f distro.File) bool {
	return sumIs(filepath.Join(s.file(p.dir()), f.Name), f.SHA256)
}

// LookPackages tells of a set whether all of it is in the store.
func (s *Store) LookPackages(p PackageSet) Stock {
	st := Stock{Item: p.Item(), There: true}
	for _, f := range p.Files {
		st.Size += f.Size
		st.There = st.There && s.has(p, f)
		if place := s.source.Places(f.URL)[0].URL; st.From == "" {
			st.From = source.Redacted(place)
		}
	}
	if u, err := url.Parse(st.From); err == nil && u.Host != "" {
		st.From = u.Scheme + "://" + u.Host
	}
	return st
}

// HasPackages reports whether FetchPackages has nothing to do: the lock names that very set, all of it is in
// the store, and so is the index beside it.
func (s *Store) HasPackages(p PackageSet) (bool, error) {
	l, err := s.readLock()
	if err != nil || !l.hasSet(p) || !s.LookPackages(p).There {
		return false, err
	}
	is, err := s.metadata(p)
	if err != nil {
		return false, err
	}
	key, err := s.readSigningKey()
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && is.IsIn(s.file(p.dir()), key), err
}

// FetchPackages makes sure that a set is in the store. What another set of this system and
// architecture had besides is not needed any more; it stays until it is pruned.
func (s *Store) FetchPackages(ctx context.Context, p PackageSet, progress Progress) error {
	if err := p.check(); err != nil {
		return err
	}
	if err := s.lockPackages(ctx, p); err != nil {
		return err
	}
	var all errgroup.Group
	all.SetLimit(parallelPackages)
	sum := &added{progress: progress}
	for _, f := range p.Files {
		sum.total += f.Size
	}
	for _, f := range p.Files {
		file := s.file(path.Join(p.dir(), f.Name))
		all.Go(func() error {
			if s.has(p, f) {
				sum.tell(f.Name, f.Size)
				return nil
			}
			if s.source.Offline {
				return missing(f.Name + " is not in " + s.dir)
			}
			b := blob{places: s.places(f.URL), path: file, sha256: f.SHA256, progress: func(done, _ int64) { sum.tell(f.Name, done) }}
			err := s.download(ctx, b)
			if source.Missing(err) {
				err = fault.AdviseMore(err, "if it is no longer published, its distribution has a newer one: --refresh gets that")
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("fetching %s: %w", p, err)
	}
	return s.publish(ctx, p)
}

// lockPackages puts a set into the lock, in the place of the one that is there.
func (s *Store) lockPackages(ctx context.Context, p PackageSet) error {
	l, err := s.readLock()
	if err != nil || l.hasSet(p) {
		return err
	}
	return s.editLock(ctx, func(l *lock) error {
		is := lockedSystem{Names: p.Names}
		for _, f := range p.Files {
			key := path.Join(p.dir(), f.Name)
			if was, ok := l.Files[key]; ok && was.SHA256 != f.SHA256 {
				return fault.Advise(fmt.Errorf("%s has SHA-256 %s in %s, and is published with %s", key, was.SHA256, s.lockPath(), f.SHA256),
					"a published package never changes: ask who runs that server; if it is right, delete the entry of the lock")
			}
			l.Files[key] = lockedFile{SHA256: f.SHA256, From: f.URL, Size: f.Size}
			is.Files = append(is.Files, f.Name)
		}
		l.Systems[p.dir()] = is
		return nil
	})
}

// added adds up the progress of several downloads.
type added struct {
	mu       sync.Mutex
	done     map[string]int64
	total    int64
	progress Progress
}

func (a *added) tell(name string, done int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done == nil {
		a.done = map[string]int64{}
	}
	a.done[name] = done
	var sum int64
	for _, n := range a.done {
		sum += n
	}
	if a.progress != nil {
		a.progress(sum, a.total)
	}
}

// union merges two sorted lists.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// collectPackages adds a set of the lock to what goes into a bundle.
func (s *Store) collectPackages(own, to lock, i Item, add func(key, sum string) error) error {
	set := own.set(i.System, i.Arch)
	if set.Files == nil {
		return fault.Advise(fmt.Errorf("%s are not in %s: %w", i, s.dir, os.ErrNotExist), "run 'kubexm download --os "+i.System+"' first")
	}
	for _, f := range set.Files {
		key := path.Join(set.dir(), f.Name)
		if !s.has(set, f) {
			return fault.Advise(fmt.Errorf("%s is not in %s: %w", key, s.dir, os.ErrNotExist), "run 'kubexm download --os "+i.System+"' again")
		}
		if err := add(key, f.SHA256); err != nil {
			return err
		}
		to.Files[key] = own.Files[key]
	}
	to.Systems[set.dir()] = own.Systems[set.dir()]
	return nil
}

// coveredPackages checks that the sets and the packages of a lock are about the same.
func (l lock) coveredPackages() error {
	named := map[string]bool{}
	for dir, set := range l.Systems {
		if len(set.Files) == 0 {
			return fmt.Errorf("the lock has no packages in %s", dir)
		}
		for _, name := range set.Names {
			if !askedName.MatchString(name) {
				return fmt.Errorf("the lock has %q in %s, which is not a package name", name, dir)
			}
		}
		for _, name := range set.Files {
			key := dir + "/" + name // as it is: what a cleaned path would hide becomes part of paths on hosts
			if _, ok := l.Files[key]; !ok || !isPackage(key) || path.Base(key) != name {
				return fmt.Errorf("the lock has no checksum of %s", key)
			}
			named[key] = true
		}
	}
	for key := range l.Files {
		if isPackage(key) && !named[key] {
			return fmt.Errorf("the lock has %s in no set of packages", key)
		}
	}
	return nil
}

// incompletePackages finds what sets lack that are there in part.
func (s *Store) incompletePackages(l lock) (flaws []Flaw) {
	for dir, is := range l.Systems {
		lacks := slices.DeleteFunc(slices.Clone(is.Files), func(name string) bool {
			_, err := os.Stat(s.file(path.Join(dir, name)))
			return err == nil
		})
		if len(lacks) == len(is.Files) {
			continue // it was never there, or pruned
		}
		for _, name := range lacks {
			flaws = append(flaws, Flaw{path.Join(dir, name), "it is missing; part of the packages in " + dir})
		}
	}
	return flaws
}

// dropIncomplete forgets sets that are not whole in the store, where another lock has one: what they lack may be published
// no more.
func (s *Store) dropIncomplete(l *lock, other lock) {
	for _, name := range distro.Names() {
		for _, arch := range []string{"amd64", "arm64"} {
			set := l.set(name, arch)
			if _, ok := other.Systems[set.dir()]; ok && !s.LookPackages(set).There {
				delete(l.Systems, set.dir())
			}
		}
	}
}

// mergePackages adds the sets of another lock. Where both have one of a system and architecture, the one that has all
// names of the other takes its place: the other lock's, where the names are the same. Packages depend on very versions
// of others, so files of two sets do not make a third.
func (l lock) mergePackages(other lock) error {
	for _, dir := range slices.Sorted(maps.Keys(other.Systems)) {
		was, is := l.Systems[dir], other.Systems[dir]
		lacks := func(s lockedSystem) []string {
			return slices.DeleteFunc(union(was.Names, is.Names), func(n string) bool { return slices.Contains(s.Names, n) })
		}
		switch of, own := lacks(is), lacks(was); {
		case len(of) == 0:
			l.Systems[dir] = is
		case len(own) > 0:
			return fault.Advise(fmt.Errorf("packages in %s: the store has a set with %s, and the bundle another one with %s, and they cannot be merged", dir, human.Names(of, 5), human.Names(own, 5)),
				"make one bundle for all: run 'kubexm download --os "+path.Base(path.Dir(dir))+" --export' for each of the clusters in the same work directory, and import the last one")
		}
	}
	return nil
}

// noteSums writes SHA256SUMS beside each file of a lock; beside packages publish does.
func (s *Store) noteSums(ctx context.Context, l lock) error {
	for key, f := range l.Files {
		if !isPackage(key) {
			if err := noteSum(ctx, s.file(key), f.SHA256); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepPackages marks what stays of a set when the store is pruned: its files, and what the store notes of them.
func (l lock) keepPackages(i Item, stays map[string]bool) {
	set := l.set(i.System, i.Arch)
	for _, f := range set.Files {
		stays[path.Join(set.dir(), f.Name)] = true
	}
	stays[path.Join(set.dir(), sumsFile)], stays[path.Join(set.dir(), indexFile)] = true, true
}

package resource

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/resource/distro"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// ResolvePackages finds out which files the packages of some names are in, with those of all that they
// depend on, as a machine needs them that has nothing yet. Without refresh the lock is believed where it has all
// of the names. Else the distribution's own tool is asked, on here, with the index that it publishes
// and whose signature the tool checks: it runs without root, and leaves nothing behind.
func (s *Store) ResolvePackages(ctx context.Context, here *runner.Runner, system, arch string, names []string, refresh bool) (PackageSet, error) {
	sys, err := distro.Find(system)
	if err != nil {
		return PackageSet{}, err
	}
	l, err := s.readLock()
	if err != nil {
		return PackageSet{}, err
	}
	had := l.set(system, arch)
	set := PackageSet{System: system, Arch: arch, Names: union(had.Names, names)}
	if had.Files != nil && slices.Equal(had.Names, set.Names) && (!refresh || s.source.Offline) {
		return had, nil
	}
	if s.source.Offline {
		return set, missing(set.String() + " are not in " + s.lockPath())
	}
	from := sys.Sources(arch)
	if err := s.vouched(sys, from); err != nil {
		return set, err
	}
	most := 1
	for _, f := range from {
		most = max(most, len(s.source.Places(f)))
	}
	tries := make([]int, most) // the place of each source to take
	for n := range tries {
		tries[n] = n
	}
	ways, err := s.source.Forward(ctx, s.bases(from))
	if err != nil {
		return set, err
	}
	err = source.Try(ctx, source.Retry{Rounds: 1, Pause: s.retry.Pause}, tries, func(n int) error {
		places := map[string]string{} // where to ask -> where it is published
		at := make([]string, len(from))
		for i, f := range from {
			all := s.source.Places(f)
			place := all[min(n, len(all)-1)].URL
			at[i] = ways.URL(base(place)) + strings.TrimPrefix(place, base(place))
			places[base(at[i])] = base(f)
		}
		set.Files, err = sys.Resolve(ctx, here, arch, set.Names, at)
		for i := range set.Files {
			set.Files[i].URL = publishedAt(set.Files[i].URL, places)
		}
		return err
	})
	if err := ways.Close(err); err != nil {
		return set, fmt.Errorf("finding out which packages %s has: %w", system, err)
	}
	slices.SortFunc(set.Files, func(a, b distro.File) int { return strings.Compare(a.Name, b.Name) })
	set.Files = slices.Compact(set.Files)
	return set, set.check()
}

// vouched refuses places that bear a login, which would end up in arguments and in the lock; and those of an index without a
// signature where others could change it on its way: those without TLS, but for this machine itself.
func (s *Store) vouched(sys distro.System, sources []string) error {
	for _, f := range sources {
		for _, place := range s.source.Places(f) {
			u, err := url.Parse(base(place.URL))
			if err != nil {
				return fmt.Errorf("the mirror %s of the packages of %s is not a URL", source.Redacted(base(place.URL)), sys.Name)
			}
			if u.User != nil {
				return fault.Advise(fmt.Errorf("the mirror %s of the packages of %s has a login in its URL, which apt and dnf would show", u.Redacted(), sys.Name),
					"take it out of spec.source.mirrors, and give it in spec.source.access")
			}
			ip, _ := netip.ParseAddr(u.Hostname())
			if !sys.Signed() && u.Scheme != "https" && !ip.IsLoopback() && u.Hostname() != "localhost" {
				return fault.Advise(fmt.Errorf("the packages of %s would come from %s: only TLS can authenticate their index", sys.Name, u),
					"name an https:// mirror of "+f+" in spec.source.mirrors")
			}
		}
	}
	return nil
}

// bases are the URLs of all places of sources.
func (s *Store) bases(sources []string) (all []string) {
	for _, f := range sources {
		for _, place := range s.source.Places(f) {
			all = append(all, base(place.URL))
		}
	}
	return all
}

// base is the URL of a source, without suite and components.
func base(source string) string {
	url, _, _ := strings.Cut(source, " ")
	return url
}

// publishedAt is where a file that is found at a place is published.
func publishedAt(at string, places map[string]string) string {
	best := ""
	for place := range places {
		if strings.HasPrefix(at, place) && len(place) > len(best) {
			best = place
		}
	}
	return places[best] + strings.TrimPrefix(at, best)
}

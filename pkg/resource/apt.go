package resource

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Exit statuses of the scripts that resolve packages.
const (
	noTool = 71
	noKeys = 72
)

// ResolvePackages finds out which files the packages of some names are in, with those of all that they
// depend on, as a machine needs them that has nothing yet. Without refresh the lock is believed where it has all
// of the names. Else the distribution's own tool is asked, on here, with the index that it publishes
// and whose signature the tool checks: it runs without root, and leaves nothing behind.
func (s *Store) ResolvePackages(ctx context.Context, here *runner.Runner, system, arch string, names []string, refresh bool) (PackageSet, error) {
	sys, err := FindSystem(system)
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
	resolve := s.resolveRPM
	if sys.Manager == "apt" {
		resolve = s.resolveDeb
	}
	from := sys.sources(arch)
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
			place := all[min(n, len(all)-1)]
			at[i] = ways.URL(base(place)) + strings.TrimPrefix(place, base(place))
			places[base(at[i])] = base(f)
		}
		set.Files, err = resolve(ctx, here, sys, set, at)
		for i := range set.Files {
			set.Files[i].URL = publishedAt(set.Files[i].URL, places)
		}
		return err
	})
	if err := ways.Close(err); err != nil {
		return set, fmt.Errorf("finding out which packages %s has: %w", system, err)
	}
	slices.SortFunc(set.Files, func(a, b PackageFile) int { return strings.Compare(a.Name, b.Name) })
	set.Files = slices.Compact(set.Files)
	return set, set.check()
}

// vouched refuses places that bear a log-in, which would end up in arguments and in the lock; and those of an index without a
// signature where others could change it on its way: those without TLS, but for this machine itself.
func (s *Store) vouched(sys System, sources []string) error {
	for _, f := range sources {
		for _, place := range s.source.Places(f) {
			u, err := url.Parse(base(place))
			if err != nil {
				return fmt.Errorf("the mirror %s of the packages of %s is no URL", source.Redacted(base(place)), sys.Name)
			}
			if u.User != nil {
				return fault.Advise(fmt.Errorf("the mirror %s of the packages of %s has a log-in in its URL, which apt and dnf would show", u.Redacted(), sys.Name),
					"take it out of spec.source.mirrors, and give it in spec.source.access")
			}
			ip, _ := netip.ParseAddr(u.Hostname())
			if sys.Keys.file == "" && u.Scheme != "https" && !ip.IsLoopback() && u.Hostname() != "localhost" {
				return fault.Advise(fmt.Errorf("the packages of %s would come from %s: nothing but TLS vouches for their index", sys.Name, u),
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
			all = append(all, base(place))
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

// resolveDebs lets apt tell what it would fetch for a machine without any package. It keeps this
// machine's settings of how to reach servers, and none of its sources, keys, pins and architectures. Sources come by
// standard input: where source.Forward serves them is nobody's to know.
const resolveDebs = `command -v apt-get >/dev/null || exit 71
[ -r %[1]s ] || exit 72
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT; trap 'exit 143' TERM INT
chmod 755 "$T"; mkdir -p "$T/state/lists/partial" "$T/cache/archives/partial"; : >"$T/status"
(umask 077; cat >"$T/sources.list")
cat >"$T/apt.conf" <<END
Dir::State "$T/state"; Dir::State::status "$T/status"; Dir::Cache "$T/cache";
Dir::Etc::SourceList "$T/sources.list"; Dir::Etc::SourceParts "/dev/null"; Dir::Etc::Trusted "/dev/null"; Dir::Etc::TrustedParts "/dev/null";
` + noPins + `APT::Architecture "%[2]s"; APT::Architectures "%[2]s"; APT::Update::Error-Mode "any"; Acquire::http::Proxy::127.0.0.1 "DIRECT"; Acquire::Retries "3"; Acquire::ForceHash "SHA256";
` + clearHooks + `END
apt-get -c "$T/apt.conf" -qq update >&2 || exit
for names in %[3]s; do apt-get -c "$T/apt.conf" -qq -y --no-install-recommends --print-uris install $names || exit; done
`

// makesRoom are packages that go where another one comes, as Debian has one time service at a time. They are taken
// along: hosts that had them get them again when the cluster is deleted.
var makesRoom = map[string]string{"chrony": "systemd-timesyncd"}

func (s *Store) resolveDeb(ctx context.Context, here *runner.Runner, sys System, set PackageSet, sources []string) ([]PackageFile, error) {
	lines := make([]string, len(sources))
	for i, src := range sources {
		lines[i] = "deb [signed-by=" + sys.Keys.file + "] " + src
	}
	together := []string{strings.Join(set.Names, " ")} // what is installed at a time
	for _, n := range set.Names {
		if gone := makesRoom[n]; gone != "" {
			together = append(together, gone)
		}
	}
	out, err := here.User(ctx, fmt.Sprintf(resolveDebs, runner.Quote(sys.Keys.file), set.Arch, runner.Quote(together...)), strings.NewReader(strings.Join(lines, "\n")+"\n"))
	if err != nil {
		return nil, toolError(err, "apt-get", "apt", sys.Keys)
	}
	var files []PackageFile
	for line := range strings.Lines(out) { // 'URL' name size hash
		f := strings.Fields(line)
		if len(f) != 4 {
			continue
		}
		from := strings.Trim(f[0], "'")
		size, err := strconv.ParseInt(f[2], 10, 64)
		sum, ok := strings.CutPrefix(f[3], "SHA256:")
		u, wrong := url.Parse(from)
		if err = errors.Join(err, wrong); err != nil || !ok {
			return nil, fmt.Errorf("apt-get --print-uris: unexpected answer %q", strings.TrimSpace(line))
		}
		files = append(files, PackageFile{path.Base(u.Path), from, size, sum})
	}
	return files, nil
}

// toolError says what to install where the tool that resolves is not there, or has no keys.
func toolError(err error, tool, packages string, keys keyring) error {
	exit, ok := errors.AsType[*connector.ExitError](err)
	switch {
	case ok && exit.Code == noTool:
		return fault.Advise(fmt.Errorf("this machine has no %s, which knows what packages depend on", tool), "install "+packages+" on this machine")
	case ok && exit.Code == noKeys:
		return fault.Advise(fmt.Errorf("this machine has no %s, the keys with which the index is signed", keys.file), "install the package "+keys.packages+" on this machine")
	case ok:
		err = fmt.Errorf("%s: %s", tool, exit.Stderr)
	}
	return fault.Advise(err, "look at the network of this machine and its proxy (also that of apt or dnf), at spec.source (zone, mirrors), and at the names in spec.system")
}

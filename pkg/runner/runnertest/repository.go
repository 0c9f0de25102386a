package runnertest

import (
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
)

// repository is what the package manager is told to take packages from, instead of what the host is
// configured with.
type repository struct {
	url   string            // where it is published
	dir   string            // of this host, that it is in; empty: it is somewhere else
	files map[string]string // name of a package -> path on this host
}

var (
	aptSources = regexp.MustCompile(`Dir::Etc::SourceList "([^"]+)"`)
	aptSource  = regexp.MustCompile(`(?m)^deb (?:\[[^\]]*\] )?(\S+) `)
	aptEntry   = regexp.MustCompile(`(?s)Package: (\S+)\n.*?\nFilename: (\S+)\n`)
)

// configured is the repository that a configuration file of apt leads to, nil where that is not readable. One
// that is here lists its packages.
func (h *Host) configured(file string) *repository {
	conf, _ := h.Get(file)
	list := aptSources.FindStringSubmatch(conf)
	if list == nil {
		return nil
	}
	sources, _ := h.Get(list[1])
	source := aptSource.FindStringSubmatch(sources)
	if source == nil {
		return nil
	}
	r := &repository{url: source[1], files: map[string]string{}}
	dir, here := strings.CutPrefix(r.url, "file:")
	if !here {
		return r
	}
	r.dir = dir
	index, ok := h.Get(path.Join(dir, "Packages"))
	if !ok {
		return nil
	}
	for _, e := range aptEntry.FindAllStringSubmatch(index, -1) {
		r.files[e[1]] = path.Join(dir, e[2])
	}
	return r
}

// unavailable is the first package that an installation would bring and the repository does not list; or whose file,
// unless it is only planned, is not there.
func (h *Host) unavailable(from *repository, plan bool, names []string) string {
	for _, n := range h.missing(names) {
		if file, listed := from.files[n]; !listed || !plan && !h.fs.exists(file) {
			return n
		}
	}
	return ""
}

// printURIs tells where packages are published, with all that they depend on.
func (c *Call) printURIs(from *repository, names []string) int {
	if c.Offline {
		return c.Failf(100, "E: Failed to fetch %s", from.url)
	}
	var all []string
	for todo := names; len(todo) > 0; todo = todo[1:] {
		n := c.provider(todo[0], append(sorted(c.Repo), c.Installed()...))
		if n == "" {
			return c.Failf(100, "E: Unable to locate package %s", todo[0])
		}
		if !slices.Contains(all, n) {
			all = append(all, n)
			todo = append(slices.Clone(todo), c.Repo[n].Depends...)
		}
	}
	for _, n := range all {
		deb := resourcetest.Deb(n)
		file := n + "_1.0_amd64.deb"
		c.Printf("'%spool/main/%s' %s %d SHA256:%x\n", from.url, file, file, len(deb), sha256.Sum256(deb))
	}
	return 0
}

// unpack puts the names of packages in the place of their files; it returns the first that is not there.
func (h *Host) unpack(args []string) string {
	for i, a := range args {
		if strings.HasPrefix(a, "/") {
			if !h.fs.exists(a) {
				return a
			}
			args[i], _, _ = strings.Cut(path.Base(a), "_")
		}
	}
	return ""
}

func dnf(c *Call) int {
	o, args, ok := c.opts("qy", "", "--setopt", "--disablerepo", "--enablerepo", "--nobest", "--assumeno", "--disableplugin")
	if !ok || len(args) == 0 {
		return c.Unknown()
	}
	_, plan := o["--assumeno"]
	from, offline := c.repoDir(), c.Offline
	if from != nil && args[0] == "install" {
		offline = false
		if n := c.unavailable(from, plan, args[1:]); n != "" {
			return c.Failf(1, "Error: Unable to find a match: %s", n)
		}
	}
	switch {
	case args[0] == "upgrade":
		return c.dnfUpgrade(from, plan, o["y"] != "", args[1:])
	case strings.Join(args, " ") == "clean expire-cache" || args[0] == "makecache":
		if offline {
			return c.Failf(1, "Error: Failed to download metadata for repo")
		}
		c.fetched()
		return 0
	case args[0] != "install":
		return c.Unknown()
	case plan && !offline:
		c.Printf("Dependencies resolved.\n====\n Package        Architecture\n====\nUpgrading:\n bash           x86_64   5.2   baseos   1 M\nInstalling:\n")
		for _, n := range c.missing(args[1:]) {
			c.Printf(" %s\n                x86_64   1.0-1   appstream   300 k\nInstalling dependencies:\n", n)
		}
		return c.Failf(1, "Operation aborted.")
	case o["y"] == "" && !plan:
		return c.Failf(1, "Operation aborted.")
	case offline:
		return c.Failf(1, "Error: Failed to download metadata for repo")
	default:
		if missing := c.install(args[1:]); missing != "" {
			return c.Failf(1, "Error: Unable to find a match: %s", missing)
		}
	}
	return 0
}

var (
	dnfSource = regexp.MustCompile(`(?m)^baseurl=file://(.*)$`)
	dnfEntry  = regexp.MustCompile(`(?s)<package .*?<name>([^<]+)</name>.*?<location href="([^"]+)"`)
)

// repoDir is the repository that dnf is led to by --setopt=reposdir; nil: those of the host.
func (c *Call) repoDir() *repository {
	at := slices.IndexFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--setopt=reposdir=") })
	if at < 0 {
		return nil
	}
	conf, _ := c.Get(path.Join(strings.TrimPrefix(c.Args[at], "--setopt=reposdir="), "kubexm.repo"))
	r := &repository{files: map[string]string{}}
	if base := dnfSource.FindStringSubmatch(conf); base != nil {
		r.dir = base[1]
	}
	packed, _ := c.Get(path.Join(r.dir, "repodata/primary.xml.gz"))
	if z, err := gzip.NewReader(strings.NewReader(packed)); err == nil {
		primary, _ := io.ReadAll(z) // what is not there is missed
		for _, e := range dnfEntry.FindAllStringSubmatch(string(primary), -1) {
			r.files[e[1]] = path.Join(r.dir, e[2])
		}
	}
	return r
}

// mktemp makes a directory of a name that nothing has.
func mktemp(c *Call) int {
	if len(c.Args) != 2 || c.Args[1] != "-d" {
		return c.Unknown()
	}
	for n := 0; ; n++ {
		dir := fmt.Sprintf("/tmp/tmp.%010d", n)
		if err := c.fs.mkdir(dir, 0o700); err == nil {
			c.Printf("%s\n", dir)
			return 0
		}
	}
}

package runnertest

import (
	"crypto/sha256"
	"fmt"
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

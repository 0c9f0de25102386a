package runnertest

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// fetched notes what the repositories have in another version than the host.
func (h *Host) fetched() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.news = maps.Clone(h.Newer)
	maps.DeleteFunc(h.news, func(n string, p Package) bool { return !h.packages[n] || h.versions[n] == p.Version })
}

// newer lists what an upgrade of some packages, or of all for none, brings from a repository; nil: those of the host.
func (h *Host) newer(from *repository, names []string) (list []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := h.news
	if from != nil {
		news = maps.Clone(h.Newer)
		maps.DeleteFunc(news, func(n string, p Package) bool {
			return from.files[n] == "" || !h.packages[n] || h.versions[n] == p.Version
		})
	}
	for _, n := range sorted(news) {
		if len(names) == 0 || slices.Contains(names, n) {
			list = append(list, n)
		}
	}
	return list
}

// upgrade brings packages in their other versions.
func (h *Host) upgrade(names []string) {
	for _, n := range names {
		p := h.Newer[n]
		h.mu.Lock()
		delete(h.news, n)
		if h.versions == nil {
			h.versions = map[string]string{}
		}
		h.versions[n] = p.Version
		h.mu.Unlock()
		for f, text := range p.Files {
			h.put(f, text, modeOf(f))
		}
		h.changed("upgrade %s", n)
	}
}

// version is that of an installed package.
func (h *Host) version(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return cmp.Or(h.versions[name], h.Repo[name].Version, "1.0")
}

// aptUpgrade is apt-get upgrade, and install --only-upgrade.
func (c *Call) aptUpgrade(from *repository, plan, agreed bool, names []string) int {
	list := c.newer(from, names)
	switch {
	case plan:
		for _, n := range list {
			c.Printf("Inst %s [%s] (%s Debian:12 [amd64])\nConf %[1]s (%[3]s Debian:12 [amd64])\n", n, c.version(n), c.Newer[n].Version)
		}
		return 0
	case !agreed:
		return c.Failf(1, "Abort.")
	case c.Offline && from == nil:
		return c.Failf(100, "E: Failed to fetch: Temporary failure resolving")
	}
	for _, n := range list {
		if from != nil && !c.fs.exists(from.files[n]) {
			return c.Failf(100, "E: Failed to fetch %s: File not found", n)
		}
	}
	c.upgrade(list)
	return 0
}

// dnfUpgrade is dnf upgrade.
func (c *Call) dnfUpgrade(from *repository, plan, agreed bool, names []string) int {
	list := c.newer(from, names)
	switch {
	case c.Offline && from == nil:
		return c.Failf(1, "Error: Failed to download metadata for repo")
	case plan && len(list) > 0:
		c.Printf("Dependencies resolved.\n====\n Package        Architecture\n====\nUpgrading:\n")
		for _, n := range list {
			c.Printf(" %s  x86_64  %s  baseos  1 M\n", n, c.Newer[n].Version)
		}
		c.Printf("\nTransaction Summary\n====\nUpgrade  %d Packages\n", len(list))
		return c.Failf(1, "Operation aborted.")
	case !agreed && len(list) > 0:
		return c.Failf(1, "Operation aborted.")
	}
	c.upgrade(list)
	return 0
}

// kernels are those that are installed, as they are in /boot, the newest last.
func (h *Host) kernels() (names []string) {
	list, _ := h.fs.readDir("/boot")
	for _, e := range list {
		if k, ok := strings.CutPrefix(e.Name(), "vmlinuz-"); ok {
			names = append(names, k)
		}
	}
	slices.SortFunc(names, versions)
	return names
}

var digits = regexp.MustCompile(`\d+|\D+`)

// versions compares as sort -V does: numbers as numbers.
func versions(a, b string) int {
	x, y := digits.FindAllString(a, -1), digits.FindAllString(b, -1)
	return slices.CompareFunc(x, y, func(p, q string) int {
		n, err1 := strconv.Atoi(p)
		m, err2 := strconv.Atoi(q)
		if err1 == nil && err2 == nil {
			return cmp.Compare(n, m)
		}
		return strings.Compare(p, q)
	})
}

// matching are those of names that a list of patterns has.
func matching(patterns, names []string) (list []string) {
	for _, n := range names {
		if slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, n); return ok }) {
			list = append(list, n)
		}
	}
	return list
}

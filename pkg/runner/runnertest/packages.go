package runnertest

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/plugin"
)

// Package is an operating system package.
type Package struct {
	Version   string // empty: 1.0
	Depends   []string
	Provides  []string          // further names
	Conflicts []string          // packages that apt removes when it installs this one
	Files     map[string]string // path -> content; programs are those in a bin or sbin directory
	Units     []string          // units that it brings: Debian enables and starts them, the others do not
}

// install installs packages with what they need; the log has all of them.
func (h *Host) install(names []string) (missing string) {
	names = slices.Clone(names)
	for i, n := range names {
		if _, ok := h.Repo[n]; ok {
			continue
		}
		if names[i] = h.provider(n, sorted(h.Repo)); names[i] == "" {
			return n
		}
	}
	for _, n := range names {
		h.mu.Lock()
		have := h.packages[n]
		h.packages[n] = true
		h.mu.Unlock()
		if have {
			continue
		}
		p := h.Repo[n]
		if missing := h.install(p.Depends); missing != "" {
			return missing
		}
		for _, other := range h.conflicts(n) {
			h.removePackage(other)
		}
		h.changed("install %s", n)
		for f, text := range p.Files {
			h.put(f, text, modeOf(f))
		}
		h.policy(p)
	}
	return ""
}

// conflicts lists what is installed and conflicts with packages.
func (h *Host) conflicts(names ...string) (list []string) {
	have := h.Installed()
	for _, n := range names {
		for _, other := range h.Repo[n].Conflicts {
			if slices.Contains(have, other) {
				list = append(list, other)
			}
		}
	}
	return list
}

// provider is the one of packages that has, or provides, a name; empty: none.
func (h *Host) provider(name string, packages []string) string {
	for _, p := range packages {
		if p == name || slices.Contains(h.Repo[p].Provides, name) {
			return p
		}
	}
	return ""
}

func modeOf(p string) (mode uint32) {
	if dir := path.Base(path.Dir(p)); dir == "bin" || dir == "sbin" {
		return 0o755
	}
	return 0o644
}

// policy enables and starts units as Debian does when it installs a package.
func (h *Host) policy(p Package) {
	if h.Manager != "apt" {
		return
	}
	h.systemd.Lock()
	defer h.systemd.Unlock()
	for _, name := range p.Units {
		if u := h.unit(name); u != nil {
			h.enable(name, u)
			_ = h.start(name, h.unit(name)) // a unit that fails does not fail the installation
		}
	}
}

// needed maps those of names that stay, as packages that stay need them, to one of these.
func (h *Host) needed(names []string) map[string]string {
	stay := map[string]string{}
	for again := true; again; {
		again = false
		for _, other := range h.Installed() {
			if slices.Contains(names, other) && stay[other] == "" {
				continue
			}
			for _, n := range h.Repo[other].Depends {
				if slices.Contains(names, n) && stay[n] == "" {
					stay[n], again = other, true
				}
			}
		}
	}
	return stay
}

// removePackage removes a package and its files.
func (h *Host) removePackage(n string) {
	h.mu.Lock()
	delete(h.packages, n)
	h.mu.Unlock()
	h.changed("remove %s", n)
	h.systemd.Lock()
	defer h.systemd.Unlock()
	for _, name := range h.Repo[n].Units {
		if u := h.unit(name); u != nil {
			h.stop(name, u)
			h.disable(name)
		}
	}
	for f := range h.Repo[n].Files {
		h.fs.drop(f)
		for d := path.Dir(f); h.fs.remove(d, false) == nil; d = path.Dir(d) { // directories that got empty
		}
	}
	h.reload()
}

// missing lists what an installation of names would bring.
func (h *Host) missing(names []string) (list []string) {
	for _, n := range names {
		n = h.provider(n, sorted(h.Repo))
		if have := h.Installed(); n != "" && !slices.Contains(have, n) {
			list = append(append(list, h.missing(h.Repo[n].Depends)...), n)
		}
	}
	return list
}

// Installed lists the installed packages.
func (h *Host) Installed() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return sorted(h.packages)
}

func apt() map[string]Command {
	return map[string]Command{"dpkg-query": dpkgQuery, "apt-get": aptGet, "dpkg": dpkg, "apt-mark": nil, "dnf": nil, "yum": nil, "rpm": nil}
}

func rpm() map[string]Command {
	return map[string]Command{"rpm": rpmQuery, "dnf": dnf, "yum": dnf, "dpkg-query": nil, "apt-get": nil, "dpkg": nil}
}

func dpkgQuery(c *Call) int {
	o, names, ok := c.opts("W", "f")
	if !ok || o["W"] == "" {
		return c.Unknown()
	}
	have := c.Installed()
	status := 0
	if len(names) == 0 {
		names = have
	} else if all := strings.Join(names, " "); strings.Contains(all, "*") {
		names = matching(names, have)
	}
	for _, n := range names {
		if !slices.Contains(have, n) {
			status = c.Failf(1, "no packages found matching %s", n)
			continue
		}
		out := strings.NewReplacer("${db:Status-Status}", "installed", "${Package}", n, "${Version}", c.version(n), `\n`, "\n").Replace(o["f"])
		if strings.Contains(out, "${") {
			return c.Unknown()
		}
		c.Printf("%s", out)
	}
	return status
}

func aptGet(c *Call) int {
	o, args, ok := c.opts("qys", "oc", "--no-install-recommends", "--no-remove", "--allow-downgrades", "--purge", "--auto-remove", "--print-uris", "--only-upgrade", "--with-new-pkgs")
	if !ok || len(args) == 0 {
		return c.Unknown()
	}
	var from *repository // nil: those of the host
	if o["c"] != "" {
		if from = c.configured(o["c"]); from == nil {
			return c.Unknown()
		}
		if _, print := o["--print-uris"]; print && args[0] == "install" {
			return c.printURIs(from, args[1:])
		}
	}
	if _, only := o["--only-upgrade"]; only || args[0] == "upgrade" {
		return c.aptUpgrade(from, o["s"] != "", o["y"] != "", args[1:])
	}
	switch args[0] {
	case "update":
		if from != nil && from.dir != "" {
			return 0
		}
		if c.Offline {
			return c.Failf(100, "Failed to fetch: Temporary failure resolving")
		}
		c.mu.Lock()
		c.lists = true
		c.mu.Unlock()
		c.fetched()
		return 0
	case "check":
		return 0
	case "install":
		if n := c.unpack(args[1:]); n != "" {
			return c.Failf(100, "E: Unsupported file %s given on commandline", n)
		}
		c.mu.Lock()
		lists := c.lists || slices.ContainsFunc(c.Args[1:], func(a string) bool { return strings.HasSuffix(a, ".deb") })
		c.mu.Unlock()
		if from != nil {
			_, plan := o["s"]
			if n := c.unavailable(from, plan, args[1:]); n != "" {
				return c.Failf(100, "E: Package '%s' has no installation candidate", n)
			}
		} else if !lists {
			return c.Failf(100, "E: Unable to locate package %s", args[1])
		}
		for _, n := range args[1:] {
			if c.provider(n, sorted(c.Repo)) == "" && !slices.Contains(c.Installed(), n) {
				return c.Failf(100, "E: Unable to locate package %s", n)
			}
		}
		away := c.conflicts(c.missing(args[1:])...)
		if _, must := o["--no-remove"]; must && len(away) > 0 {
			return c.Failf(100, "E: Packages need to be removed but remove is disabled.")
		}
		if o["s"] != "" {
			for _, n := range away {
				c.Printf("Remv %s [%s]\n", n, cmp.Or(c.Repo[n].Version, "1.0"))
			}
			for _, n := range c.missing(args[1:]) {
				c.Printf("Inst %s (1.0 Debian:12 [amd64])\n", n)
			}
			return 0
		}
		if o["y"] == "" {
			return c.Failf(1, "Abort.")
		}
		if missing := c.install(args[1:]); missing != "" {
			return c.Failf(100, "E: Unable to locate package %s", missing)
		}
		return 0
	}
	return c.Unknown()
}

func dpkg(c *Call) int {
	if len(c.Args) < 3 || c.Args[1] != "--purge" {
		return c.Unknown()
	}
	names, status := c.Args[2:], 0
	stay := c.needed(names)
	for _, n := range names {
		switch {
		case !slices.Contains(c.Installed(), n):
			c.Failf(0, "warning: ignoring request to remove %s which isn't installed", n)
		case stay[n] != "":
			status = c.Failf(1, "dependency problems prevent removal of %s:\n %s depends on %s.", n, stay[n], n)
		default:
			c.removePackage(n)
		}
	}
	return status
}

// rpmErase removes all or none.
func rpmErase(c *Call) int {
	names, status := c.Args[2:], 0
	stay := c.needed(names)
	for _, n := range names {
		if !slices.Contains(c.Installed(), n) {
			status = c.Failf(1, "error: package %s is not installed", n)
		} else if stay[n] != "" {
			status = c.Failf(1, "error: Failed dependencies:\n\t%s is needed by (installed) %s-1-1.x86_64", n, stay[n])
		}
	}
	for _, n := range names {
		if status == 0 {
			c.removePackage(n)
		}
	}
	return status
}

func rpmQuery(c *Call) int {
	if len(c.Args) > 2 && c.Args[1] == "-e" {
		return rpmErase(c)
	}
	if len(c.Args) == 4 && c.Args[1] == "-q" && c.Args[2] == "--whatprovides" {
		p := c.provider(c.Args[3], c.Installed())
		if p == "" {
			c.Printf("no package provides %s\n", c.Args[3])
			return 1
		}
		c.Printf("%s-1-1.x86_64\n", p)
		return 0
	}
	var names []string
	format, all := "", false
	for i := 1; i < len(c.Args); i++ {
		switch a := c.Args[i]; {
		case a == "-qa":
			all = true
		case a == "--qf" && i+1 < len(c.Args):
			i++
			format = c.Args[i]
		case strings.HasPrefix(a, "-"):
			return c.Unknown()
		default:
			names = append(names, a)
		}
	}
	if !all || format != `%{NAME}\n` {
		return c.Unknown()
	}
	for _, n := range c.Installed() {
		if len(names) == 0 || len(matching(names, []string{n})) > 0 {
			c.Printf("%s\n", n)
		}
	}
	return 0
}

// timeServices are packages that keep the clock, as they are in a family of distributions.
func timeServices(manager string) map[string]Package {
	service := func(name, exe, wants string, conflicts ...string) Package {
		unit := name + ".service"
		return Package{Conflicts: conflicts, Units: []string{unit}, Files: map[string]string{
			exe: "ELF", "/usr/lib/systemd/system/" + unit: "[Service]\nType=notify\nExecStart=" + exe + "\n[Install]\nWantedBy=" + wants + "\n",
		}}
	}
	const chronyd, sources = "/usr/sbin/chronyd", "pool 2.pool.ntp.org iburst\n"
	if manager != "apt" {
		chrony := service("chronyd", chronyd, "multi-user.target")
		chrony.Files["/etc/chrony.conf"] = sources
		return map[string]Package{"chrony": chrony}
	}
	chrony := service("chrony", chronyd, "multi-user.target", "systemd-timesyncd")
	chrony.Files["/etc/chrony/chrony.conf"] = sources
	return map[string]Package{"chrony": chrony, "systemd-timesyncd": service("systemd-timesyncd", "/usr/sbin/systemd-timesyncd", "sysinit.target", "chrony")}
}

// nodePackages are the packages that a Kubernetes node needs, as they are in the
// repositories of both families of distributions.
func nodePackages() map[string]Package {
	repo := map[string]Package{}
	for _, n := range strings.Fields("conntrack conntrack-tools ebtables ethtool ipset socat ipvsadm nftables iptables libnginx-mod-stream nginx-mod-stream libnftables1 libxtables12 libwrap0 tzdata") {
		repo[n] = Package{Files: map[string]string{"/usr/share/doc/" + n + "/copyright": n + "\n"}}
	}
	for n, files := range map[string]string{"nftables": "nft", "iptables": "iptables-save iptables-restore ip6tables-save ip6tables-restore", "ipvsadm": "ipvsadm"} {
		for _, f := range strings.Fields(files) {
			repo[n].Files["/usr/sbin/"+f] = "ELF"
		}
	}
	confs := map[string]string{"keepalived": "/etc/keepalived/keepalived.conf"}
	for _, p := range plugin.Proxies() {
		confs[p.Name] = p.Config
	}
	for n, conf := range confs {
		repo[n] = Package{Units: []string{n + ".service"}, Files: map[string]string{
			"/usr/sbin/" + n: "ELF", conf: "# the distribution's\n",
			"/lib/systemd/system/" + n + ".service": "[Service]\nExecStart=/usr/sbin/" + n + "\n[Install]\nWantedBy=multi-user.target\n",
		}}
	}
	for n, depends := range map[string]string{"nftables": "libnftables1", "iptables": "libxtables12", "socat": "libwrap0"} {
		p := repo[n]
		p.Depends = strings.Fields(depends)
		repo[n] = p
	}
	return repo
}

package distro

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// System is a release of a Linux distribution. It is data only.
type System struct {
	Name    string   // as people ask for it: debian12
	ID      string   // of os-release(5)
	Like    []string // ID_LIKE, there
	Version string   // VERSION_ID, there, or what is before its first further dot
	Manager string   // apt, dnf or yum
	// sources are where its packages are published: of apt "URL suite component...", of dnf and yum base
	// URLs, with {arch} as RPM names it. arm64 has those for arm64 where they are elsewhere.
	sources, arm64 []string
	keys           keyring // with which the indexes are signed; none: they come by HTTPS
}

// keyring is a file on the machine that resolves, and the packages that bring it.
type keyring struct{ file, packages string }

var (
	debianKeys = keyring{"/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"}
	ubuntuKeys = keyring{"/usr/share/keyrings/ubuntu-archive-keyring.gpg", "ubuntu-keyring (Ubuntu has it; it can be installed on Debian, too)"}
)

// systems are those that a cluster can be made of: https://www.debian.org/releases,
// https://wiki.ubuntu.com/Releases, and what the repositories named here are documented with.
var systems = []System{
	debian("11", "bullseye"), debian("12", "bookworm"), debian("13", "trixie"),
	ubuntu("20.04", "focal"), ubuntu("22.04", "jammy"), ubuntu("24.04", "noble"),
	{
		Name: "centos7", ID: "centos", Like: redHat, Version: "7", Manager: "yum",
		sources: below("https://vault.centos.org/7.9.2009/", "os/{arch}/", "updates/{arch}/", "extras/{arch}/"),
		arm64:   below("https://vault.centos.org/altarch/7.9.2009/", "os/{arch}/", "updates/{arch}/", "extras/{arch}/"),
	},
	{Name: "centos8", ID: "centos", Like: redHat, Version: "8", Manager: "dnf", sources: streams("https://vault.centos.org/8.5.2111/")},
	// Red Hat's own need a subscription's certificate: name a mirror of yours in spec.source.mirrors.
	{Name: "rhel7", ID: "rhel", Like: redHat, Version: "7", Manager: "yum", sources: below("https://cdn.redhat.com/content/dist/rhel/server/7/7Server/", "{arch}/os/", "{arch}/extras/os/")},
	{Name: "rhel8", ID: "rhel", Like: redHat, Version: "8", Manager: "dnf", sources: below("https://cdn.redhat.com/content/dist/rhel8/8/", "{arch}/baseos/os/", "{arch}/appstream/os/")},
	{Name: "rhel9", ID: "rhel", Like: redHat, Version: "9", Manager: "dnf", sources: below("https://cdn.redhat.com/content/dist/rhel9/9/", "{arch}/baseos/os/", "{arch}/appstream/os/")},
	{Name: "rocky8", ID: "rocky", Like: redHat, Version: "8", Manager: "dnf", sources: streams("https://dl.rockylinux.org/pub/rocky/8/")},
	{Name: "rocky9", ID: "rocky", Like: redHat, Version: "9", Manager: "dnf", sources: streams("https://dl.rockylinux.org/pub/rocky/9/")},
	{Name: "almalinux8", ID: "almalinux", Like: redHat, Version: "8", Manager: "dnf", sources: streams("https://repo.almalinux.org/almalinux/8/")},
	{Name: "almalinux9", ID: "almalinux", Like: redHat, Version: "9", Manager: "dnf", sources: streams("https://repo.almalinux.org/almalinux/9/")},
	{Name: "anolis7", ID: "anolis", Like: redHat, Version: "7", Manager: "yum", sources: below("https://mirrors.openanolis.cn/anolis/7.9/", "os/{arch}/os/", "updates/{arch}/os/")},
	{Name: "anolis8", ID: "anolis", Like: redHat, Version: "8", Manager: "dnf", sources: streams("https://mirrors.openanolis.cn/anolis/8/")},
	openEuler("20.03", "LTS-SP4"), openEuler("22.03", "LTS-SP4"), openEuler("24.03", "LTS-SP2"),
	{Name: "kylinv10", ID: "kylin", Version: "V10", Manager: "dnf", sources: below("https://update.cs2c.com.cn/NS/V10/V10SP3/os/adv/lic/", "base/{arch}/", "updates/{arch}/")},
}

var redHat = []string{"rhel", "centos", "fedora"}

func debian(version, codename string) System {
	return System{
		Name: "debian" + version, ID: "debian", Version: version, Manager: "apt", keys: debianKeys, sources: []string{
			"http://deb.debian.org/debian/ " + codename + " main",
			"http://deb.debian.org/debian/ " + codename + "-updates main",
			"http://deb.debian.org/debian-security/ " + codename + "-security main",
		},
	}
}

func ubuntu(version, codename string) System {
	sources := func(base string) (all []string) {
		for _, pocket := range []string{"", "-updates", "-security"} {
			all = append(all, base+" "+codename+pocket+" main universe")
		}
		return all
	}
	return System{
		Name: "ubuntu" + strings.ReplaceAll(version, ".", ""), ID: "ubuntu", Like: []string{"debian"}, Version: version, Manager: "apt", keys: ubuntuKeys,
		sources: sources("http://archive.ubuntu.com/ubuntu/"), arm64: sources("http://ports.ubuntu.com/ubuntu-ports/"),
	}
}

func openEuler(version, release string) System {
	return System{
		Name: "openeuler" + strings.ReplaceAll(version, ".", ""), ID: "openEuler", Version: version, Manager: "dnf",
		sources: below("https://repo.openeuler.org/openEuler-"+version+"-"+release+"/", "everything/{arch}/", "update/{arch}/"),
	}
}

// streams are the two repositories of Red Hat's family from version 8 on.
func streams(base string) []string { return below(base, "BaseOS/{arch}/os/", "AppStream/{arch}/os/") }

func below(base string, dirs ...string) []string {
	for i := range dirs {
		dirs[i] = base + dirs[i]
	}
	return dirs
}

// Names are those of all systems.
func Names() []string {
	names := make([]string, len(systems))
	for i, s := range systems {
		names[i] = s.Name
	}
	return names
}

// Find returns the system of a name. The error for a name that is none's tells all that there are.
func Find(name string) (System, error) {
	if i := slices.IndexFunc(systems, func(s System) bool { return s.Name == name }); i >= 0 {
		return systems[i], nil
	}
	return System{}, fault.Advise(fmt.Errorf("unknown operating system %q", name), "use some of: "+strings.Join(Names(), ", "))
}

// NameOf returns the name of the system whose os-release(5) has these ID and VERSION_ID; empty: it is
// none of them.
func NameOf(id, version string) string {
	i := slices.IndexFunc(systems, func(s System) bool {
		return s.ID == id && (s.Version == version || strings.HasPrefix(version, s.Version+"."))
	})
	if i < 0 {
		return ""
	}
	return systems[i].Name
}

// Sources are where packages for an architecture are published: for apt "URL suite component...", else base URLs.
func (s System) Sources(arch string) []string {
	list := s.sources
	if arch == "arm64" && s.arm64 != nil {
		list = s.arm64
	}
	all := make([]string, len(list))
	for i, l := range list {
		all[i] = strings.ReplaceAll(l, "{arch}", Machine(arch))
	}
	return all
}

// Machine is how the kernel names an architecture, and RPM.
func Machine(arch string) string {
	if arch == "arm64" {
		return "aarch64"
	}
	return "x86_64"
}

// Signed reports whether the indexes of its sources are signed. Else nothing but TLS vouches for them.
func (s System) Signed() bool { return s.keys.file != "" }

// packageName is a file name that holds nothing but a package's name, version and architecture.
var packageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+~^_:-]*\.(deb|rpm)$`)

// IsPackage reports whether a package of the system may have a file of that name.
func (s System) IsPackage(file string) bool {
	suffix := ".rpm"
	if s.Manager == "apt" {
		suffix = ".deb"
	}
	return strings.HasSuffix(file, suffix) && packageName.MatchString(file)
}

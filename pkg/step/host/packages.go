package host

import (
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// family is what differs between distributions. The package manager itself is a fact
// of the host: of one family, CentOS 7 has yum, and later ones have dnf.
type family struct {
	ids      []string // ID or ID_LIKE of os-release(5)
	node     string   // packages that every node needs
	nfs      string   // package that mounts NFS
	iscsi    string   // package that attaches iSCSI disks
	clock    string   // service of chrony
	conf     string   // configuration of chrony
	clockEnv string   // variable that holds the options of chronyd
}

// families are the distributions that kubexm supports. Each need has one name, or the name of what
// provides it: ebtables is part of iptables-nft from Red Hat's version 9 on.
//
// Every package costs seconds on every new node. So the default are those without which a node does
// not work: what kubelet, kube-proxy and network plugins call (conntrack, iptables, nftables, ipset,
// ebtables, ethtool, ip, socat, modprobe). All others come with the feature that needs them,
// see Packages. bash-completion is for people, and left to spec.system.debs and rpms.
var families = []family{
	{ // Debian 11 to 13, Ubuntu 20.04 to 24.04
		ids:  []string{"debian", "ubuntu"},
		node: "conntrack ebtables ethtool iproute2 ipset iptables kmod nftables socat", nfs: "nfs-common", iscsi: "open-iscsi",
		clock: "chrony", conf: "/etc/chrony/chrony.conf", clockEnv: "DAEMON_OPTS",
	},
	{ // openEuler, Kylin V10
		ids:  []string{"openEuler", "kylin"},
		node: redHat, nfs: "nfs-utils", iscsi: "open-iscsi", clock: "chronyd", conf: "/etc/chrony.conf", clockEnv: "OPTIONS",
	},
	{ // CentOS 7 and 8, RHEL 7 to 9, Rocky Linux and AlmaLinux 8 and 9, Anolis
		ids:  []string{"rhel", "fedora", "centos", "rocky", "almalinux", "anolis"},
		node: redHat, nfs: "nfs-utils", iscsi: "iscsi-initiator-utils", clock: "chronyd", conf: "/etc/chrony.conf", clockEnv: "OPTIONS",
	},
}

const redHat = "conntrack-tools ebtables ethtool iproute ipset iptables kmod nftables socat"

// familyOf is the family of a host; a distribution that is not known is like those
// with its package manager.
func familyOf(f *runner.Facts) family {
	i := slices.IndexFunc(families, func(fam family) bool { return f.Is(fam.ids...) })
	if i < 0 && f.PackageManager != "apt" {
		i = len(families) - 1
	}
	return families[max(i, 0)]
}

// Packages installs what a node needs, what the features of the configuration need there,
// and the configuration's packages.
func Packages(c *cluster.Cluster, host string) step.Step {
	f, node := c.FactsOf(host), c.IsNode(host)
	fam := familyOf(f)
	p := step.Packages{Manager: f.PackageManager, From: c.Repository(host)}
	add := func(needed bool, names ...string) {
		if needed {
			p.Names = append(p.Names, names...)
		}
	}
	add(node, strings.Fields(fam.node)...)
	add(node && c.ProxyMode() == "ipvs", "ipvsadm")
	add(len(c.Spec.System.NTPServers) > 0, "chrony")
	add(c.Spec.System.Timezone != "", "tzdata")
	if s := c.Spec.Storage; s != nil && node { // https://longhorn.io/docs, "Installation Requirements": both
		add(s.NFS != nil || s.Longhorn != nil, fam.nfs)
		add(s.Longhorn != nil, fam.iscsi)
	}
	add(p.Manager == "apt", c.Spec.System.Debs...)
	add(p.Manager != "apt", c.Spec.System.RPMs...)
	return step.With(p, step.Options{Timeout: 20 * time.Minute})
}

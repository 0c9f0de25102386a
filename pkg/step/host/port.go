package host

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/step"
)

// Both come with systemd, from version 230 on.
const (
	activate = "/usr/bin/systemd-socket-activate"
	proxyd   = "/usr/lib/systemd/systemd-socket-proxyd"
)

// CanForward fails where Forward would.
func CanForward() step.Step {
	return step.Command{
		What: "systemd forwards ports", Unless: "[ -x " + activate + " ] && [ -x " + proxyd + " ]",
		Run: "echo 'the port of API servers cannot be changed without a gap: " + activate + " and " + proxyd + ", of the package systemd, are missing' >&2; exit 1",
	}
}

// Forward leads connections to where a host listens for API requests, from the wanted port and all former ones.
func Forward(c *cluster.Cluster, host string, to int) (units []step.Step) {
	bind, ip := "0.0.0.0", c.IP(host)
	if c.IPv6() {
		bind = "::"
	}
	switch h := c.Host(host); {
	case h.Is(v1alpha1.RoleLoadBalancer):
		ip = c.OwnIP()
	case !h.Is(v1alpha1.RoleMaster): // a proxy of its own
		bind, ip = c.OwnIP(), c.OwnIP()
	}
	for _, from := range append(slices.Clone(c.FormerPorts()), c.APIPort()) {
		if from == to {
			continue
		}
		units = append(units, step.Unit{
			Name: fmt.Sprint(cluster.Forwarder, from), Description: fmt.Sprintf("Port %d of the Kubernetes API servers, at port %d", to, from), Documentation: "man:systemd-socket-proxyd(8)",
			Command:  activate + " --setenv=KUBEXM_DIGEST --listen=" + net.JoinHostPort(bind, strconv.Itoa(from)) + " " + proxyd + " --connections-max=10000 " + net.JoinHostPort(ip, strconv.Itoa(to)),
			Settings: step.Limits(c.FactsOf(host).CanRaiseLimits(), "-999"),
		}.Service())
	}
	return units
}

// PortFree ends what Forward has begun at the port that is to be listened at.
func PortFree(c *cluster.Cluster) step.Step {
	unit := fmt.Sprint(cluster.Forwarder, c.APIPort())
	return step.Command{
		What:   fmt.Sprintf("port %d free", c.APIPort()),
		Unless: "! systemctl is-active -q " + unit + " && ! systemctl is-enabled -q " + unit,
		Run:    "systemctl -q disable --now " + unit, Undo: "systemctl -q enable --now " + unit,
	}
}

// Forwards reports whether a key of an inventory is of Forward.
func Forwards(key string) bool { return strings.Contains(key, cluster.Forwarder) }

// Package loadbalancer holds the steps by which API servers are reached when one of
// them, or a load balancer itself, is lost.
package loadbalancer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// settings are what the configuration of a proxy is made of.
type settings struct {
	Listen      string
	Connections int // each takes two files
	Interval    int // seconds from check to check, of each proxy
	Masters     []master
}

type master struct{ Name, Address string }

func settingsOf(c *cluster.Cluster, host, bind string) settings {
	data := settings{Listen: net.JoinHostPort(bind, strconv.Itoa(c.APIPort())), Connections: 450, Interval: 1}
	if c.Balancer() == v1alpha1.BalancerInternal {
		data.Interval += len(c.Workers()) / 100 // all of them check all masters
	}
	if c.FactsOf(host).CanRaiseLimits() {
		data.Connections = 20000
	}
	for _, m := range c.All(v1alpha1.RoleMaster) {
		data.Masters = append(data.Masters, master{m, net.JoinHostPort(c.IP(m), strconv.Itoa(c.APIPort()))})
	}
	return data
}

// config is the configuration of the proxy that listens on an address of its host.
func config(c *cluster.Cluster, host, bind string) step.File {
	p := plugin.ProxyOf(c.Spec)
	return step.File{Path: p.Config, Content: templates.Render(p.Template, settingsOf(c, host, bind)), Mode: 0o644}
}

// frame is the configuration but for the masters, and how often they are asked. It takes a restart: a proxy that cannot take another
// port at a reload goes on as before, and only its log says so.
func frame(c *cluster.Cluster, host, bind string) []byte {
	data := settingsOf(c, host, bind)
	data.Interval, data.Masters = 0, nil
	return templates.Render(plugin.ProxyOf(c.Spec).Template, data)
}

// Packages installs the proxy, and on a load balancer what moves the virtual address.
func Packages(c *cluster.Cluster, host string) step.Step {
	manager, p := c.FactsOf(host).PackageManager, plugin.ProxyOf(c.Spec)
	install := step.Packages{Manager: manager, Names: slices.Clone(p.Packages[manager]), Leaves: slices.Clone(p.PackagesLeft), From: c.Repository(host)}
	if vip := plugin.VIPOf(c.Spec); c.Host(host).Is(vip.Role) {
		install.Names, install.Leaves = append(install.Names, vip.Packages...), append(install.Leaves, vip.PackagesLeft...)
	}
	return install
}

// Everywhere is where a proxy listens that hosts of the cluster reach by any address of its machine.
func Everywhere(c *cluster.Cluster) string {
	if c.IPv6() {
		return "::"
	}
	return "*"
}

// Service runs the proxy under systemd.
func Service(c *cluster.Cluster, host, bind string) step.Step {
	p := plugin.ProxyOf(c.Spec)
	return step.Unit{
		Name: p.Name, Description: "Load balancer of the Kubernetes API servers", Documentation: "man:" + p.Name + "(1)",
		After: "network-online.target", Type: p.Type, Command: p.Command,
		Settings: append(step.Limits(c.FactsOf(host).CanRaiseLimits(), "-999"), "KillMode=mixed"),
		Titled:   p.Titled,
		Reload:   &step.Reload{Files: []step.File{config(c, host, bind)}, Frame: frame(c, host, bind), Check: p.Check, Signal: p.Signal},
	}.Service()
}

// Pod runs the proxy as a static pod.
func Pod(c *cluster.Cluster, host, bind string) step.Step {
	const mounted = "/etc/kubexm-proxy"
	p, conf := plugin.ProxyOf(c.Spec), config(c, host, bind)
	reload := step.Reload{Files: []step.File{conf}, Frame: frame(c, host, bind), Check: p.PodCheck, Signal: p.Signal}
	return step.PodFrom(p.Name, reload, mounted, p.Pod, func(command []string) []byte {
		return templates.Render("loadbalancer/proxy-pod", struct {
			Proxy, Image, Digest, Directory, Mounted string
			IPv6                                     bool
			Command                                  []string
			Port                                     int
		}{p.Name, c.Image(p.Parts[0].Name), templates.Digest(reload.Frame), path.Dir(p.Config), mounted, c.IPv6(), command, c.APIPort()})
	})
}

// Keepalived moves the virtual address between the load balancers.
func Keepalived(c *cluster.Cluster, host string) step.Step {
	hosts, vip := c.All(v1alpha1.RoleLoadBalancer), c.Spec.LoadBalancer.VIP
	rank := slices.Index(hosts, host)
	data := struct {
		Name, Interface, IP, VIP string
		Own                      string // where the proxy listens, too
		IPv6                     bool
		Port, RouterID, Priority int
		Peers                    []string
	}{
		Name: host, Interface: c.Interface(host), IP: c.IP(host), VIP: vip, Own: c.OwnIP(), IPv6: c.IPv6(),
		Port: c.APIPort(), RouterID: RouterID(vip), Priority: 150 - 10*rank,
	}
	for _, h := range hosts {
		if h != host {
			data.Peers = append(data.Peers, c.IP(h))
		}
	}
	path := plugin.VIPOf(c.Spec).Config
	conf := step.File{Path: path, Content: templates.Render("loadbalancer/keepalived", data), Mode: 0o644}
	unit := step.Unit{
		Name: "keepalived", Description: "Virtual address of the Kubernetes API servers", Documentation: "man:keepalived(8)",
		After: "network-online.target", Command: "/usr/sbin/keepalived --dont-fork --log-console --use-file=" + path,
		Settings: append(step.Limits(c.FactsOf(host).CanRaiseLimits(), "-999"), "KillMode=process"),
	}.Service()
	unit.Files = []step.File{conf}
	return unit
}

// Own waits until a load balancer of the user's listens at the port of API servers.
func Own(c *cluster.Cluster) step.Step {
	return step.APIReady{API: c.VIPAPI(), Advice: fmt.Sprintf("let your load balancer listen at port %[1]d of %[2]s, and lead from there to port %[1]d of all masters; "+
		"it must go on listening at the old port until kubexm apply has ended", c.APIPort(), c.Spec.LoadBalancer.VIP)}
}

// RouterID tells virtual routers apart. They speak to their own peers alone, and listen to
// no multicast group, unless there is but one of them: another router of that number in
// the network does no harm.
func RouterID(vip string) int {
	ip := net.ParseIP(vip)
	if ip == nil {
		return 1
	}
	return max(1, int(ip[len(ip)-1]))
}

// KubeVIP runs kube-vip as a static pod of a master. Its machine's API server must be
// there: a master asks itself, so that nothing needs the address before.
func KubeVIP(c *cluster.Cluster, host string) step.Step {
	k := c.Spec.LoadBalancer.KubeVIP
	var peers []string
	hold := "30"
	for _, p := range k.Peers {
		peers = append(peers, fmt.Sprintf("%s:%d::false", p.Address, p.ASN))
		if s := int(p.HoldTime.Seconds()); s > 0 {
			hold = fmt.Sprint(s)
		}
	}
	subnet := 32
	if c.IPv6() {
		subnet = 128
	}
	pod := templates.Render("loadbalancer/kube-vip", struct {
		Kubeconfig, Image, VIP, Interface, Mode, IP, Peers, HoldTime string
		Subnet, Port                                                 int
		ASN                                                          int64
	}{digest(c.AdminKubeconfig()), c.Image("kube-vip"), c.Spec.LoadBalancer.VIP, c.Interface(host), k.Mode, c.IP(host), strings.Join(peers, ","), hold, subnet, c.APIPort(), k.ASN})
	return step.File{Path: podFile, Content: pod, Mode: 0o600}
}

// digest tells a kubeconfig from others.
func digest(conf secret.Secret) string {
	sum := sha256.Sum256([]byte(conf.Reveal()))
	return hex.EncodeToString(sum[:8])
}

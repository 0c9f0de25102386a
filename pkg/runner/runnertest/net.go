package runnertest

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
)

func ip(c *Call) int {
	switch strings.Join(c.Args[1:], " ") {
	case "-4 route show", "-6 route show":
		c.mainRoutes(c.Args[1] == "-6")
		return 0
	case "-4 rule show", "-6 rule show":
		c.Printf("0:\tfrom all lookup local\n32766:\tfrom all lookup main\n")
		return 0
	case "-o link show":
		list, err := c.fs.readDir("/sys/class/net")
		c.must(err)
		for i, e := range list {
			c.Printf("%d: %s@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 state UP\n", i+1, e.Name())
		}
		return 0
	case "-o addr show":
		c.addresses("")
		return 0
	}
	if len(c.Args) == 6 && slices.Equal(c.Args[1:5], []string{"-o", "addr", "show", "to"}) {
		c.addresses(c.Args[5])
		return 0
	}
	if len(c.Args) == 4 && c.Args[1] == "link" && (c.Args[2] == "delete" || c.Args[2] == "show") {
		if !c.fs.exists("/sys/class/net/" + c.Args[3]) {
			return c.Failf(1, "Cannot find device %q", c.Args[3])
		}
		if c.Args[2] == "show" {
			c.Printf("3: %s: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500\n", c.Args[3])
			return 0
		}
		c.SetAddr(c.Args[3], "")
		c.changed("ip link delete %s", c.Args[3])
		return 0
	}
	return c.former()
}

// mainRoutes prints the routes of a family: where it has an address of that, those of its networks, and a default one; and those that were added.
func (c *Call) mainRoutes(six bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range sorted(c.addrs) {
		p, card := netip.MustParsePrefix(c.addrs[name]), strings.TrimSuffix(name, ":6")
		if p.Addr().Is6() != six || strings.HasPrefix(name, "lo") || p.IsSingleIP() {
			continue
		}
		if card == "eth0" {
			c.Printf("default via %s dev eth0\n", p.Masked().Addr().Next())
		}
		c.Printf("%s dev %s proto kernel scope link src %s\n", p.Masked(), card, p.Addr())
	}
	for _, to := range sorted(c.routes) {
		if strings.Contains(to, ":") == six {
			c.Printf("%s dev eth0 proto %s\n", withoutBits(to), c.routes[to])
		}
	}
}

// withoutBits is an address as ip shows a route to it.
func withoutBits(to string) string { return strings.TrimSuffix(strings.TrimSuffix(to, "/32"), "/128") }

// former gives the host further addresses on its loopback, by label, and routes, by protocol.
func (c *Call) former() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	words := c.Args[1:]
	six := words[0] == "-6"
	if six || words[0] == "-4" {
		words = words[1:]
	}
	last := len(words) - 1
	label := words[last]
	if words[last-1] == "metric" { // what IPv6 has instead
		label = "lo:" + label
	}
	switch line := strings.Join(words, " "); {
	case strings.HasPrefix(line, "addr replace ") && last >= 6:
		c.addrs[label] = words[2]
		if label == runner.FormerMark.Label || label == "lo:"+runner.FormerMark.Metric {
			c.log = append(c.log, "former address "+words[2])
		}
	case strings.HasPrefix(line, "addr del ") && last == 4:
		maps.DeleteFunc(c.addrs, func(_, at string) bool { return at == words[2] })
	case line == "-o -6 addr show dev lo":
		for _, name := range sorted(c.addrs) {
			c.measured(name)
		}
	case strings.HasPrefix(line, "addr flush dev lo label "):
		delete(c.addrs, label)
	case strings.HasPrefix(line, "-o addr show dev lo label "):
		if at, ok := c.addrs[label]; ok {
			c.Printf("1: lo    inet %s scope global %s\n", at, label)
		}
	case strings.HasPrefix(line, "-o -4 route get "), strings.HasPrefix(line, "-o -6 route get "):
		c.Printf("%s dev eth0 src %s uid 0\n", label, c.addrs["eth0"])
	case strings.HasPrefix(line, "route replace "):
		c.routes[words[2]] = words[slices.Index(words, "proto")+1]
		c.log = append(c.log, "route to "+words[2])
	case strings.HasPrefix(line, "route show proto "):
		for _, to := range sorted(c.routes) {
			if c.routes[to] == label && strings.Contains(to, ":") == six {
				c.Printf("%s proto %s\n", withoutBits(to), label)
			}
		}
	case strings.HasPrefix(line, "route show root "), strings.HasPrefix(line, "route flush root "):
		within := netip.MustParsePrefix(label)
		for _, to := range sorted(c.routes) {
			if p, err := netip.ParsePrefix(to); err != nil || p.Bits() < within.Bits() || !within.Contains(p.Addr()) {
				continue
			}
			if words[1] == "flush" {
				delete(c.routes, to)
			} else {
				c.Printf("%s proto %s\n", to, c.routes[to])
			}
		}
	case strings.HasPrefix(line, "route flush proto "):
		maps.DeleteFunc(c.routes, func(to, proto string) bool { return proto == label && strings.Contains(to, ":") == six })
	default:
		c.mu.Unlock()
		defer c.mu.Lock()
		return c.Unknown()
	}
	return 0
}

// addresses prints those of interfaces, or only one; empty: all.
func (c *Call) addresses(only string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, name := range sorted(c.addrs) {
		family, ip := "inet", netip.MustParsePrefix(c.addrs[name]).Addr()
		if ip.Is6() {
			family = "inet6"
		}
		if only == "" || ip.String() == only {
			if c.measured(name) {
				continue
			}
			card, _, _ := strings.Cut(name, ":")
			c.Printf("%d: %s    %s %s scope global %s\\       valid_lft forever preferred_lft forever\n", i+2, card, family, c.addrs[name], name)
		}
	}
}

// measured prints an address on the loopback that has a metric, if it is one.
func (c *Call) measured(name string) bool {
	metric, is := strings.CutPrefix(name, "lo:")
	if is = is && strings.Trim(metric, "0123456789") == ""; is {
		c.Printf("1: lo    inet6 %s metric %s scope global nodad \\       valid_lft forever preferred_lft forever\n", c.addrs[name], metric)
	}
	return is
}

// SetIPs gives its card addresses, of IPv4 and IPv6.
func (h *Host) SetIPs(ips ...string) {
	for _, ip := range ips {
		name, bits := "eth0", "/24"
		if strings.Contains(ip, ":") {
			bits = "/64"
			if len(ips) > 1 {
				name = "eth0:6"
			}
		}
		h.SetAddr(name, ip+bits)
	}
}

// SetAddr gives an interface its address in CIDR form; an empty one removes the interface.
func (h *Host) SetAddr(name, cidr string) {
	h.mu.Lock()
	h.addrs[name] = cidr
	if cidr == "" {
		delete(h.addrs, name)
	}
	h.mu.Unlock()
	if strings.Contains(name, ":") {
		return // a second one of an interface
	}
	if cidr == "" {
		h.fs.drop("/sys/class/net/" + name)
	} else {
		h.put("/sys/class/net/"+name+"/operstate", "up\n", 0o444)
		mac := "00:00:00:00:00:00"
		if sum := fnv(h.Name + name); name != "lo" {
			mac = fmt.Sprintf("52:%02x:%02x:%02x:%02x:%02x", byte(sum>>32), byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
		}
		h.put("/sys/class/net/"+name+"/address", mac+"\n", 0o444)
	}
}

// TakePort lets a process listen on a TCP port; an empty name ends that.
func (h *Host) TakePort(port int, process string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listen[port] = process
	if process == "" {
		delete(h.listen, port)
	}
}

func ss(c *Call) int {
	switch strings.Join(c.Args[1:], " ") {
	case "-ltnp":
		c.Printf("State  Recv-Q Send-Q Local Address:Port Peer Address:PortProcess\n")
	case "-Hltnp":
		if c.Systemd < 230 { // as old as the ss that has no -H
			return c.Failf(255, "invalid option -- 'H'")
		}
	default:
		return c.connections()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range 65536 {
		if name := c.listen[p]; name != "" {
			c.Printf("LISTEN 0      4096   0.0.0.0:%d      0.0.0.0:*    users:((%s,pid=%d,fd=3))\n", p, strconv.Quote(name), 400+p%100)
		}
	}
	return 0
}

// connections lists or closes the connections to ports of an address.
func (c *Call) connections() int {
	if len(c.Args) != 7 || (c.Args[1] != "-tn" && c.Args[1] != "-tnK") || strings.Join(c.Args[2:5], " ") != "state established dst" {
		return c.Unknown()
	}
	c.Printf("Recv-Q Send-Q Local Address:Port Peer Address:PortProcess\n")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to = slices.DeleteFunc(c.to, func(to string) bool {
		host, port, _ := net.SplitHostPort(to)
		if net.JoinHostPort(host, "") != c.Args[5]+":" || !strings.Contains(c.Args[6], "dport = :"+port+" ") {
			return false
		}
		c.Printf("0      0      10.0.0.14:40000 %s\n", to)
		return c.Args[1] == "-tnK"
	})
	return 0
}

// Connect has something on the host connect to an address.
func (h *Host) Connect(to string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.to = append(h.to, to)
}

// AddRules adds packet filter rules: table is "iptables", "ip6tables", or an nft table such as "ip kube-proxy".
func (h *Host) AddRules(table string, lines ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rules[table] = append(h.rules[table], lines...)
}

func rulesSave(c *Call) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.rules[strings.TrimSuffix(path.Base(c.Args[0]), "-save")]; len(l) > 0 {
		c.lines(slices.Concat([]string{"*filter"}, l, []string{"COMMIT"}))
	}
	return 0
}

func rulesRestore(c *Call) int {
	b, _ := c.input(nil)
	table := strings.TrimSuffix(path.Base(c.Args[0]), "-restore")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rules[table] = slices.DeleteFunc(splitLines(b), func(l string) bool { return l == "*filter" || l == "COMMIT" })
	c.log = append(c.log, "restore "+table)
	return 0
}

func nft(c *Call) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch args := strings.Join(c.Args[1:], " "); {
	case args == "list tables":
		for _, t := range sorted(c.rules) {
			if strings.Contains(t, " ") {
				c.Printf("table %s\n", t)
			}
		}
	case strings.HasPrefix(args, "list table "):
		t := strings.TrimPrefix(args, "list table ")
		if _, ok := c.rules[t]; !ok {
			return c.Failf(1, "Error: No such file or directory")
		}
		c.lines(slices.Concat([]string{"table " + t + " {"}, c.rules[t], []string{"}"}))
	case strings.HasPrefix(args, "delete table "):
		t := strings.TrimPrefix(args, "delete table ")
		if _, ok := c.rules[t]; !ok {
			return c.Failf(1, "Error: No such file or directory")
		}
		delete(c.rules, t)
		c.log = append(c.log, "delete table "+t)
	default:
		return c.Unknown()
	}
	return 0
}

func ipvsadm(c *Call) int {
	if len(c.Args) != 2 || c.Args[1] != "-C" {
		return c.Unknown()
	}
	c.changed("ipvsadm -C")
	return 0
}

// bash only connects: ": </dev/tcp/ADDRESS/PORT". Ports that nothing listens on
// refuse, unless Blocked says otherwise.
func bash(c *Call) int {
	if len(c.Args) != 5 || c.Args[1] != "-c" || c.Args[2] != ": </dev/tcp/$0/$1" {
		return c.Unknown()
	}
	address := net.JoinHostPort(c.Args[3], c.Args[4])
	c.mu.Lock()
	served := c.services[address] != nil
	c.mu.Unlock()
	why, blocked := c.Blocked[address]
	switch {
	case blocked && why == "":
		return 124 // of timeout, in which it runs
	case blocked:
		return c.Failf(1, "connect: %s", why)
	case served:
		return 0
	}
	return c.Failf(1, "connect: Connection refused")
}

// getent looks up addresses of names in /etc/hosts.
func getent(c *Call) int {
	if len(c.Args) != 3 || c.Args[1] != "ahosts" {
		return c.Unknown()
	}
	hosts, _ := c.Get("/etc/hosts")
	for l := range strings.Lines(hosts) {
		if f := strings.Fields(l); len(f) > 1 && slices.Contains(f[1:], c.Args[2]) {
			c.Printf("%s       STREAM %s\n%[1]s       DGRAM  \n", f[0], c.Args[2])
			return 0
		}
	}
	return 2
}

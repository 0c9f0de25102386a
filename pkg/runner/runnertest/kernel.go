package runnertest

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// kernel are the commands about the kernel, network and mounts.
func kernel() map[string]Command {
	return map[string]Command{
		"uname": uname, "nproc": nproc, "hostname": hostname, "hostnamectl": hostnamectl, "modprobe": modprobe, "sysctl": sysctl,
		"swapon": swapon, "swapoff": swapoff, "ip": ip, "tc": func(*Call) int { return 0 }, "ss": ss, "mount": mount, "umount": umount, "mountpoint": mountpoint,
		"bash": bash, "getent": getent, "systemd-detect-virt": virt,
	}
}

func uname(c *Call) int {
	switch strings.Join(c.Args[1:], " ") {
	case "-m":
		c.Printf("%s\n", c.Machine)
	case "-r":
		c.Printf("%s\n", c.Kernel)
	default:
		return c.Unknown()
	}
	return 0
}

// virt knows no containers.
func virt(c *Call) int {
	if len(c.Args) != 2 || c.Args[1] != "-c" {
		return c.Unknown()
	}
	c.Printf("none\n")
	return 1
}

func nproc(c *Call) int { c.Printf("%d\n", c.CPUs); return 0 }

func hostname(c *Call) int {
	if len(c.Args) != 1 {
		return c.Unknown()
	}
	b, _ := c.input([]string{"/proc/sys/kernel/hostname"})
	c.Printf("%s", b)
	return 0
}

func hostnamectl(c *Call) int {
	if len(c.Args) != 3 || c.Args[1] != "set-hostname" && c.Args[1] != "hostname" {
		return c.Unknown()
	}
	c.put("/etc/hostname", c.Args[2]+"\n", 0o644)
	c.put("/proc/sys/kernel/hostname", c.Args[2]+"\n", 0o644)
	c.changed("hostname %s", c.Args[2])
	return 0
}

// Loaded reports whether a kernel module is loaded.
func (h *Host) Loaded(module string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.loaded, module)
}

func modprobe(c *Call) int {
	o, names, ok := c.opts("nqarD", "", "--show-depends")
	if _, show := o["--show-depends"]; show {
		o["D"] = "y"
	}
	if !ok {
		return c.Unknown()
	}
	for _, m := range names {
		builtIn, found := c.Modules[m]
		switch {
		case o["r"] != "":
			c.unload1(m)
		case !found && o["q"] != "":
			return 1
		case !found:
			return c.Failf(1, "FATAL: Module %s not found in directory /lib/modules/%s", m, c.Kernel)
		case o["D"] != "" && builtIn:
			c.Printf("builtin %s\n", m)
		case o["D"] != "":
			c.Printf("insmod /lib/modules/%s/kernel/%s.ko \n", c.Kernel, m)
		case o["n"] == "" && !builtIn && !c.Loaded(m):
			c.load1(m)
			c.changed("modprobe %s", m)
		}
	}
	return 0
}

// load1 loads a module with what it brings to /proc/sys.
func (h *Host) load1(m string) {
	h.mu.Lock()
	h.loaded = append(h.loaded, m)
	h.mu.Unlock()
	if m == "br_netfilter" {
		h.put("/proc/sys/net/bridge/bridge-nf-call-iptables", "1\n", 0o644)
		h.put("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "1\n", 0o644)
	}
	if m == "nf_conntrack" {
		h.put("/proc/sys/net/netfilter/nf_conntrack_max", "262144\n", 0o644)
	}
}

// unload1 unloads a module with what it brought to /proc/sys.
func (h *Host) unload1(m string) {
	if !h.Loaded(m) {
		return
	}
	h.mu.Lock()
	h.loaded = slices.DeleteFunc(h.loaded, func(l string) bool { return l == m })
	h.mu.Unlock()
	if m == "br_netfilter" {
		h.fs.drop("/proc/sys/net/bridge")
	}
	if m == "nf_conntrack" {
		h.fs.drop("/proc/sys/net/netfilter")
	}
	h.changed("modprobe -r %s", m)
}

func sysctl(c *Call) int {
	o, args, ok := c.opts("nwq", "p", "--system")
	_, system := o["--system"]
	switch {
	case ok && system && len(args) == 0:
		c.applySysctl()
		c.changed("sysctl --system")
		return 0
	case !ok || len(args) != 1:
		return c.Unknown()
	}
	key, value, set := strings.Cut(args[0], "=")
	p := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
	if set {
		f, err := c.create(p, 0o644, true)
		if err == nil {
			_, err = f.Write([]byte(value + "\n"))
		}
		if err != nil {
			return c.fail(err)
		}
		return 0
	}
	b, err := c.fs.read(p)
	if err != nil || o["n"] == "" {
		return c.Failf(1, "cannot stat %s: No such file or directory", p)
	}
	_, _ = c.Stdout.Write(b)
	return 0
}

// applySysctl does what systemd-sysctl does at boot.
func (h *Host) applySysctl() {
	list, err := h.fs.readDir("/etc/sysctl.d")
	if err != nil {
		return
	}
	for _, e := range list {
		b, err := h.fs.read(path.Join("/etc/sysctl.d", e.Name()))
		if err != nil {
			continue
		}
		for _, l := range splitLines(b) {
			k, v, ok := strings.Cut(l, "=")
			p := "/proc/sys/" + strings.ReplaceAll(strings.TrimPrefix(strings.TrimSpace(k), "-"), ".", "/")
			if ok && h.fs.exists(p) {
				h.put(p, strings.TrimSpace(v)+"\n", 0o644)
			}
		}
	}
}

// fstabSwaps lists the swap devices of /etc/fstab.
func (h *Host) fstabSwaps() (devices []string) {
	b, err := h.fs.read("/etc/fstab")
	if err != nil {
		return nil
	}
	for _, l := range splitLines(b) {
		if f := strings.Fields(l); len(f) > 2 && f[2] == "swap" && f[0][0] != '#' {
			devices = append(devices, f[0])
		}
	}
	return devices
}

func swapon(c *Call) int {
	o, args, ok := c.opts("a", "")
	if !ok {
		return c.Unknown()
	}
	if o["a"] != "" {
		args = append(args, c.fstabSwaps()...)
	}
	for _, d := range args {
		c.mu.Lock()
		on := slices.Contains(c.swaps, d)
		if !on {
			c.swaps = append(c.swaps, d)
		}
		c.mu.Unlock()
		if on {
			return c.Failf(255, "%s: swapon failed: Device or resource busy", d)
		}
		c.changed("swapon %s", d)
	}
	return 0
}

func swapoff(c *Call) int {
	o, args, ok := c.opts("a", "")
	if !ok {
		return c.Unknown()
	}
	c.mu.Lock()
	if o["a"] != "" {
		args = slices.Clone(c.swaps)
	}
	c.mu.Unlock()
	for _, d := range args {
		c.mu.Lock()
		i := slices.Index(c.swaps, d)
		if i >= 0 {
			c.swaps = slices.Delete(c.swaps, i, i+1)
		}
		c.mu.Unlock()
		if i < 0 {
			return c.Failf(4, "%s: swapoff failed: Invalid argument", d)
		}
		c.changed("swapoff %s", d)
	}
	return 0
}

func (h *Host) procSwaps() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	for _, d := range h.swaps {
		s += d + "                               partition\t1048572\t\t0\t\t-2\n"
	}
	return s
}

func (h *Host) procModules() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := ""
	for _, m := range slices.Backward(h.loaded) {
		s += m + " 32768 0 - Live 0x0000000000000000\n"
	}
	return s
}

func (h *Host) procMounts() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := "/dev/vda1 / ext4 rw,relatime 0 0\n"
	for _, m := range h.mounts {
		s += m[0] + " " + m[1] + " " + m[2] + " rw,relatime 0 0\n"
	}
	return s
}

// kallsyms has the symbols of modules that are built in or loaded.
func (h *Host) kallsyms() string {
	symbols := map[string]string{"overlay": "ovl_fill_super", "br_netfilter": "br_nf_pre_routing", "nf_tables": "nft_do_chain", "ip_vs": "ip_vs_in_hook", "vxlan": "vxlan_xmit", "ip_set": "ip_set_test"}
	s := "0000000000000000 T startup_64\n"
	for _, m := range sorted(symbols) {
		switch {
		case h.Loaded(m):
			s += "0000000000000000 t " + symbols[m] + "\t[" + m + "]\n"
		case h.Modules[m]:
			s += "0000000000000000 t " + symbols[m] + "\n"
		}
	}
	return s
}

func mount(c *Call) int {
	o, args, ok := c.opts("", "to")
	if !ok || len(args) != 2 {
		return c.Unknown()
	}
	c.mu.Lock()
	c.mounts = append(c.mounts, [3]string{args[0], args[1], o["t"]})
	c.mu.Unlock()
	c.changed("mount %s", args[1])
	return 0
}

func umount(c *Call) int {
	_, args, ok := c.opts("lf", "")
	if !ok {
		return c.Unknown()
	}
	for _, at := range args {
		if !c.mounted(at) {
			return c.Failf(32, "%s: not mounted.", at)
		}
		c.mu.Lock()
		c.mounts = slices.DeleteFunc(c.mounts, func(m [3]string) bool { return m[1] == at })
		c.mu.Unlock()
		c.changed("umount %s", at)
	}
	return 0
}

func (h *Host) mounted(at string) bool {
	return strings.Contains(h.procMounts(), " "+at+" ")
}

func mountpoint(c *Call) int {
	_, args, ok := c.opts("q", "")
	if !ok || len(args) != 1 {
		return c.Unknown()
	}
	if !c.mounted(args[0]) {
		return 32
	}
	return 0
}

// Mount records a mount, as a service that makes one does.
func (h *Host) Mount(what, at, kind string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mounts = append(h.mounts, [3]string{what, at, kind})
}

// meminfo is the start of /proc/meminfo.
func (h *Host) meminfo() string {
	return fmt.Sprintf("MemTotal:       %8d kB\nMemFree:        %8d kB\n", h.MemoryMiB*1024, h.MemoryMiB*512)
}

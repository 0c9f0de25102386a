package runnertest

import (
	"fmt"
	"io/fs"
	"maps"
	"net"
	"path"
	"strings"
	"time"
)

// Debian12 returns a host like a fresh cloud image of Debian 12 (amd64, 4 CPUs,
// 8 GiB, one interface, swap on).
func Debian12(name string) *Host {
	h := newHost(name, "apt", 252, "6.1.0-37-amd64", apt())
	h.put("/etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION=\"12 (bookworm)\"\n"+
		"VERSION_CODENAME=bookworm\nID=debian\nHOME_URL=\"https://www.debian.org/\"\n", 0o644)
	for _, p := range []string{"base-files", "bash", "coreutils", "dpkg", "iproute2", "kmod", "openssh-server", "systemd", "util-linux"} {
		h.packages[p] = true
	}
	h.brings("systemd-timesyncd")
	return h
}

// Rocky9 returns a host like a fresh cloud image of Rocky Linux 9.
func Rocky9(name string) *Host {
	h := newHost(name, "dnf", 252, "5.14.0-570.el9.x86_64", rpm())
	h.put("/etc/os-release", "NAME=\"Rocky Linux\"\nVERSION=\"9.6 (Blue Onyx)\"\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.6\"\n"+
		"PLATFORM_ID=\"platform:el9\"\nPRETTY_NAME=\"Rocky Linux 9.6 (Blue Onyx)\"\n", 0o644)
	for _, p := range []string{"bash", "coreutils", "iproute", "kmod", "openssh-server", "rpm", "systemd", "util-linux"} {
		h.packages[p] = true
	}
	h.Repo["iptables-nft"] = Package{Files: h.Repo["iptables"].Files, Provides: []string{"iptables", "ebtables"}}
	delete(h.Repo, "iptables")
	delete(h.Repo, "ebtables")
	h.brings("chrony")
	return h
}

// brings installs packages with services that run from the beginning.
func (h *Host) brings(packages ...string) {
	h.install(packages)
	h.systemd.Lock()
	defer h.systemd.Unlock()
	for _, p := range packages {
		for _, name := range h.Repo[p].Units {
			h.enable(name, h.unit(name))
			if u := h.unit(name); h.state(u) != "active" {
				h.must(h.start(name, u))
			}
		}
	}
	h.ClearLog()
}

// initialSysctls are kernel parameters as a kernel starts with them.
var initialSysctls = map[string]string{
	"net/ipv4/ip_forward": "0", "net/ipv4/ip_local_port_range": "32768\t60999", "net/ipv4/conf/all/rp_filter": "2", "net/ipv4/conf/all/forwarding": "0",
	"net/ipv4/conf/default/rp_filter": "2", "net/ipv4/ip_nonlocal_bind": "0", "net/ipv4/vs/conntrack": "0", "net/ipv4/tcp_keepalive_time": "7200",
	"net/ipv4/tcp_rmem": "4096\t131072\t6291456", "net/ipv4/neigh/default/gc_thresh1": "128", "net/ipv4/neigh/default/gc_thresh2": "512",
	"net/ipv4/neigh/default/gc_thresh3": "1024", "net/ipv6/conf/all/forwarding": "0", "net/ipv6/conf/all/disable_ipv6": "0",
	"net/core/somaxconn": "4096", "net/core/netdev_max_backlog": "1000", "net/core/rmem_max": "212992", "net/core/wmem_max": "212992",
	"kernel/panic": "0", "kernel/panic_on_oops": "0", "kernel/pid_max": "4194304", "kernel/keys/root_maxkeys": "1000000",
	"kernel/keys/root_maxbytes": "25000000", "vm/overcommit_memory": "0", "vm/panic_on_oom": "0", "vm/swappiness": "60", "vm/max_map_count": "65530",
	"fs/file-max": "9223372036854775807", "fs/inotify/max_user_instances": "128", "fs/inotify/max_user_watches": "65536",
	"fs/may_detach_mounts": "1", "fs/nr_open": "1048576",
}

func newHost(name, manager string, systemdVersion int, kernelRelease string, pm map[string]Command) *Host {
	h := &Host{
		Name: name, Manager: manager, Systemd: systemdVersion, Kernel: kernelRelease, Machine: "x86_64", CPUs: 4, MemoryMiB: 7941, DiskMiB: 40960,
		Commands: map[string]Command{"openssl": nil, "chronyc": nil, "ufw": nil, "firewall-cmd": nil, "setenforce": nil},
		OnStart:  map[string]func(*Host) error{"containerd.service": startContainerd, "crio.service": startCRIO, "docker.service": startDocker, "cri-docker.service": startShim, "kubelet.service": startKubelet},
		OnReload: map[string]func(*Host) error{"crio.service": reloadCRIO}, OnStop: map[string]func(*Host){"kubelet.service": stopKubelet}, Repo: nodePackages(),
		Modules: map[string]bool{
			"overlay": false, "br_netfilter": false, "nf_tables": false, "nf_conntrack": false, "vxlan": false, "ip_set": false,
			"ip_vs": false, "ip_vs_rr": false, "ip_vs_wrr": false, "ip_vs_sh": false, "ip_tables": false, "bridge": true,
		},
		fs: newFS(), units: map[string]*unit{}, forked: map[int]func(){}, journal: map[string][]string{}, packages: map[string]bool{},
		listen: map[int]string{22: "sshd"}, swaps: []string{"/dev/vda2"}, pods: map[string]bool{}, static: map[string]staticPod{},
		addrs: map[string]string{}, routes: map[string]string{}, rules: map[string][]string{}, services: map[string]func() (net.Conn, error){}, Programs: programs(),
	}
	for _, table := range []map[string]Command{coreutils(), textutils(), systemd(), kernel(), pm} {
		maps.Copy(h.Commands, table)
	}
	maps.Copy(h.Repo, timeServices(manager))
	h.base()
	h.SetAddr("lo", "127.0.0.1/8")
	h.SetAddr("eth0", "10.0.0.11/24")
	h.begin()
	h.boot()
	return h
}

// base makes the files of a fresh machine.
func (h *Host) base() {
	for _, d := range []string{
		"/bin", "/boot", "/dev", "/etc/systemd/system/multi-user.target.wants", "/etc/modules-load.d", "/etc/sysctl.d", "/etc/profile.d",
		"/home", "/lib/systemd/system", "/opt", "/proc", "/root", "/run/systemd/system", "/sbin", "/srv", "/sys/fs/bpf", "/sys/fs/cgroup", "/sys/module", "/tmp",
		"/usr/bin", "/usr/lib/systemd/system", "/usr/local/bin", "/usr/sbin", "/usr/share", "/var/backups", "/var/lib", "/var/log", "/var/tmp", "/var/spool",
	} {
		h.must(h.fs.mkdirAll(d, 0o755))
	}
	h.must(h.fs.change("/tmp", true, func(n *inode) { n.mode = fs.ModeDir | fs.ModeSticky | 0o777 }))
	h.put("/dev/null", "", 0o666)
	h.must(h.fs.change("/dev/null", true, func(n *inode) { n.mode |= fs.ModeDevice | fs.ModeCharDevice }))
	id := fmt.Sprintf("%032x", fnv(h.Name))
	for p, text := range map[string]string{
		"/etc/hostname": h.Name + "\n", "/etc/machine-id": id + "\n", "/etc/hosts": "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n",
		"/sys/class/dmi/id/product_uuid": fmt.Sprintf("%s-%s-%s-%s-%s\n", id[:8], id[8:12], id[12:16], id[16:20], id[20:]),
		"/etc/resolv.conf":               "nameserver 10.0.0.2\n", "/etc/fstab": "/dev/vda1 / ext4 defaults 0 1\n/dev/vda2 none swap sw 0 0\n",
		"/etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n", "/etc/group": "root:x:0:\nnogroup:x:65534:\n",
		"/etc/ssh/sshd_config":            "PermitRootLogin prohibit-password\n",
		"/lib/systemd/system/ssh.service": "[Service]\nExecStart=/usr/sbin/sshd -D\n[Install]\nWantedBy=multi-user.target\n",
	} {
		h.put(p, text, 0o644)
	}
	for _, program := range []string{"/usr/sbin/sshd", "/usr/bin/systemd-socket-activate", "/usr/lib/systemd/systemd-socket-proxyd"} {
		h.put(program, "ELF", 0o755)
	}
	h.put("/usr/share/doc/README", "x\n", 0o644)
	h.must(h.fs.symlink("/lib/systemd/system/ssh.service", "/etc/systemd/system/multi-user.target.wants/ssh.service"))
}

func (h *Host) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("runnertest: %s: %v", h.Name, err))
	}
}

func fnv(s string) (sum uint64) {
	sum = 14695981039346656037
	for i := range len(s) {
		sum = (sum ^ uint64(s[i])) * 1099511628211
	}
	return sum
}

// boot makes what the kernel and systemd make when a machine starts.
func (h *Host) boot() {
	for k, v := range initialSysctls {
		h.put("/proc/sys/"+k, v+"\n", 0o644)
	}
	name, err := h.fs.read("/etc/hostname")
	h.must(err)
	h.put("/proc/sys/kernel/hostname", string(name), 0o644)
	h.must(h.fs.mkdirAll("/run/systemd/system", 0o755))
	h.must(h.fs.mkdirAll("/run/lock", 0o755))
	h.put("/proc/1/comm", "systemd\n", 0o444)
	h.put("/proc/1/status", "Name:\tsystemd\nCapBnd:\t000001ffffffffff\n", 0o444)
	h.put("/proc/filesystems", "nodev\tsysfs\nnodev\ttmpfs\nnodev\toverlay\n\text4\n", 0o444)
	h.put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro\n", 0o444)
	h.put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc\n", 0o444)
	for p, gen := range map[string]func() string{
		"/proc/swaps": h.procSwaps, "/proc/modules": h.procModules, "/proc/mounts": h.procMounts,
		"/proc/kallsyms": h.kallsyms, "/proc/meminfo": h.meminfo, "/proc/uptime": uptime(time.Now()),
	} {
		h.put(p, "", 0o444)
		h.must(h.fs.change(p, true, func(n *inode) { n.gen = gen }))
	}
	list, err := h.fs.readDir("/etc/modules-load.d")
	h.must(err)
	for _, e := range list {
		b, err := h.fs.read(path.Join("/etc/modules-load.d", e.Name()))
		h.must(err)
		for _, m := range splitLines(b) {
			if builtIn, found := h.Modules[m]; found && !builtIn && !h.Loaded(m) {
				h.load1(m)
			}
		}
	}
	h.applySysctl()
	h.systemd.Lock()
	defer h.systemd.Unlock()
	for _, name := range h.enabled() {
		if u := h.load(name); u != nil {
			_ = h.start(name, u) // a unit that fails does not fail the boot
		}
	}
	h.ClearLog()
}

// uptime is the content of /proc/uptime of a host that has just started.
func uptime(started time.Time) func() string {
	return func() string { return fmt.Sprintf("%.2f 0.00\n", 1+time.Since(started).Seconds()) }
}

// Reboot cuts the power and starts the host again: what is not in files is
// gone, and enabled units start. Kill, Cut and a cut connection are over.
func (h *Host) Reboot() {
	h.mu.Lock()
	h.Kill, h.Cut = nil, nil
	h.mu.Unlock()
	h.again()
}

// again starts the host once more.
func (h *Host) again() {
	h.mu.Lock()
	h.forked = map[int]func(){}
	h.units, h.loaded, h.mounts, h.swaps, h.listen = map[string]*unit{}, nil, nil, nil, map[int]string{22: "sshd"}
	h.mu.Unlock()
	for _, d := range []string{"/proc", "/run", "/tmp"} {
		list, err := h.fs.readDir(d)
		h.must(err)
		for _, e := range list {
			h.fs.drop(path.Join(d, e.Name()))
		}
	}
	swaps := h.fstabSwaps()
	h.mu.Lock()
	h.swaps = swaps
	clear(h.pods)
	for name := range h.static {
		h.losePod(name)
	}
	clear(h.rules)
	clear(h.routes)
	maps.DeleteFunc(h.addrs, func(label, _ string) bool { return strings.HasPrefix(label, "lo:") })
	h.mu.Unlock()
	h.begin()
	h.SetDown(false)
	h.boot()
}

// put writes a file without a line in the log, for what is not done by a script.
func (h *Host) put(p, text string, mode uint32) {
	h.fs.mu.Lock()
	dir, name, _, err := h.fs.walk(p, true, 0)
	if dir == nil {
		h.fs.mu.Unlock()
		h.must(h.fs.mkdirAll(path.Dir(p), 0o755))
		h.fs.mu.Lock()
		dir, name, _, err = h.fs.walk(p, true, 0)
	}
	defer h.fs.mu.Unlock()
	if dir == nil {
		panic(fmt.Sprintf("runnertest: writing %s: %v", p, err))
	}
	n := h.fs.node(fs.FileMode(mode))
	n.data = []byte(text)
	dir.kids[name] = n
}

// drop removes a tree without a line in the log.
func (f *fsys) drop(p string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if dir, name, n, _ := f.walk(p, false, 0); n != nil {
		delete(dir.kids, name)
	}
}

// Put writes a file as a test or a service wants it there, with all directories above it.
func (h *Host) Put(p, text string, mode fs.FileMode) { h.put(p, text, uint32(mode.Perm())) }

// Remove removes a file or a tree, if it is there.
func (h *Host) Remove(p string) { h.fs.drop(p) }

// Get returns the content of a file; ok is false when there is none.
func (h *Host) Get(p string) (text string, ok bool) {
	b, err := h.fs.read(p)
	return string(b), err == nil
}

// Mode returns the type and permissions of a path, 0 when there is none.
func (h *Host) Mode(p string) fs.FileMode {
	i, err := h.fs.stat(p, false)
	if err != nil {
		return 0
	}
	return i.mode
}

package runnertest

import (
	"errors"
	"path"
	"strings"
)

// programs are what files of their name do when they are run: those that kubexm
// puts on a host, and those of packages that it uses.
func programs() map[string]Command {
	return map[string]Command{
		"ctr": ctr, "crictl": crictl, "kubeadm": kubeadm, "nft": nft, "ipvsadm": ipvsadm,
		"iptables-save": rulesSave, "ip6tables-save": rulesSave, "iptables-restore": rulesRestore, "ip6tables-restore": rulesRestore,
	}
}

// kubeadm makes and removes the files that the real one makes and removes.
func kubeadm(c *Call) int {
	verb := ""
	if len(c.Args) > 1 {
		verb = c.Args[1]
	}
	config := ""
	for i, a := range c.Args {
		if a == "--config" && i+1 < len(c.Args) {
			config, _ = c.Get(c.path(c.Args[i+1]))
		}
	}
	switch {
	case verb == "reset":
		return c.kubeadmReset()
	case verb != "init" && verb != "join":
		return c.Unknown()
	case config == "":
		return c.Failf(1, "unable to read config: no such file or directory")
	case c.containerdRuns() != 0:
		return 1
	case verb == "init":
		return c.kubeadmInit(config)
	}
	return c.kubeadmJoin(config)
}

// write is a write of a program.
func (c *Call) write(p, text string, mode uint32) {
	c.put(p, text, mode)
	c.changed("write %s", p)
}

func (c *Call) kubeadmInit(config string) int {
	const dir = "/etc/kubernetes/"
	c.controlPlane(strings.Contains(config, "\n  local:"))
	c.writeNew(dir+"super-admin.conf", "kubeconfig", 0o600)
	c.writeNew(dir+"kubelet.conf", "kubeconfig", 0o600)
	return c.kubeletStart(config)
}

// controlPlane makes the files of a master.
func (c *Call) controlPlane(etcd bool) {
	const dir = "/etc/kubernetes/"
	pairs := []string{"ca", "apiserver", "apiserver-kubelet-client", "front-proxy-ca", "front-proxy-client"}
	static := []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	if etcd {
		pairs = append(pairs, "etcd/ca", "etcd/server", "etcd/peer", "etcd/healthcheck-client", "apiserver-etcd-client")
		static = append(static, "etcd")
	}
	for _, p := range pairs {
		c.writeNew(dir+"pki/"+p+".crt", "certificate "+p, 0o644)
		c.writeNew(dir+"pki/"+p+".key", "key "+p, 0o600)
	}
	c.writeNew(dir+"pki/sa.key", "key sa", 0o600)
	c.writeNew(dir+"pki/sa.pub", "public key sa", 0o600)
	for _, f := range []string{"admin.conf", "controller-manager.conf", "scheduler.conf"} {
		c.writeNew(dir+f, "kubeconfig", 0o600)
	}
	for _, m := range static {
		c.write(dir+"manifests/"+m+".yaml", "static pod "+m, 0o600)
		c.AddPod(m)
	}
	if etcd {
		c.must(c.fs.mkdirAll("/var/lib/etcd/member", 0o700))
	}
}

// writeNew writes a file unless it is there, as kubeadm's phases do.
func (c *Call) writeNew(p, text string, mode uint32) {
	if !c.fs.exists(p) {
		c.write(p, text, mode)
	}
}

func (c *Call) kubeletStart(config string) int {
	c.write("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"\"\n", 0o644)
	c.write("/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n", 0o644)
	_ = config
	if err := c.Start("kubelet"); err != nil {
		return c.Failf(1, "[kubelet-start] %v", err)
	}
	return 0
}

func (c *Call) kubeadmJoin(config string) int {
	const dir = "/etc/kubernetes/"
	switch {
	case c.fs.exists(dir + "kubelet.conf"):
		return c.Failf(1, "[preflight] %skubelet.conf already exists", dir)
	case strings.Contains(config, "@"):
		return c.Failf(1, "the configuration has a place that was not filled in")
	}
	c.write(dir+"bootstrap-kubelet.conf", "kubeconfig", 0o600)
	c.writeNew(dir+"pki/ca.crt", "certificate ca", 0o644)
	if strings.Contains(config, "controlPlane:") {
		c.controlPlane(c.fs.exists(dir + "pki/etcd/ca.crt"))
	}
	if status := c.kubeletStart(config); status != 0 {
		return status
	}
	c.write(dir+"kubelet.conf", "kubeconfig", 0o600)
	c.fs.drop(dir + "bootstrap-kubelet.conf")
	return 0
}

func (c *Call) kubeadmReset() int {
	c.systemd.Lock()
	if u := c.unit("kubelet.service"); u != nil {
		c.stop("kubelet.service", u)
	}
	c.systemd.Unlock()
	dirs := []string{"/etc/kubernetes/manifests", "/etc/kubernetes/pki", "/var/lib/kubelet"}
	if c.fs.exists("/etc/kubernetes/manifests/etcd.yaml") {
		dirs = append(dirs, "/var/lib/etcd")
	}
	for _, d := range dirs {
		list, err := c.fs.readDir(d)
		if err != nil {
			continue
		}
		for _, e := range list {
			c.fs.drop(path.Join(d, e.Name()))
		}
	}
	for _, f := range []string{"admin", "super-admin", "kubelet", "bootstrap-kubelet", "controller-manager", "scheduler"} {
		c.fs.drop("/etc/kubernetes/" + f + ".conf")
	}
	c.mu.Lock()
	clear(c.pods)
	c.mu.Unlock()
	c.changed("kubeadm reset")
	return 0
}

// startKubelet fails as a kubelet does whose files are missing.
func startKubelet(h *Host) error {
	if !h.fs.exists("/var/lib/kubelet/config.yaml") {
		return errors.New("failed to load kubelet config file, path: /var/lib/kubelet/config.yaml")
	}
	if !h.fs.exists("/etc/kubernetes/kubelet.conf") && !h.fs.exists("/etc/kubernetes/bootstrap-kubelet.conf") {
		return errors.New("unable to load bootstrap kubeconfig: stat /etc/kubernetes/bootstrap-kubelet.conf: no such file or directory")
	}
	h.Listen(10250, "kubelet")
	return nil
}

func stopKubelet(h *Host) { h.Listen(10250, "") }

// startContainerd makes containerd's socket.
func startContainerd(h *Host) error {
	if !h.fs.exists("/etc/containerd/config.toml") {
		return errors.New("failed to load TOML: /etc/containerd/config.toml: no such file or directory")
	}
	h.put("/run/containerd/containerd.sock", "", 0o660)
	return nil
}

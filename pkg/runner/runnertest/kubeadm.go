package runnertest

import (
	"errors"
	"fmt"
	"path"
	"regexp"
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
	case verb == "init" && len(c.Args) > 2 && c.Args[2] == "phase":
		return c.kubeadmPhase(strings.Join(c.Args[3:5], " "))
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
		c.staticPod(m)
	}
	if etcd {
		c.must(c.fs.mkdirAll("/var/lib/etcd/member", 0o700))
	}
}

// staticPod writes a manifest from what the configuration says, with the patch that goes with it, and has the kubelet run it.
func (c *Call) staticPod(name string) {
	config, _ := c.Get("/var/lib/kubexm/kubeadm.yaml")
	patch, _ := c.Get("/var/lib/kubexm/patches/" + name + "+strategic.yaml")
	c.write("/etc/kubernetes/manifests/"+name+".yaml", "# static pod "+name+"\n"+patch+"# of\n"+config, 0o600)
	c.AddPod(name)
}

// kubeadmPhase makes the manifest of one static pod anew.
func (c *Call) kubeadmPhase(phase string) int {
	names := map[string]string{
		"etcd local": "etcd", "control-plane apiserver": "kube-apiserver",
		"control-plane controller-manager": "kube-controller-manager", "control-plane scheduler": "kube-scheduler",
	}
	if names[phase] == "" {
		return c.Unknown()
	}
	c.staticPod(names[phase])
	return 0
}

// digested is the line of a manifest that tells a pod's environment.
var digested = regexp.MustCompile(`name: KUBEXM_DIGEST\n\s+value: "(.*)"`)

// runPods has a process for each static pod, started from its manifest as it is now, as the kubelet sees to it.
func (h *Host) runPods() {
	list, err := h.fs.readDir("/etc/kubernetes/manifests")
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	found := map[string]bool{}
	for _, e := range list {
		name, ok := strings.CutSuffix(e.Name(), ".yaml")
		if !ok || strings.HasPrefix(name, ".") {
			continue
		}
		found[name] = true
		text, _ := h.Get("/etc/kubernetes/manifests/" + e.Name())
		if now := h.static[name]; now.pid > 0 && now.manifest == text {
			continue
		}
		h.endPod(name)
		h.lastPID++
		h.static[name] = staticPod{1000 + h.lastPID, text}
		var env []string
		if m := digested.FindStringSubmatch(text); m != nil {
			env = []string{"KUBEXM_DIGEST=" + m[1]}
		}
		h.process(1000+h.lastPID, "/bin/"+name[:min(len(name), 15)], env)
	}
	for name := range h.static {
		if !found[name] {
			h.endPod(name)
		}
	}
}

// staticPod is one that runs.
type staticPod struct {
	pid      int
	manifest string // that it was started from
}

func (h *Host) endPod(name string) {
	if pid := h.static[name].pid; pid > 0 {
		h.fs.drop(fmt.Sprintf("/proc/%d", pid))
	}
	delete(h.static, name)
}

// writeNew writes a file unless it is there, as kubeadm's phases do.
func (c *Call) writeNew(p, text string, mode uint32) {
	if !c.fs.exists(p) {
		c.write(p, text, mode)
	}
}

func (c *Call) kubeletStart(config string) int {
	c.write("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"\"\n", 0o644)
	c.write("/var/lib/kubelet/config.yaml", kubeletConfig(c, config), 0o644)
	if err := c.Start("kubelet"); err != nil {
		return c.Failf(1, "[kubelet-start] %v", err)
	}
	return 0
}

// kubeletConfig is what kubeadm writes for the kubelet: what stands in its own configuration, or else in what
// init kept in the cluster; and where the real name servers are, where systemd-resolved runs.
func kubeletConfig(c *Call, config string) string {
	const kind, resolved = "\nkind: KubeletConfiguration\n", "/run/systemd/resolve/resolv.conf"
	if !strings.Contains(config, kind) && c.InitConfig != nil {
		config = c.InitConfig()
	}
	for doc := range strings.SplitSeq(config, "---\n") {
		if strings.Contains(doc, kind) {
			doc += "syncFrequency: 0s\n"
			if c.fs.exists(resolved) {
				doc += "resolvConf: " + resolved + "\n"
			}
			return doc
		}
	}
	return kind[1:]
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
	c.runPods()
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
	h.runPods()
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

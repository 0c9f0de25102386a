package runnertest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// programs are what files of their name do when they are run: those that kubexm
// puts on a host, and those of packages that it uses.
func programs() map[string]Command {
	return map[string]Command{
		"ctr": ctr, "crictl": crictl, "docker": docker, "kubeadm": kubeadm, "kubelet": kubelet, "nft": nft, "ipvsadm": ipvsadm,
		"iptables-save": rulesSave, "ip6tables-save": rulesSave, "iptables-restore": rulesRestore, "ip6tables-restore": rulesRestore,
	}
}

// kubelet tells the version that its file has.
func kubelet(c *Call) int {
	if len(c.Args) != 2 || c.Args[1] != "--version" {
		return c.Unknown()
	}
	text, _ := c.Get("/usr/local/bin/kubelet")
	fmt.Fprintln(c.Stdout, "Kubernetes "+kubeletVersion.FindString(text))
	return 0
}

var kubeletVersion = regexp.MustCompile(`v\d+\.\d+\.\d+`)

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
	case c.runtimeRuns() != 0:
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
	if status := c.controlPlane(strings.Contains(config, "\n  local:")); status != 0 {
		return status
	}
	c.writeNew(dir+"super-admin.conf", c.kubeconfig(true), 0o600)
	c.writeNew(dir+"kubelet.conf", c.kubeconfig(true), 0o600) // since 1.33, see ControlPlaneKubeletLocalMode
	return c.kubeletStart(config)
}

// controlPlane makes the static pods of a master from the files that kubeadm was told not to make.
func (c *Call) controlPlane(etcd bool) int {
	const dir = "/etc/kubernetes/"
	pairs := []string{"ca", "apiserver", "apiserver-kubelet-client", "front-proxy-ca", "front-proxy-client"}
	static := []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	if etcd {
		pairs = append(pairs, "etcd/ca", "etcd/server", "etcd/peer", "etcd/healthcheck-client", "apiserver-etcd-client")
		static = append(static, "etcd")
	}
	needs := []string{"admin.conf", "controller-manager.conf", "scheduler.conf", "pki/sa.key", "pki/sa.pub"}
	for _, p := range pairs {
		needs = append(needs, "pki/"+p+".crt", "pki/"+p+".key")
	}
	for _, f := range needs {
		if !c.fs.exists(dir + f) {
			return c.Failf(1, "open %s: no such file or directory", dir+f)
		}
	}
	for _, m := range static {
		c.staticPod(m)
	}
	if etcd {
		c.must(c.fs.mkdirAll("/var/lib/etcd/member", 0o700))
	}
	return 0
}

// Where kubeadm's configuration has the addresses that kubeconfigs call.
var (
	endpointed = regexp.MustCompile(`(?m)^(?:controlPlaneEndpoint: |    server: https://)(.*)$`)
	advertised = regexp.MustCompile(`(?m)^ *advertiseAddress: (.*)\n *bindPort: (.*)$`)
)

// trusted is where a kubeconfig has what API servers are known by.
var trusted = regexp.MustCompile(`(?m)^ *certificate-authority-data: (\S+)$`)

// kubeconfig calls the endpoint, or the master's own API server.
//
// Facts: app/phases/kubeconfig/kubeconfig.go of kubeadm.
func (c *Call) kubeconfig(own bool) string {
	made, _ := c.Get("/var/lib/kubexm/kubeadm.yaml")
	found, _ := c.Get("/etc/kubernetes/discovery.conf")
	authority, _ := c.Get("/etc/kubernetes/pki/ca.crt")
	server := endpointed.FindStringSubmatch(made + found)
	if m := advertised.FindStringSubmatch(made); own && m != nil {
		server = []string{"", net.JoinHostPort(m[1], m[2])}
	}
	if server == nil {
		return "kubeconfig"
	}
	return "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    certificate-authority-data: " + base64.StdEncoding.EncodeToString([]byte(authority)) +
		"\n    server: https://" + server[1] + "\n  name: kubernetes\n"
}

// staticPod writes a manifest from what the configuration says of it, with the patch that goes with it.
func (c *Call) staticPod(name string) {
	config, _ := c.Get("/var/lib/kubexm/kubeadm.yaml")
	patch, _ := c.Get("/var/lib/kubexm/patches/" + name + "+strategic.yaml")
	of := podConfig(name, config)
	if m := advertised.FindStringSubmatch(config); name == "kube-apiserver" && m != nil {
		of += "# --secure-port=" + m[2] + "\n# --etcd-servers=" + etcdServers(config) + "\n"
	}
	c.write("/etc/kubernetes/manifests/"+name+".yaml", "# static pod "+name+"\n"+patch+"# of\n"+of, 0o600)
}

// etcdServers are those of an API server: the member beside it, or those that the configuration names.
func etcdServers(config string) string {
	var conf struct {
		Etcd struct{ External struct{ Endpoints []string } }
	}
	for doc := range strings.SplitSeq(config, "---\n") {
		if strings.Contains(doc, "kind: ClusterConfiguration\n") && yaml.Unmarshal([]byte(doc), &conf) == nil && conf.Etcd.External.Endpoints != nil {
			return strings.Join(conf.Etcd.External.Endpoints, ",")
		}
	}
	return "https://127.0.0.1:2379"
}

// podConfig is the part of kubeadm's configuration that a static pod is made from.
//
// Facts: app/phases/controlplane/manifests.go and app/phases/etcd/local.go of kubeadm.
func podConfig(name, config string) string {
	var all struct {
		Kind              string          `json:"kind"`
		KubernetesVersion string          `json:"kubernetesVersion,omitempty"`
		ClusterName       string          `json:"clusterName,omitempty"`
		Networking        json.RawMessage `json:"networking,omitempty"`
		Etcd              json.RawMessage `json:"etcd,omitempty"`
		APIServer         map[string]any  `json:"apiServer,omitempty"`
		ControllerManager json.RawMessage `json:"controllerManager,omitempty"`
		Scheduler         json.RawMessage `json:"scheduler,omitempty"`
	}
	for doc := range strings.SplitSeq(config, "---\n") {
		if strings.Contains(doc, "kind: ClusterConfiguration\n") && yaml.Unmarshal([]byte(doc), &all) != nil {
			return "unreadable\n"
		}
	}
	delete(all.APIServer, "certSANs")
	switch name {
	case "kube-apiserver":
		all.ControllerManager, all.Scheduler, all.ClusterName = nil, nil, ""
	case "kube-controller-manager":
		all.APIServer, all.Scheduler, all.Etcd = nil, nil, nil
	case "kube-scheduler":
		all.APIServer, all.ControllerManager, all.Etcd, all.Networking, all.ClusterName = nil, nil, nil, nil, ""
	case "etcd":
		all.APIServer, all.ControllerManager, all.Scheduler, all.Networking, all.ClusterName, all.KubernetesVersion = nil, nil, nil, nil, "", ""
	}
	if name == "kube-apiserver" && bytes.Contains(all.Etcd, []byte(`"local"`)) {
		all.Etcd = nil // it asks the member beside it
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		return "unreadable\n"
	}
	return string(text)
}

// kubeadmPhase makes the manifest of one static pod again.
func (c *Call) kubeadmPhase(phase string) int {
	names := map[string]string{
		"etcd local": "etcd", "control-plane apiserver": "kube-apiserver",
		"control-plane controller-manager": "kube-controller-manager", "control-plane scheduler": "kube-scheduler",
	}
	if names[phase] == "" {
		return c.Unknown()
	}
	if own, wanted := c.versionsOfKubeadm(); wanted != own && wanted != own-1 && own > 0 && wanted > 0 {
		return c.Failf(1, "this version of kubeadm only supports deploying clusters with the control plane version >= 1.%d.0. Current version: 1.%d", own-1, wanted)
	}
	c.staticPod(names[phase])
	return 0
}

// minors match minor versions of Kubernetes in a program, and in a configuration.
var minors = regexp.MustCompile(`(?:/release/|kubernetesVersion: "?)v1\.(\d+)\.`)

// versionsOfKubeadm are the minor version of kubeadm, and that which it is to make; 0: it is not known.
func (c *Call) versionsOfKubeadm() (own, wanted int) {
	program, _ := c.Get("/usr/local/bin/kubeadm")
	config, _ := c.Get("/var/lib/kubexm/kubeadm.yaml")
	for text, into := range map[string]*int{program: &own, config: &wanted} {
		if m := minors.FindStringSubmatch(text); m != nil {
			*into, _ = strconv.Atoi(m[1])
		}
	}
	return own, wanted
}

// commented is an argument of a pod, which its manifest has as a comment.
func (c *Call) kubeletStart(config string) int {
	own, _ := c.versionsOfKubeadm()
	flags := map[int]string{34: "--pod-infra-container-image=registry.k8s.io/pause:3.10.1"}[own]
	c.write("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\""+flags+"\"\n", 0o644)
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
		var conf map[string]any
		if !strings.Contains(doc, kind) || yaml.Unmarshal([]byte(doc), &conf) != nil {
			continue
		}
		conf["syncFrequency"] = "0s"
		if c.fs.exists(resolved) {
			conf["resolvConf"] = resolved
		}
		if text, err := yaml.Marshal(conf); err == nil {
			return string(text)
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
	found, _ := c.Get(dir + "discovery.conf")
	if m := trusted.FindStringSubmatch(found); m != nil {
		authority, err := base64.StdEncoding.DecodeString(m[1])
		c.must(err)
		c.writeNew(dir+"pki/ca.crt", string(authority), 0o644)
	}
	if strings.Contains(config, "controlPlane:") {
		if status := c.controlPlane(c.fs.exists(dir + "pki/etcd/ca.crt")); status != 0 {
			return status
		}
	}
	if status := c.kubeletStart(config); status != 0 {
		return status
	}
	c.write(dir+"kubelet.conf", c.kubeconfig(true), 0o600)
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
	h.TakePort(10250, "kubelet")
	h.runPods()
	h.tend(true)
	return nil
}

func stopKubelet(h *Host) {
	h.tend(false)
	h.TakePort(10250, "")
}

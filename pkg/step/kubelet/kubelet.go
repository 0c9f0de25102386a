// Package kubelet holds the steps that install and run the kubelet of a node.
package kubelet

import (
	"maps"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

const (
	binDir     = "/usr/local/bin"
	configFile = "/var/lib/kubelet/config.yaml"
	kubeconfig = "/etc/kubernetes/kubelet.conf"
	serverCert = "/var/lib/kubelet/pki/kubelet.crt"
	serverKey  = "/var/lib/kubelet/pki/kubelet.key"
)

// Upload puts Kubernetes programs on the host.
func Upload(c *cluster.Cluster, host, what string, names ...string) step.Step {
	u := step.Upload{What: what, Store: c.Store}
	for _, n := range names {
		u.Programs = append(u.Programs, step.Programs{Artifact: c.Artifact(n, host), Dir: binDir})
	}
	return step.With(u, step.Options{Limit: step.LimitTransfer})
}

// Programs puts the kubelet on the host.
func Programs(c *cluster.Cluster, host string) step.Step {
	return Upload(c, host, "kubelet", "kubelet")
}

// Prepared installs and enables the kubelet for kubeadm, which configures and
// starts it. The variable comes from the file that kubeadm writes; what the configuration says comes after it, and so counts.
//
// Facts: https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/kubelet-integration
func Prepared(c *cluster.Cluster, host string) step.Step {
	u := unit(c, host, Args(c, host), Programs(c, host), Joined(c, host), Authority(c))
	u.Hold = []string{kubeconfig, configFile}
	u.Command += " --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=" + kubeconfig + " --config=" + configFile + " $KUBELET_KUBEADM_ARGS"
	u.Settings = append(u.Settings, "EnvironmentFile=-"+runner.KubeadmFlags)
	return u.Service()
}

// Manifests is where the kubelet looks for static pods. It stays when the last of them goes: the kubelet would see
// that, and pods that come after, up to 20 seconds later (fileCheckFrequency).
func Manifests() step.Step { return step.Dir{Path: runner.ManifestDir, Mode: 0o700} }

// ServingCert gives a kubelet that kubeadm configures its serving certificate, where it looks for one before it makes one that nobody
// trusts. It reads it again when it changes.
func ServingCert(c *cluster.Cluster, host string) step.Step {
	return step.Files{What: "kubelet certificate", List: serving(c, host)}
}

func serving(c *cluster.Cluster, host string) []step.File {
	server := c.Leaf(pki.KubeletServer(host, c.Addresses(host)))
	return []step.File{
		{Path: serverCert, Content: server.Cert, Mode: 0o644, Reread: true},
		{Path: serverKey, Content: step.Content(server.Key.Reveal()), Mode: 0o600, Reread: true},
	}
}

// Config writes the kubelet's configuration, its certificates and its kubeconfig.
func Config(c *cluster.Cluster, host string) step.Step {
	conf := c.KubeletConfig(host)
	maps.Copy(conf, map[string]any{"tlsCertFile": serverCert, "tlsPrivateKeyFile": serverKey, "rotateCertificates": false})
	if taints := c.Taints(host); len(taints) > 0 {
		conf["registerWithTaints"] = taints
	}
	files := append(serving(c, host),
		step.File{Path: kubeconfig, Content: step.Content(c.Kubeconfig(c.Endpoint(), "system:node:"+host, pki.Kubelet(host)).Reveal()), Mode: 0o600},
		step.File{Path: configFile, Content: c.YAML(conf), Mode: 0o644})
	if !c.Host(host).Is(v1alpha1.RoleMaster) { // there it comes with the control plane's certificates
		files = append(files, authority(c))
	}
	return step.Files{What: "kubelet", List: files}
}

// Authority gives a kubelet what it knows API servers by.
func Authority(c *cluster.Cluster) step.Step {
	return step.Files{What: "authority", List: []step.File{authority(c)}}
}

func authority(c *cluster.Cluster) step.File {
	return step.File{Path: "/etc/kubernetes/pki/ca.crt", Content: c.Trust(pki.Kubernetes), Mode: 0o644}
}

// Service runs the kubelet.
func Service(c *cluster.Cluster, host string) step.Step {
	args := map[string]string{"kubeconfig": kubeconfig, "config": configFile, "hostname-override": host}
	maps.Copy(args, Args(c, host))
	return unit(c, host, args, Programs(c, host), Config(c, host)).Service()
}

// Args are the flags that a node's kubelet gets in either way of running it.
func Args(c *cluster.Cluster, host string) map[string]string {
	args := map[string]string{"node-ip": c.Host(host).InternalAddress}
	maps.Copy(args, c.Spec.Kubernetes.Kubelet.ExtraArgs)
	return args
}

// CacheAddress gives a node that runs the address of its DNS cache, which cannot start without it, before the kubelet is restarted.
func CacheAddress(c *cluster.Cluster) step.Step {
	return step.Command{
		What:   "address of the DNS cache",
		Unless: "{ " + runner.CacheMark.List() + "; } | grep -qF ' " + c.DNSCacheIP() + "/'",
		Run:    runner.CacheMark.Add(c.DNSCacheIP()),
		Undo:   runner.CacheMark.Flush(),
	}
}

// unit is the kubelet's service. It gives the machine the address of the DNS cache before pods start, and leaves it there until the next boot when there is no cache any more: pods that
// still ask it are refused, instead of waiting for what nobody answers.
func unit(c *cluster.Cluster, host string, args map[string]string, reads ...step.Step) step.Unit {
	var before []string
	if ip := c.DNSCacheIP(); ip != "" {
		before = []string{"/bin/sh -c '" + runner.CacheMark.Add(ip) + "'"}
	}
	return step.Unit{
		Before: before,
		Name:   "kubelet", Description: "Kubernetes node agent", Documentation: "https://kubernetes.io/docs", After: plugin.RuntimeOf(c.Spec).Speaks() + ".service",
		Command: binDir + "/kubelet", Args: args, Reads: reads,
		Settings: append(step.HoldsContainers(), step.Limits(c.FactsOf(host).CanRaiseLimits(), "-999")...),
	}
}

// Ready waits for a node and gives it its labels and taints.
func Ready(c *cluster.Cluster, host string) []step.Step {
	return []step.Step{
		plan.On(plan.API, step.NodeReady{Node: host, API: c.AnyAPI()}),
		plan.On(plan.API, step.Marked{Node: host, Marks: kube.Marks{Labels: c.Labels(host), Annotations: c.Host(host).Annotations, Taints: c.Taints(host)}, API: c.AnyAPI()}),
	}
}

// Package addon holds the steps that install what is in every cluster: the
// network plugin, the DNS server, and the cluster's identity.
package addon

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
)

// Flannel installs the network plugin flannel.
func Flannel(c *cluster.Cluster) step.Step {
	f := c.Spec.Network.Flannel
	data := struct {
		PodCIDR, Backend, Image, CNIImage, Digest, APIHost string
		APIPort                                            int
		NFTables                                           bool
	}{
		PodCIDR: c.Spec.Network.PodCIDR, Backend: f.Backend, Image: c.Image("flannel"), CNIImage: c.Image("flannel-cni"),
		APIHost: c.Spec.LoadBalancer.Domain, APIPort: c.Spec.LoadBalancer.Port, NFTables: c.ProxyMode() == v1alpha1.ProxyNFTables,
	}
	data.Digest = digest(templates.Render("flannel/flannel", data))
	return apply(c, "flannel", templates.Render("flannel/flannel", data))
}

// FlannelReady waits until flannel runs on every node.
func FlannelReady(c *cluster.Cluster) step.Step {
	return step.RolledOut{What: "flannel", API: c.AnyAPI(), Objects: workload("DaemonSet", "kube-flannel", "kube-flannel-ds")}
}

// KubeProxy installs kube-proxy where it runs in pods: with kubeadm.
func KubeProxy(c *cluster.Cluster) step.Step {
	conf := c.ProxyConfig()
	data := struct{ Config, Server, Image, Digest string }{strings.TrimSpace(string(c.YAML(conf))), c.Endpoint(), c.Image("kube-proxy"), ""}
	data.Digest = digest(templates.Render("kubernetes/kube-proxy", data))
	return apply(c, "kube-proxy", templates.Render("kubernetes/kube-proxy", data))
}

// KubeProxyReady waits until kube-proxy runs on every node.
func KubeProxyReady(c *cluster.Cluster) step.Step {
	return step.RolledOut{What: "kube-proxy", API: c.AnyAPI(), Objects: workload("DaemonSet", "kube-system", "kube-proxy")}
}

// CoreDNS installs the cluster's DNS server.
func CoreDNS(c *cluster.Cluster) step.Step {
	data := struct {
		Corefile, ClusterIP, Image, Digest string
		Replicas                           int
	}{Corefile(c), c.DNSIP(), c.Image("coredns"), "", c.Spec.DNS.CoreDNS.Replicas}
	data.Digest = digest(templates.Render("coredns/coredns", data))
	return apply(c, "coredns", templates.Render("coredns/coredns", data))
}

// CoreDNSReady waits until the DNS server answers.
func CoreDNSReady(c *cluster.Cluster) step.Step {
	return step.RolledOut{What: "coredns", API: c.AnyAPI(), Objects: workload("Deployment", "kube-system", "coredns")}
}

// Identity puts the cluster's ID and name into its API, in the ConfigMap kube-system/kubexm (data.id and data.name): whoever
// reaches the API knows which cluster it is, also when the control machine is lost.
func Identity(c *cluster.Cluster) step.Step {
	return apply(c, "identity", templates.Render("kubernetes/identity", struct{ ID, Name string }{c.ID(), c.Name}))
}

// Corefile is the configuration of the DNS server.
func Corefile(c *cluster.Cluster) string {
	upstream := c.Spec.DNS.CoreDNS.Upstream
	if len(upstream) == 0 {
		upstream = []string{"/etc/resolv.conf"}
	}
	return strings.TrimSpace(string(templates.Render("coredns/corefile", struct {
		Domain   string
		Upstream []string
		Zones    any
	}{c.Spec.Kubernetes.DNSDomain, upstream, c.Spec.DNS.CoreDNS.ExternalZones})))
}

func apply(c *cluster.Cluster, what string, objects []byte) step.Step {
	return step.Apply{What: what, API: c.AnyAPI(), Objects: objects}
}

func workload(kind, namespace, name string) []byte {
	return []byte("{apiVersion: apps/v1, kind: " + kind + ", metadata: {namespace: " + namespace + ", name: " + name + "}}")
}

// digest changes the pods of a workload with all that is rendered for it, so
// that they restart when their configuration changes.
func digest(objects []byte) string {
	sum := sha256.Sum256(objects)
	return hex.EncodeToString(sum[:8])
}

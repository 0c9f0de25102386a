// Package addon holds the steps that install what is in every cluster: the
// DNS server, kube-proxy, and the cluster's identity.
package addon

import (
	"net"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
)

// NetworkReady waits until the network plugin runs on every node.
func NetworkReady(c *cluster.Cluster) step.Step {
	n := plugin.NetworkOf(c.Spec)
	return step.With(step.RolledOut{What: n.Name, API: c.AnyAPI(), Objects: step.Content(n.Ready)}, step.Options{Timeout: 15 * time.Minute}) // a tenth of the nodes at a time
}

// StorageReady waits until what makes volumes runs.
func StorageReady(c *cluster.Cluster) (steps []step.Step) {
	for _, s := range plugin.StoragesOf(c.Spec) {
		steps = append(steps, step.RolledOut{What: s.Name, API: c.AnyAPI(), Objects: step.Content(s.Ready)})
	}
	return steps
}

// Chosen installs an addon of the user's, and waits until what it runs is ready.
func Chosen(c *cluster.Cluster, a cluster.Manifests) []step.Step {
	what := "addon " + a.Name
	return []step.Step{
		step.Apply{What: what, Objects: a.Objects, Namespace: a.Namespace, API: c.AnyAPI()},
		step.With(step.RolledOut{What: what, Objects: a.Objects, Namespace: a.Namespace, API: c.AnyAPI()}, step.Options{Timeout: a.Timeout}),
	}
}

// KubeProxy installs kube-proxy where it runs in pods: with kubeadm, unless the network plugin does what it does.
func KubeProxy(c *cluster.Cluster) []step.Step {
	if !c.HasProxy() {
		return nil
	}
	conf := c.ProxyConfig()
	data := struct{ Config, Server, Image, Digest string }{strings.TrimSpace(string(c.YAML(conf))), c.Endpoint(), c.Image("kube-proxy"), ""}
	data.Digest = templates.Digest(templates.Render("kubernetes/kube-proxy", data))
	return []step.Step{apply(c, "kube-proxy", templates.Render("kubernetes/kube-proxy", data))}
}

// KubeProxyReady waits until kube-proxy runs on every node.
func KubeProxyReady(c *cluster.Cluster) []step.Step {
	if !c.HasProxy() {
		return nil
	}
	return []step.Step{step.RolledOut{What: "kube-proxy", API: c.AnyAPI(), Objects: workload("DaemonSet", "kube-system", "kube-proxy")}}
}

// CoreDNS installs the cluster's DNS server.
func CoreDNS(c *cluster.Cluster) step.Step {
	data := struct {
		Corefile, ClusterIP, Image, Digest string
		Replicas                           int
	}{Corefile(c), c.DNSIP(), c.Image("coredns"), "", c.Spec.DNS.CoreDNS.Replicas}
	data.Digest = templates.Digest(templates.Render("coredns/coredns", data))
	return apply(c, "coredns", templates.Render("coredns/coredns", data))
}

// CoreDNSReady waits until the DNS server answers.
func CoreDNSReady(c *cluster.Cluster) step.Step {
	return step.RolledOut{What: "coredns", API: c.AnyAPI(), Objects: workload("Deployment", "kube-system", "coredns")}
}

// DNSCache installs the DNS cache of every node, if there is to be one.
func DNSCache(c *cluster.Cluster) []step.Step {
	if c.DNSCacheIP() == "" {
		return nil
	}
	data := struct{ Corefile, IP, Image, Digest string }{Cachefile(c), c.DNSCacheIP(), c.Image("coredns"), ""}
	data.Digest = templates.Digest(templates.Render("coredns/cache", data))
	return []step.Step{apply(c, "node-local-dns", templates.Render("coredns/cache", data))}
}

// DNSCacheReady waits until it answers on every node. That of a host which is out of reach may lack its address; it is not waited for, as pods have another server.
func DNSCacheReady(c *cluster.Cluster) []step.Step {
	if c.DNSCacheIP() == "" || len(c.Missing()) > 0 {
		return nil
	}
	ready := step.RolledOut{What: "node-local-dns", API: c.AnyAPI(), Objects: workload("DaemonSet", "kube-system", "node-local-dns")}
	return []step.Step{step.With(ready, step.Options{Timeout: 15 * time.Minute})} // a tenth of the nodes at a time
}

// Identity puts the cluster's ID and name into its API, in the ConfigMap kube-system/kubexm (data.id and data.name): whoever
// reaches the API knows which cluster it is, also when the control machine is lost.
func Identity(c *cluster.Cluster) step.Step {
	return apply(c, "identity", templates.Render("kubernetes/identity", struct{ ID, Name string }{c.ID(), c.Name}))
}

// Configuration puts the configuration into the cluster, less what is secret, in the Secret kube-system/kubexm-config: who has lost the control
// machine reads it there. A Secret, as it names machines and who logs in to them, which few may read.
func Configuration(c *cluster.Cluster) step.Step {
	return apply(c, "configuration", templates.Render("kubernetes/configuration", c.Kept().Data()))
}

// Fence keeps machines that were given up from becoming nodes again, should they come back; without any there is no fence.
func Fence(c *cluster.Cluster) step.Step {
	if len(c.Fenced) == 0 {
		return step.Apply{What: "fence", API: c.AnyAPI()}
	}
	return apply(c, "fence", templates.Render("kubernetes/fence", struct{ Machines []string }{c.Fenced}))
}

// Corefile is the configuration of the DNS server.
func Corefile(c *cluster.Cluster) string { return corefile(c, "coredns/corefile") }

// Cachefile is the configuration of the caches. They ask the DNS server for what is in the cluster, and for all else whom that asks.
func Cachefile(c *cluster.Cluster) string { return corefile(c, "coredns/cachefile") }

func corefile(c *cluster.Cluster, name string) string {
	upstream := c.Spec.DNS.CoreDNS.Upstream
	if len(upstream) == 0 {
		upstream = []string{"/etc/resolv.conf"}
	}
	return strings.TrimSpace(string(templates.Render(name, struct {
		Domain, IP, Health, ClusterIP string
		Upstream                      []string
		Zones                         any
	}{c.Spec.Kubernetes.DNSDomain, c.DNSCacheIP(), net.JoinHostPort(c.DNSCacheIP(), "9254"), c.DNSIP(), upstream, c.Spec.DNS.CoreDNS.ExternalZones})))
}

func apply(c *cluster.Cluster, what string, objects []byte) step.Step {
	return step.Apply{What: what, API: c.AnyAPI(), Objects: objects}
}

func workload(kind, namespace, name string) []byte {
	return []byte("{apiVersion: apps/v1, kind: " + kind + ", metadata: {namespace: " + namespace + ", name: " + name + "}}")
}

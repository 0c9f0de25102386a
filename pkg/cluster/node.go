package cluster

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/resource/distro"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

const roleLabel = "node-role.kubernetes.io/"

// ControlPlaneTaint keeps ordinary pods off masters.
var ControlPlaneTaint = corev1.Taint{Key: roleLabel + "control-plane", Effect: corev1.TaintEffectNoSchedule}

// Labels are the labels of a node: of its roles, and the user's.
func (c *Cluster) Labels(node string) map[string]string {
	h := c.Host(node)
	labels := map[string]string{}
	if h.Is(v1alpha1.RoleMaster) {
		labels[roleLabel+"control-plane"] = ""
		labels["node.kubernetes.io/exclude-from-external-load-balancers"] = ""
	}
	if h.Is(v1alpha1.RoleWorker) {
		labels[roleLabel+"worker"] = ""
	}
	maps.Copy(labels, h.Labels)
	return labels
}

// Taints are the taints of a node: of its roles, and the user's.
func (c *Cluster) Taints(node string) []corev1.Taint {
	h := c.Host(node)
	taints := []corev1.Taint{}
	if h.Is(v1alpha1.RoleMaster) && !h.Is(v1alpha1.RoleWorker) {
		taints = append(taints, ControlPlaneTaint)
	}
	for _, t := range h.Taints {
		taints = append(taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return taints
}

// ID is the identity of the cluster: its hosts know it by that, and its API in the ConfigMap kube-system/kubexm. It is
// chosen when first needed. What fails is told by Err, and it is empty.
func (c *Cluster) ID() string {
	id, err := c.Certs.ID()
	c.Check(err)
	return id
}

// CA returns the signer of an authority of the cluster; it is made when first needed. What fails is told
// by Err, and the pair is empty.
func (c *Cluster) CA(ca pki.CA) *pki.Pair {
	p, err := c.Certs.CA(ca)
	if err != nil {
		c.Check(err)
		return &pki.Pair{}
	}
	return p
}

// Trust returns the certificates (PEM) that are trusted as an authority of the cluster, the signer's first. What fails
// is told by Err, and there are none.
func (c *Cluster) Trust(ca pki.CA) []byte {
	trust, err := c.Certs.Trust(ca)
	c.Check(err)
	return trust
}

// SignerFile is where a master has the certificate of the signer of the Kubernetes authority while its ca.crt has
// several: the controller manager signs with a file of exactly one
// (k8s.io/kubernetes/pkg/controller/certificates/signer/ca_provider.go).
const SignerFile = "/etc/kubernetes/pki/ca-signer.crt"

// SignerApart is the certificate for SignerFile; nil: ca.crt has no other.
func (c *Cluster) SignerApart() []byte {
	signer := c.CA(pki.Kubernetes).Cert
	if bytes.Equal(c.Trust(pki.Kubernetes), signer) {
		return nil
	}
	return signer
}

// Leaf returns a certificate of the cluster; it is made when first needed. What fails is
// told by Err, and the pair is empty.
func (c *Cluster) Leaf(spec pki.Spec) *pki.Pair {
	p, err := c.Certs.Leaf(spec)
	if err != nil {
		c.Check(err)
		return &pki.Pair{}
	}
	return p
}

// Kubeconfig returns the file with which the holder of a certificate reaches the API at a URL.
func (c *Cluster) Kubeconfig(server, user string, spec pki.Spec) secret.Secret {
	conf, err := pki.Kubeconfig(c.Name, server, c.Trust(pki.Kubernetes), user, c.Leaf(spec))
	c.Check(err)
	return conf
}

// AdminKubeconfig is the administrator's on masters.
func (c *Cluster) AdminKubeconfig() secret.Secret {
	return c.Kubeconfig(c.Endpoint(), "kubernetes-admin", pki.Admin())
}

// AdminConf is the file of AdminConfig, in the cluster's directory.
const AdminConf = "admin.conf"

// AdminConfig is the administrator's kubeconfig for the control machine, which
// does not know the name of the endpoint: it reaches the virtual address, or the first
// master that is not left out.
func (c *Cluster) AdminConfig() (secret.Secret, error) {
	address := cmp.Or(c.Spec.LoadBalancer.VIP, c.Host(c.FirstMaster()).Address)
	server := "https://" + net.JoinHostPort(address, strconv.Itoa(c.APIPort()))
	conf, err := pki.Kubeconfig(c.Name, server, c.Trust(pki.Kubernetes), "kubernetes-admin", c.Leaf(pki.Admin()))
	return conf, errors.Join(c.Err(), err)
}

// APIServerCert describes the serving certificate of a master's API server.
func (c *Cluster) APIServerCert(master string) pki.Spec {
	return pki.APIServer(master, c.Addresses(master), c.Spec.Kubernetes.DNSDomain, c.ServiceNets(), c.APIServerSANs()...)
}

// APIServerSANs are the names that the API server's certificate has on top of
// the master's own.
func (c *Cluster) APIServerSANs() []string {
	sans := append([]string{c.Spec.LoadBalancer.Domain}, c.Spec.Kubernetes.APIServer.CertSANs...)
	if c.Spec.LoadBalancer.VIP != "" {
		sans = append(sans, c.Spec.LoadBalancer.VIP)
	}
	return sans
}

// version is the version of a component in this cluster.
func (c *Cluster) version(component string) string {
	ours := map[string]string{"etcd": c.Spec.Etcd.Version, "coredns": c.Versions.CoreDNS, "pause": c.Versions.Pause}[component]
	return cmp.Or(ours, plugin.Version(c.Spec, component), c.Spec.Kubernetes.Version)
}

// Artifact is a component in the version of this cluster, for a host.
func (c *Cluster) Artifact(component, host string) resource.Artifact {
	a, err := resource.New(component, c.version(component), c.Arch(host))
	c.Check(err)
	return a
}

// RuntimePrograms are what the container runtime of a host consists of.
func (c *Cluster) RuntimePrograms(host string) (all []resource.Artifact) {
	for _, p := range plugin.RuntimeOf(c.Spec).Parts {
		all = append(all, c.Artifact(p.Name, host))
	}
	return all
}

// Image is the reference of a component's image in the version of this cluster.
func (c *Cluster) Image(component string) string {
	ref, err := resource.Image(component, c.version(component))
	c.Check(err)
	return ref
}

func days(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }

// Images are the images that a node must have before anything is started on it.
func (c *Cluster) Images(node string) []string {
	names := c.nodeImages(node)
	if c.Kubeadm() && c.Host(node).Is(v1alpha1.RoleMaster) {
		names = append(names, "kube-apiserver", "kube-controller-manager", "kube-scheduler")
		if c.Spec.Etcd.Type == v1alpha1.TypeKubeadm {
			names = append(names, "etcd")
		}
	}
	for i, n := range names {
		names[i] = c.Image(n)
	}
	if !c.HoldsNodes() {
		for _, a := range c.Addons() {
			for _, ref := range a.Images {
				if !slices.Contains(names, ref) {
					names = append(names, ref)
				}
			}
		}
	}
	return names
}

// nodeImages are the components of which a node needs the images, but for those of the control plane.
func (c *Cluster) nodeImages(node string) []string {
	if c.HoldsNodes() {
		return nil
	}
	names := append([]string{"pause", "coredns"}, plugin.NetworkOf(c.Spec).Images()...)
	if c.Kubeadm() && c.HasProxy() {
		names = append(names, "kube-proxy")
	}
	for _, s := range plugin.StoragesOf(c.Spec) {
		names = append(names, s.Images()...)
	}
	if vip := plugin.VIPOf(c.Spec); vip.Pod && c.Host(node).Is(vip.Role) {
		names = append(names, vip.Images()...)
	}
	if c.Kubeadm() && c.Balancer() == v1alpha1.BalancerInternal && !c.Host(node).Is(v1alpha1.RoleMaster) {
		names = append(names, plugin.ProxyOf(c.Spec).Images()...)
	}
	return names
}

// API is how kubexm reaches the API server of a master, from that master or a
// node. kubexm has a short-lived certificate of its own, made when it is needed.
func (c *Cluster) API(master string) kube.Access {
	at := c.APIAddress(master)
	return c.access(append([]string{at}, c.AtFormerPorts(at)...)...)
}

// AnyAPI is how kubexm reaches the API where it does not matter which master answers: through one after the other until
// one does, those first whose API server was found ready. It is the first master while the cluster is being born.
func (c *Cluster) AnyAPI() kube.Access {
	var all []string
	for _, m := range c.apiMasters() {
		all = append(all, c.APIAddress(m))
	}
	return c.access(append(all, c.AtFormerPorts(all...)...)...)
}

// AnyMaster is a master whose API server answers, as far as is known; the first one while the cluster is being born.
func (c *Cluster) AnyMaster() string { return c.apiMasters()[0] }

func (c *Cluster) apiMasters() (all []string) {
	if !c.Lives() {
		return []string{c.FirstMaster()}
	}
	fresh, live := c.SplitMasters()
	for _, m := range slices.Concat(c.Observed.AnyAPI(), live, c.FormerMasters(), fresh) {
		if !slices.Contains(all, m) && !slices.Contains(c.missing, m) {
			all = append(all, m)
		}
	}
	return all
}

// APIAddress is where the API server of a master listens.
func (c *Cluster) APIAddress(master string) string {
	return net.JoinHostPort(c.IP(master), strconv.Itoa(c.APIPort()))
}

func (c *Cluster) access(addresses ...string) kube.Access {
	return kube.Access{
		Address: addresses[0], Others: addresses[1:], ServerName: "kubernetes",
		CA: c.Trust(pki.Kubernetes), Client: c.Certs.Operator, Patience: 5 * time.Second,
	}
}

// ProxyAPI is how a load balancer reaches an API server through its own proxy.
func (c *Cluster) ProxyAPI() kube.Access {
	return c.access(net.JoinHostPort(c.OwnIP(), strconv.Itoa(c.APIPort())))
}

// VIPAPI is how a host reaches the API server through the address that load balancers share.
func (c *Cluster) VIPAPI() kube.Access {
	return c.access(net.JoinHostPort(c.Spec.LoadBalancer.VIP, strconv.Itoa(c.APIPort())))
}

// EndpointAPI is how a host reaches the API server by the name of the endpoint.
func (c *Cluster) EndpointAPI() kube.Access {
	a := c.access(c.EndpointHost())
	a.ServerName = c.Spec.LoadBalancer.Domain
	return a
}

// NewEndpointAPI is how a host reaches the API server where the name of the endpoint is to lead.
func (c *Cluster) NewEndpointAPI(host string) kube.Access {
	a := c.EndpointAPI()
	a.Address = net.JoinHostPort(c.EndpointIP(host), strconv.Itoa(c.APIPort()))
	return a
}

// APIPort is where API servers and load balancers listen: the same on all, as it
// stands in every kubeconfig.
func (c *Cluster) APIPort() int { return c.Spec.LoadBalancer.Port }

// Components are the programs that a host needs; of a master also what is applied from there.
func (c *Cluster) Components(host string) []string {
	h := c.Host(host)
	master, node := h.Is(v1alpha1.RoleMaster), h.Is(v1alpha1.RoleMaster) || h.Is(v1alpha1.RoleWorker)
	var all []string
	add := func(needed bool, names ...string) {
		if needed {
			all = append(all, names...)
		}
	}
	if holds := c.HoldsNodes(); !holds {
		add(node, plugin.RuntimeOf(c.Spec).Programs()...)
		add(node, "kubelet")
		add(node && !c.Kubeadm() && c.HasProxy(), "kube-proxy")
		add(node && c.Kubeadm(), "kubeadm")
	} else {
		add(master && c.Kubeadm(), "kubeadm")
	}
	add(master && !c.Kubeadm(), "kube-apiserver", "kube-controller-manager", "kube-scheduler")
	add(master, "kubectl")
	add(master, plugin.NetworkOf(c.Spec).Programs()...)
	add(h.Is(v1alpha1.RoleEtcd) && c.Spec.Etcd.Type == v1alpha1.TypeKubexm || slices.Contains(c.RestoredMembers(true), host), "etcd")
	add(h.Is(v1alpha1.RoleRegistry), plugin.RegistryOf(c.Spec).Programs()...)
	return all
}

// Repository is where a host without a network gets packages of its operating system; nil: from its
// own repositories.
func (c *Cluster) Repository(host string) *resource.Repository {
	if !c.Spec.Source.Offline {
		return nil
	}
	f := c.FactsOf(host)
	return &resource.Repository{System: distro.NameOf(f.OS, f.OSVersion), Arch: c.Arch(host), Store: c.Store}
}

// AllNeeds is Needs, and what a restore needs besides: where kubeadm runs etcd, its programs are in an image alone.
func AllNeeds(clusters ...*Cluster) []resource.Item {
	all := Needs(clusters...)
	for _, c := range clusters {
		if c.Spec.Etcd.Type != v1alpha1.TypeKubeadm {
			continue
		}
		for _, h := range c.Masters() {
			if i := (resource.Item{Artifact: c.Artifact("etcd", h)}); !slices.Contains(all, i) {
				all = append(all, i)
			}
		}
	}
	return all
}

// Needs is everything of the store that clusters need, each thing once: of each the
// programs of all hosts, then the images of all nodes.
func Needs(clusters ...*Cluster) (all []resource.Item) {
	seen := map[resource.Item]bool{}
	add := func(i resource.Item) {
		if !seen[i] {
			seen[i] = true
			all = append(all, i)
		}
	}
	for _, c := range clusters {
		for _, a := range c.Fetched() {
			add(resource.Item{Artifact: a})
		}
		for _, h := range c.Hosts(v1alpha1.RoleMaster, v1alpha1.RoleWorker, v1alpha1.RoleEtcd, v1alpha1.RoleRegistry) {
			for _, name := range c.Components(h) {
				add(resource.Item{Artifact: c.Artifact(name, h)})
			}
		}
		for _, h := range c.Nodes() {
			for _, ref := range c.Images(h) {
				add(resource.ImageItem(ref, c.Arch(h)))
			}
		}
	}
	return all
}

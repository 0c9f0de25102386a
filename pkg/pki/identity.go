package pki

import (
	"crypto/x509"
	"net/netip"
)

// AdminGroup is the group of cluster administrators since Kubernetes 1.29. It has
// no power until a ClusterRoleBinding gives it the role cluster-admin, and so,
// other than system:masters, can lose it again.
const AdminGroup = "kubeadm:cluster-admins"

// KubeletClientUser is who the API server is when it calls a kubelet. It needs
// the role system:kubelet-api-admin; kubeadm 1.35 and older put it in
// AdminGroup instead.
const KubeletClientUser = "kube-apiserver-kubelet-client"

var (
	server = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	client = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	both   = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
)

// APIServer is the serving certificate of the API server on node. addresses are
// the node's own; domain is the cluster's DNS domain; services are the service
// CIDRs, whose first address is that of the Service "kubernetes"; extra are the
// control-plane endpoint, a virtual address, and what the user adds.
func APIServer(node string, addresses []string, domain string, services []netip.Prefix, extra ...string) Spec {
	sans := []string{
		node, "localhost", "127.0.0.1", "::1",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + domain,
	}
	for _, cidr := range services {
		sans = append(sans, cidr.Masked().Addr().Next().String())
	}
	sans = append(append(sans, addresses...), extra...)
	return Spec{CA: Kubernetes, Node: node, Name: "apiserver-" + node, CN: "kube-apiserver", SANs: sans, Usages: server}
}

// APIServerKubeletClient is how the API server calls kubelets.
func APIServerKubeletClient() Spec {
	return Spec{CA: Kubernetes, Name: "apiserver-kubelet-client", CN: KubeletClientUser, Usages: client}
}

// FrontProxyClient is how the API server passes requests to aggregated API servers.
func FrontProxyClient() Spec {
	return Spec{CA: FrontProxy, Name: "front-proxy-client", CN: "front-proxy-client", Usages: client}
}

// Admin is the cluster administrator of admin.conf.
func Admin() Spec {
	return Spec{CA: Kubernetes, Name: "admin", CN: "kubernetes-admin", Org: []string{AdminGroup}, Usages: client}
}

// ControllerManager is the client certificate of kube-controller-manager.
func ControllerManager() Spec {
	return component("controller-manager", "system:kube-controller-manager")
}

// Scheduler is the client certificate of kube-scheduler.
func Scheduler() Spec { return component("scheduler", "system:kube-scheduler") }

// KubeProxy is the client certificate of kube-proxy where it is no pod.
func KubeProxy() Spec { return component("kube-proxy", "system:kube-proxy") }

func component(name, user string) Spec {
	return Spec{CA: Kubernetes, Name: name, CN: user, Usages: client}
}

// Kubelet is the client certificate of node's kubelet.
func Kubelet(node string) Spec {
	return Spec{CA: Kubernetes, Node: node, Name: "kubelet-" + node, CN: "system:node:" + node, Org: []string{"system:nodes"}, Usages: client}
}

// KubeletServer is the serving certificate of node's kubelet.
func KubeletServer(node string, addresses []string) Spec {
	s := Kubelet(node)
	s.Name, s.SANs, s.Usages = "kubelet-server-"+node, append([]string{node}, addresses...), server
	return s
}

// EtcdMember is what an etcd member shows its clients and its peers, and what it
// calls its peers with. etcd also calls itself with it, so it is a client's too.
func EtcdMember(node string, addresses []string) Spec {
	sans := append([]string{node, "localhost", "127.0.0.1", "::1"}, addresses...)
	return Spec{CA: Etcd, Node: node, Name: "member-" + node, CN: "etcd-member-" + node, SANs: sans, Usages: both}
}

// EtcdAdmin is the client certificate of etcdctl and of backups on node.
func EtcdAdmin(node string) Spec {
	return Spec{CA: Etcd, Node: node, Name: "admin-" + node, CN: "etcd-admin-" + node, Usages: client}
}

// EtcdClient is how the API server on node calls etcd.
func EtcdClient(node string) Spec {
	return Spec{CA: Etcd, Node: node, Name: "node-" + node, CN: "etcd-node-" + node, Usages: client}
}

// RegistryServer is the serving certificate of the private registry on host, which clients call
// by name.
func RegistryServer(host, name string, addresses []string) Spec {
	sans := append([]string{name, host, "localhost", "127.0.0.1"}, addresses...)
	return Spec{CA: Registry, Node: host, Name: "server-" + host, CN: "registry", SANs: sans, Usages: server}
}

func operator() Spec {
	return Spec{CA: Kubernetes, Name: "kubexm", CN: "kubexm", Org: []string{"system:masters"}, Usages: client}
}

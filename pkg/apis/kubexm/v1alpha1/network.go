package v1alpha1

import "strings"

// Values of network.plugin.
const (
	PluginCalico     = "calico"
	PluginCilium     = "cilium"
	PluginFlannel    = "flannel"
	PluginKubeRouter = "kube-router"
)

// Network configures the networks of pods and services.
type Network struct {
	// The network plugin (CNI).
	Plugin string `json:"plugin,omitempty" jsonschema:"default=flannel,enum=calico,enum=flannel,enum=cilium,enum=kube-router" change:"refuse,the network of running pods is not exchanged; make a new cluster"`
	// Network of the pods, IPv4 or IPv6; or one of each family, for dual stack: 10.233.64.0/18,fd00:10:233:40::/58. The first one's family is that of
	// what has one address alone: API servers, etcd, most services. Default for hosts with IPv6 addresses: fd69:10:233::/48.
	PodCIDR string `json:"podCIDR,omitempty" jsonschema:"default=10.233.64.0/18" change:"refuse,all nodes and pods have their addresses from it; make a new cluster"`
	// Network of the services, or one of each family, in the order of podCIDR: 10.233.0.0/18,fd00:10:233::/112. Default for hosts
	// with IPv6 addresses: fd69:10:232::/112.
	ServiceCIDR string `json:"serviceCIDR,omitempty" jsonschema:"default=10.233.0.0/18" change:"refuse,all services have their addresses from it, and the API server's certificate has one; make a new cluster"`
	// For plugin calico.
	Calico *Calico `json:"calico,omitempty"`
	// For plugin flannel.
	Flannel Flannel `json:"flannel,omitzero"`
	// For plugin cilium.
	Cilium *Cilium `json:"cilium,omitempty"`
	// For plugin kube-router.
	KubeRouter *KubeRouter `json:"kubeRouter,omitempty"`
}

// PodCIDRs are the networks of the pods, the primary one first.
func (n *Network) PodCIDRs() []string { return strings.Split(n.PodCIDR, ",") }

// ServiceCIDRs are the networks of the services, the primary one first.
func (n *Network) ServiceCIDRs() []string { return strings.Split(n.ServiceCIDR, ",") }

// Flannel configures the network plugin flannel.
type Flannel struct {
	// Version, like v0.28.9. Default: the one tested with the Kubernetes version.
	Version string `json:"version,omitempty" change:"restart"`
	// How packets travel between nodes: in UDP port 8472 (vxlan), or by plain routes where all nodes share one
	// layer 2 network (host-gw).
	Backend string `json:"backend,omitempty" jsonschema:"default=vxlan,enum=vxlan,enum=host-gw" change:"refuse,flannel does not support it (its Documentation/backends.md); make a new cluster"`
}

// Calico configures the network plugin Calico.
type Calico struct {
	// Version. Default: v3.28.5, the only one whose checksum kubexm knows.
	Version string `json:"version,omitempty" change:"restart"`
	// How packets travel between nodes: in UDP port 4789 (VXLAN), in IP packets (IPIP), or by plain routes (None); CrossSubnet: only
	// between nodes of different subnets, by plain routes within one. IPIP and None need BGP between the nodes, on TCP port 179.
	Encapsulation string `json:"encapsulation,omitempty" jsonschema:"default=VXLANCrossSubnet,enum=VXLAN,enum=VXLANCrossSubnet,enum=IPIP,enum=IPIPCrossSubnet,enum=None" change:"restart"`
	// MTU of the interfaces of pods. Default: that of the nodes, less what encapsulation takes.
	MTU int `json:"mtu,omitempty" jsonschema:"minimum=576,maximum=65535" change:"restart"`
	// Prefix length of the blocks of addresses that nodes take from podCIDR.
	BlockSize int `json:"blockSize,omitempty" jsonschema:"default=26,minimum=20,maximum=32" change:"refuse,nodes have taken blocks of this size; make a new cluster"`
	// Pods of Typha, through which nodes read from the API servers. Default: none for up to 50 nodes; for more one for each
	// 200 nodes, at least 3.
	Typha *int `json:"typha,omitempty" jsonschema:"minimum=0,maximum=100" change:"restart"`
	// Merged into the spec of the FelixConfiguration default: the settings of Calico on nodes.
	Felix map[string]any `json:"felix,omitempty" change:"restart"`
}

// Cilium configures the network plugin Cilium.
type Cilium struct {
	// Version, like v1.20.1. Default: v1.20.2.
	Version string `json:"version,omitempty" change:"restart"`
	// Values of Cilium's chart, over those that kubexm has for it (docs/networks.md).
	Values map[string]any `json:"values,omitempty" change:"restart"`
}

// KubeRouter configures the network plugin kube-router.
type KubeRouter struct {
	// Version, like v2.9.0. Default: the one tested with the Kubernetes version.
	Version string `json:"version,omitempty" change:"restart"`
	// Flags to add or override, without leading dashes.
	ExtraArgs map[string]string `json:"extraArgs,omitempty" change:"restart"`
}

// DNS configures name resolution inside the cluster.
type DNS struct {
	// The DNS server of the cluster.
	CoreDNS CoreDNS `json:"coredns,omitzero" change:"converge"`
	// A DNS cache on every node.
	NodeLocalDNS NodeLocalDNS `json:"nodeLocalDNS,omitzero"`
}

// CoreDNS configures the DNS server of the cluster.
type CoreDNS struct {
	// Number of pods.
	Replicas int `json:"replicas,omitempty" jsonschema:"default=2,minimum=1,maximum=100"`
	// Servers for names outside the cluster: IP address, optionally with :port. Default: those of the node.
	Upstream []string `json:"upstream,omitempty"`
	// Domains with name servers of their own.
	ExternalZones []ExternalZone `json:"externalZones,omitempty"`
}

// ExternalZone is a set of domains resolved by name servers of their own.
type ExternalZone struct {
	// The domains, like corp.example.com.
	Zones []string `json:"zones" jsonschema:"required"`
	// Their servers: IP address, optionally with :port.
	Nameservers []string `json:"nameservers" jsonschema:"required"`
	// Seconds that answers are kept at most.
	Cache int `json:"cache,omitempty" jsonschema:"default=30,minimum=1,maximum=86400"`
}

// NodeLocalDNS configures the DNS cache on every node.
type NodeLocalDNS struct {
	// Whether there is one. Where it is turned on, no node is drained: pods ask it that start from then on.
	Enabled *bool `json:"enabled,omitempty" jsonschema:"default=true" change:"roll"`
	// Link-local address of the cache on every node, which nothing else there may have; where the first podCIDR is of IPv6, one of fd00::/8
	// (default: fd69:254:25::10). To change it, turn the cache off, apply, and turn it on again.
	IP string `json:"ip,omitempty" jsonschema:"default=169.254.25.10" change:"roll"`
}

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Values of kubernetes.type and etcd.type.
const (
	TypeKubeadm  = "kubeadm"  // by kubeadm: the control plane, or etcd, in static pods
	TypeKubexm   = "kubexm"   // by kubexm: binaries under systemd
	TypeExternal = "external" // etcd only: it is there already
)

// Values of kubernetes.proxyMode.
const (
	ProxyNFTables = "nftables"
	ProxyIPTables = "iptables"
	ProxyIPVS     = "ipvs"
	ProxyNone     = "none" // the network plugin replaces kube-proxy
)

// Kubernetes configures the control plane and the nodes.
type Kubernetes struct {
	// How Kubernetes is run: by kubeadm in static pods, or by kubexm as plain binaries under systemd.
	Type string `json:"type,omitempty" jsonschema:"default=kubeadm,enum=kubeadm,enum=kubexm" change:"refuse,a control plane is not moved between static pods and systemd; make a new cluster"`
	// Version of Kubernetes, like v1.37.0. Default: the newest tested with this kubexm when the cluster is created; later the one that it has.
	// It goes forward by any number of minor versions, one after the other, and back by one.
	Version string `json:"version,omitempty" change:"procedure"`
	// DNS domain of the cluster's services.
	DNSDomain string `json:"dnsDomain,omitempty" jsonschema:"default=cluster.local" change:"refuse,certificates, kubelets and all running pods know the services by it; make a new cluster"`
	// How service addresses are made to work; none is for plugins that replace kube-proxy.
	// Default: nftables where the kernel of every node allows, else iptables.
	ProxyMode string `json:"proxyMode,omitempty" jsonschema:"enum=nftables,enum=iptables,enum=ipvs,enum=none" change:"restart"`
	// Most pods on one node.
	MaxPods int `json:"maxPods,omitempty" jsonschema:"default=110,minimum=1,maximum=65535" change:"restart"`
	// Most processes in one pod.
	PodPidsLimit int64 `json:"podPidsLimit,omitempty" jsonschema:"default=10000,minimum=1" change:"restart"`
	// Size of the IPv4 network each node gets out of network.podCIDR, as prefix length: 24 holds 254 pods.
	NodeCIDRMaskSize int `json:"nodeCidrMaskSize,omitempty" jsonschema:"default=24,minimum=9,maximum=30" change:"refuse,a node keeps the network that it got when it joined; make a new cluster"`
	// Size of the IPv6 network each node gets out of network.podCIDR, where that has one, as prefix length. Default: 64.
	NodeCIDRMaskSizeIPv6 int `json:"nodeCidrMaskSizeIPv6,omitempty" jsonschema:"minimum=20,maximum=120" change:"refuse,a node keeps the network that it got when it joined; make a new cluster"`
	// kube-apiserver.
	APIServer APIServer `json:"apiServer,omitzero"`
	// kube-controller-manager.
	ControllerManager Controller `json:"controllerManager,omitzero"`
	// kube-scheduler.
	Scheduler Controller `json:"scheduler,omitzero"`
	// kubelet.
	Kubelet Kubelet `json:"kubelet,omitzero"`
	// kube-proxy.
	KubeProxy KubeProxy `json:"kubeProxy,omitzero" change:"restart"`
	// Feature gates of all components, on (true) or off (false).
	FeatureGates map[string]bool `json:"featureGates,omitempty" change:"restart"`
	// Whether certificates that end within 30 days are renewed every Monday at 3:00 by the control machine, which alone has the authorities' keys, once kubexm schedule install
	// was run there.
	AutoRenewCerts *bool `json:"autoRenewCerts,omitempty" jsonschema:"default=false" change:"none"`
	// Validity of the certificates kubexm makes, in days; those of the authorities that sign them live 10 years.
	CertificateValidityDays int `json:"certificateValidityDays,omitempty" jsonschema:"default=3650,minimum=1,maximum=3650" change:"converge"`
}

// Component is a program with further flags.
type Component struct {
	// Flags to add or override, without leading dashes: {v: "4"}.
	ExtraArgs map[string]string `json:"extraArgs,omitempty" change:"restart"`
}

// Controller is a program of the control plane besides the API server.
type Controller struct {
	Component
	// Files and directories of the master that the static pod sees (kubeadm only).
	ExtraVolumes []Volume `json:"extraVolumes,omitempty" change:"restart"`
}

// APIServer configures kube-apiserver.
type APIServer struct {
	Component
	// Further names and addresses in the server's certificate.
	CertSANs []string `json:"certSANs,omitempty" change:"restart"`
	// Files and directories of the master that the static pod sees (kubeadm only).
	ExtraVolumes []Volume `json:"extraVolumes,omitempty" change:"restart"`
	// Audit log of requests.
	Audit *Audit `json:"audit,omitempty" change:"restart"`
	// Encryption of data at rest.
	Encryption *Encryption `json:"encryption,omitempty" change:"procedure"`
}

// Volume is a path of the host in a static pod.
type Volume struct {
	// Name of the volume: a DNS label.
	Name string `json:"name" jsonschema:"required"`
	// Path on the host.
	HostPath string `json:"hostPath" jsonschema:"required"`
	// Path in the pod.
	MountPath string `json:"mountPath" jsonschema:"required"`
	// Whether the pod may only read.
	ReadOnly bool `json:"readOnly,omitempty"`
	// What the path on the host must be.
	PathType string `json:"pathType,omitempty" jsonschema:"enum=File,enum=FileOrCreate,enum=Directory,enum=DirectoryOrCreate,enum=Socket"`
}

// Audit configures the API server's audit log.
type Audit struct {
	// Audit policy on the control machine (audit.k8s.io/v1). Default: metadata of every change.
	PolicyFile string `json:"policyFile,omitempty" content:"file"`
	// Log file on the masters. Default: /var/log/kubernetes/audit/audit.log.
	LogPath string `json:"logPath,omitempty"`
	// Days to keep old log files. Default: 30.
	MaxAge int `json:"maxAge,omitempty" jsonschema:"minimum=1"`
	// Old log files to keep. Default: 10.
	MaxBackup int `json:"maxBackup,omitempty" jsonschema:"minimum=1"`
	// Size of one log file in megabytes. Default: 100.
	MaxSize int `json:"maxSize,omitempty" jsonschema:"minimum=1"`
}

// Encryption configures how the API server stores objects in etcd.
type Encryption struct {
	// Way of encryption. Default: secretbox.
	Provider string `json:"provider,omitempty" jsonschema:"enum=secretbox,enum=aescbc,enum=aesgcm,enum=kms"`
	// Resources to encrypt, like secrets or configmaps. Default: secrets.
	Resources []string `json:"resources,omitempty"`
	// Socket of the KMS v2 plugin on the masters, for provider kms.
	KMSEndpoint string `json:"kmsEndpoint,omitempty"`
}

// Kubelet configures the kubelet.
type Kubelet struct {
	Component
	// Merged into KubeletConfiguration (kubelet.config.k8s.io/v1beta1) of every node. Nodes are drained, one by
	// one, when the CPU, memory or topology manager changes: their settings count for pods that start later.
	Config map[string]any `json:"config,omitempty" change:"restart"`
}

// KubeProxy configures kube-proxy.
type KubeProxy struct {
	// Merged into KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1).
	Config map[string]any `json:"config,omitempty"`
}

// Etcd configures the cluster's database.
type Etcd struct {
	// How etcd is run: by kubexm as binary under systemd, by kubeadm as static pod, or by somebody else.
	Type string `json:"type,omitempty" jsonschema:"default=kubexm,enum=kubexm,enum=kubeadm,enum=external" change:"refuse,the data is not moved from one etcd to another; make a new cluster"`
	// Version of etcd, like v3.6.16. Default: the one tested with the Kubernetes version. Not with type external. It does not go back to an older
	// minor version.
	Version string `json:"version,omitempty" change:"procedure"`
	// Directory of the data on the members, for etcd alone: deleting the cluster empties it. Not with type external.
	DataDir string `json:"dataDir,omitempty" jsonschema:"default=/var/lib/etcd" change:"refuse,the data is not moved; mount another file system at the old path" delete:"refuse"`
	// The cluster to use, for type external: it is neither made nor changed, and deleting the cluster leaves its keys in there.
	External *ExternalEtcd `json:"external,omitempty" change:"restart"`
	// Flags to add or override, without leading dashes: {quota-backend-bytes: "8589934592"}.
	ExtraArgs map[string]string `json:"extraArgs,omitempty" change:"restart"`
	// Regular snapshots on the members. They are not encrypted, as the data beside them is not.
	AutoBackup AutoBackup `json:"autoBackup,omitzero" change:"converge"`
	// Regular defragmentation of the members, one after another.
	AutoDefrag AutoDefrag `json:"autoDefrag,omitzero" change:"converge"`
}

// ExternalEtcd is an etcd cluster that kubexm uses but does not own.
type ExternalEtcd struct {
	// Client URLs, like https://192.0.2.21:2379.
	Endpoints []string `json:"endpoints" jsonschema:"required"`
	// Certificates of the authorities that signed etcd's certificates and the client's, on the control machine (PEM).
	CAFile string `json:"caFile" jsonschema:"required" content:"file"`
	// Client certificate for the API server, on the control machine (PEM).
	CertFile string `json:"certFile" jsonschema:"required" content:"file"`
	// Key of the client certificate, on the control machine (PEM).
	KeyFile string `json:"keyFile" jsonschema:"required" content:"file"`
}

// AutoBackup configures regular snapshots of etcd.
type AutoBackup struct {
	// Whether snapshots are taken.
	Enabled *bool `json:"enabled,omitempty" jsonschema:"default=false"`
	// When, as systemd calendar event (systemd.time(7)), in the time zone of the member. Default: "*-*-* 02:00:00".
	Schedule string `json:"schedule,omitempty"`
	// Directory on the members. They are left there when the cluster is deleted. Default: /var/backups/kube_etcd.
	Dir string `json:"dir,omitempty"`
	// Snapshots to keep on each member. Default: 6.
	Keep int `json:"keep,omitempty" jsonschema:"minimum=1,maximum=1000"`
}

// AutoDefrag configures regular defragmentation of etcd.
type AutoDefrag struct {
	// Whether members are defragmented.
	Enabled bool `json:"enabled,omitempty"`
	// When the first one begins, as systemd calendar event (systemd.time(7)), in the time zone of the member. Default: "Sun *-*-* 03:30:00".
	Schedule string `json:"schedule,omitempty"`
}

// Runtime configures the container runtime.
type Runtime struct {
	// Which runtime.
	Type string `json:"type,omitempty" jsonschema:"default=containerd,enum=containerd,enum=docker,enum=cri-o,enum=isulad" change:"roll"`
	// Version of the runtime, like v2.3.4. Default: the one tested with the Kubernetes version.
	Version string `json:"version,omitempty" change:"restart"`
	// Directory of images and containers on the nodes, for the runtime alone: deleting the cluster empties it.
	// Default: /var/lib/containerd, with docker /var/lib/docker, with cri-o /var/lib/crio/storage.
	// It may change together with the type: another runtime begins without images and containers.
	DataRoot string `json:"dataRoot,omitempty" change:"refuse,images and containers are not moved; mount another file system at the old path" delete:"refuse"`
}

// Modes of the load balancer.
const (
	BalancerInternal = "internal"
	BalancerExternal = "external"
	BalancerKubeVIP  = "kube-vip"
)

// Programs that spread connections, and types of an external load balancer.
const (
	ProxyHAProxy    = "haproxy"
	ProxyNginx      = "nginx"
	ExternalHAProxy = "kubexm-kh"
	ExternalNginx   = "kubexm-kn"
	ExternalOwn     = "external"
)

// LoadBalancer configures how the API server is reached.
type LoadBalancer struct {
	// Whether there is a load balancer. Default: true with several masters, false with one.
	Enabled *bool `json:"enabled,omitempty" change:"procedure"`
	// On every worker (internal), on hosts of its own (external), or an address moved by kube-vip. Default: internal.
	Mode string `json:"mode,omitempty" jsonschema:"enum=internal,enum=external,enum=kube-vip" change:"procedure"`
	// The proxy on every worker, for mode internal.
	Internal *InternalLoadBalancer `json:"internal,omitempty" change:"procedure"`
	// The load balancer hosts, for mode external.
	External *ExternalLoadBalancer `json:"external,omitempty" change:"procedure"`
	// kube-vip, for mode kube-vip.
	KubeVIP *KubeVIP `json:"kubeVip,omitempty" change:"procedure"`
	// Virtual address of the API server, for modes external and kube-vip.
	VIP string `json:"vip,omitempty" change:"procedure"`
	// Name of the API server's endpoint.
	Domain string `json:"domain,omitempty" jsonschema:"default=lb.kubexm.local" change:"procedure"`
	// TCP port of the API server's endpoint, and of every API server behind it.
	Port int `json:"port,omitempty" jsonschema:"default=6443,minimum=1,maximum=65535" change:"procedure"`
}

// InternalLoadBalancer configures the proxy on every worker.
type InternalLoadBalancer struct {
	// Which proxy. Default: haproxy.
	Type string `json:"type,omitempty" jsonschema:"enum=haproxy,enum=nginx"`
}

// ExternalLoadBalancer configures the load balancer in front of the masters.
type ExternalLoadBalancer struct {
	// keepalived with haproxy (kubexm-kh) or nginx (kubexm-kn) on the loadbalancer hosts,
	// or one that is there already (external). Default: kubexm-kh.
	Type string `json:"type,omitempty" jsonschema:"enum=kubexm-kh,enum=kubexm-kn,enum=external"`
}

// KubeVIP configures kube-vip on the masters.
type KubeVIP struct {
	// How the address is announced. Default: arp.
	Mode string `json:"mode,omitempty" jsonschema:"enum=arp,enum=bgp"`
	// Network interface of the masters that carries the address. Default: the one of the internal address.
	Interface string `json:"interface,omitempty"`
	// Own autonomous system number, for mode bgp.
	ASN int64 `json:"asn,omitempty" jsonschema:"minimum=1,maximum=4294967295"`
	// Routers to announce the address to, for mode bgp.
	Peers []BGPPeer `json:"peers,omitempty"`
}

// BGPPeer is a router.
type BGPPeer struct {
	// IP address of the router.
	Address string `json:"address" jsonschema:"required"`
	// Autonomous system number of the router.
	ASN int64 `json:"asn" jsonschema:"required,minimum=1,maximum=4294967295"`
	// Time without messages after which the router is lost. Default: 30s.
	HoldTime metav1.Duration `json:"holdTime,omitzero"`
}

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/util/secret"
)

// Registry configures a private image registry and how nodes reach registries.
type Registry struct {
	// What runs on the registry host: registry is that of the project Distribution. harbor is Harbor, from its offline installer; it
	// needs Docker Engine with Compose 2, which kubexm does not install, on an amd64 host that is no node. Default: registry.
	Type string `json:"type,omitempty" jsonschema:"enum=registry,enum=harbor" change:"refuse,the images are not moved to another kind of registry; run the other one yourself, as one of registry.mirrors" delete:"refuse"`
	// Name of the private registry, which the host with the role registry runs; with a port where that is not 443. All nodes take
	// images from there, by the names that they have elsewhere. In it these follow its own:
	// registry.kubexm.local/registry.k8s.io/pause:3.10. /etc/hosts of every host knows it. Default: registry.kubexm.local.
	PrivateRegistry string `json:"privateRegistry,omitempty" change:"restart"`
	// Directory of the images on the registry host; Harbor has its database and its logs there, too.
	// Default: /var/lib/registry, for harbor /data/harbor.
	DataDir string `json:"dataDir,omitempty" change:"refuse,the images are not moved; mount another file system at the old path" delete:"refuse"`
	// Login of nodes by registry, like registry.example.com:5000. That of the private registry is by default the user kubexm,
	// with a password that is made once and kept in the cluster's directory on the control machine. In Harbor the user is admin;
	// Harbor takes the password given here when it first starts, and keeps it.
	Auth map[string]RegistryAuth `json:"auth,omitempty" change:"converge"`
	// Mirrors for nodes by registry, tried in order: {docker.io: ["https://mirror.example.com"]}. A path comes before the names of images
	// ("https://mirror.example.com/hub" has library/nginx as hub/library/nginx). The registry itself is asked last, but
	// not with source.offline. A private registry is asked first, also for one with an empty list.
	Mirrors map[string][]string `json:"mirrors,omitempty" change:"converge"`
	// Registries, and hosts of mirrors, whose certificate nodes do not check, or that speak plain HTTP.
	Insecure []string `json:"insecure,omitempty" change:"converge"`
	// Only for type harbor.
	Harbor *Harbor `json:"harbor,omitempty"`
}

// What runs on the registry host.
const (
	RegistryDistribution = "registry"
	RegistryHarbor       = "harbor"
)

// RegistryAuth is the login at a registry, and how its certificate is checked.
type RegistryAuth struct {
	// User name. Empty: nobody logs in.
	Username string `json:"username,omitempty"`
	// Password.
	Password secret.Secret `json:"password,omitzero"`
	// Where the password is read from.
	PasswordFrom *SecretSource `json:"passwordFrom,omitempty"`
	// CA certificate of the registry, on the control machine (PEM), besides those that nodes trust anyway.
	CAFile string `json:"caFile,omitempty" content:"file"`
}

// Harbor configures Harbor.
type Harbor struct {
	// Version, like v2.15.2. Default: the one that this kubexm knows.
	Version string `json:"version,omitempty" change:"restart"`
}

// Storage lists the storage classes to install; those given are installed.
type Storage struct {
	// Storage class that claims without a class get; none: they wait for a class. Default: the only one that is installed.
	Default string `json:"default,omitempty" jsonschema:"enum=local-path,enum=openebs,enum=nfs,enum=rook,enum=longhorn,enum=none"`
	// Directories of the node, by Rancher's local path provisioner. Class local-path.
	LocalPath *LocalStorage `json:"localPath,omitempty"`
	// Directories of the node, by OpenEBS LocalPV.
	OpenEBS *LocalStorage `json:"openebs,omitempty"`
	// Directories of an NFS server, by the NFS subdir provisioner.
	NFS *NFS `json:"nfs,omitempty"`
	// Ceph, by Rook.
	Rook *ChartStorage `json:"rook,omitempty"`
	// Longhorn.
	Longhorn *ChartStorage `json:"longhorn,omitempty"`
}

// LocalStorage configures volumes that are directories of the node.
type LocalStorage struct {
	// Version of the provisioner. Default: the one that this kubexm knows.
	Version string `json:"version,omitempty" change:"restart"`
	// Directory on the nodes. Volumes that there are stay where they are when it changes.
	Path string `json:"path,omitempty" jsonschema:"default=/opt/local-path-provisioner" change:"converge"`
}

// Names of storage classes, and what Storage.Default is where there is to be no default.
const (
	StorageLocalPath = "local-path"
	StorageNone      = "none"
)

// NFS configures volumes on an NFS server.
type NFS struct {
	// Version of the provisioner.
	Version string `json:"version,omitempty"`
	// IP address or name of the server.
	Server string `json:"server" jsonschema:"required"`
	// Exported directory.
	Path string `json:"path" jsonschema:"required"`
}

// ChartStorage configures storage that a Helm chart installs.
type ChartStorage struct {
	// Version of the chart.
	Version string `json:"version,omitempty"`
	// Merged into the values of the chart.
	Values map[string]any `json:"values,omitempty"`
}

// AddonHelm is a value of addons[].type.
const AddonHelm = "helm"

// Addon is software of yours that is installed in the cluster when that works: manifests, or what a Helm chart renders.
type Addon struct {
	// Name of the addon: a DNS label. For a chart also the name of its release. Some addons are known and need no more than their
	// name: metrics-server.
	Name string `json:"name" jsonschema:"required"`
	// What it is made of: manifests (yaml), or a Helm chart.
	Type string `json:"type,omitempty" jsonschema:"default=yaml,enum=yaml,enum=helm"`
	// Namespace of objects that name none; it is created. Default: default.
	Namespace string `json:"namespace,omitempty"`
	// Files with manifests on the control machine, or directories, of which all *.yaml, *.yml and *.json files count, in the order of their names; or
	// URLs of files (https://), which the control machine fetches once.
	Files []string `json:"files,omitempty" content:"file"`
	// The manifests themselves.
	Inline string `json:"inline,omitempty"`
	// For type helm: the chart on the control machine, a directory or an archive; with repository its name there.
	Chart string `json:"chart,omitempty" content:"file"`
	// URL of the Helm repository that has the chart, like https://charts.example.com, or of a registry, like oci://registry.example.com/charts. The
	// control machine fetches it from there.
	Repository string `json:"repository,omitempty"`
	// Version of the chart in the repository, as that has it.
	Version string `json:"version,omitempty"`
	// Files with values of the chart, each over those before it.
	ValuesFiles []string `json:"valuesFiles,omitempty" content:"file"`
	// Values of the chart, over those of valuesFiles.
	Values map[string]any `json:"values,omitempty"`
	// Whether the control machine fetches the images that the manifests name, and nodes have them before the addon is applied; bundles have
	// them, too. Those that are named by a digest are left to the nodes.
	Preload *bool `json:"preload,omitempty" jsonschema:"default=true"`
	// Images that no container of a manifest names, to be preloaded, too: those that a program of the addon starts pods of.
	Images []string `json:"images,omitempty"`
	// How long it may take until all that it runs is ready; of a chart with hooks, each of its parts.
	Timeout metav1.Duration `json:"timeout,omitzero" jsonschema:"default=5m0s"`
}

// System configures the operating system of the hosts.
type System struct {
	// Time servers, by IP address or name: chrony is installed and uses these alone. If the only one is a host of the
	// cluster, that host serves the others; it keeps the sources that it has, and its own clock counts without them.
	NTPServers []string `json:"ntpServers,omitempty"`
	// Time zone of the hosts, like Europe/Berlin. Default: as it is.
	Timezone string `json:"timezone,omitempty"`
	// Further packages for hosts with dnf or yum.
	RPMs []string `json:"rpms,omitempty"`
	// Further packages for hosts with apt.
	Debs []string `json:"debs,omitempty"`
	// Kernel parameters to add or override: {net.core.somaxconn: "32768"}.
	Sysctl map[string]string `json:"sysctl,omitempty"`
	// Further kernel modules to load.
	Modules []string `json:"modules,omitempty"`
}

// Extra holds entries for the hosts' own name resolution.
type Extra struct {
	// Entries for /etc/hosts of every host.
	Hosts []HostEntry `json:"hosts,omitempty"`
	// Name servers that hosts ask before those that they have: at the top of /etc/resolv.conf, or in a drop-in where
	// systemd-resolved keeps that file. Where NetworkManager, cloud-init or a DHCP client writes a plain file again, they
	// are gone until the next run: let it leave the file alone (NetworkManager: dns=none), or give it the servers.
	Resolves []Resolver `json:"resolves,omitempty"`
}

// HostEntry is a line of /etc/hosts.
type HostEntry struct {
	// The name.
	Domain string `json:"domain" jsonschema:"required"`
	// Its IP address.
	Address string `json:"address" jsonschema:"required"`
}

// Resolver is a name server.
type Resolver struct {
	// IP address of the server.
	Address string `json:"address" jsonschema:"required"`
}

// Source says where kubexm gets binaries, images and packages.
type Source struct {
	// Part of the world: cn takes Chinese mirrors. Default: the environment variable KXZONE.
	Zone string `json:"zone,omitempty" jsonschema:"enum=cn"`
	// What to take instead: URL prefix by URL prefix, registry by registry
	// ({"https://dl.k8s.io": "https://mirror.example.com/k8s", registry.k8s.io: mirror.example.com/k8s-images}).
	// A mirror that is named here is trusted: a program whose checksum kubexm does not know is held against the one published beside it there.
	// (For mirrors of a zone the publisher is asked first.) That of Harbor comes from https://api.github.com, which may have a mirror of its own.
	Mirrors map[string]string `json:"mirrors,omitempty"`
	// Whether mirrors may be reached without TLS (http://), or redirect there: whoever is on the way can then replace programs and images that
	// kubexm has not seen before. Mirrors of this machine, and of what is published without TLS, need no permission.
	Insecure bool `json:"insecure,omitempty"`
	// Whether a program of Kubernetes is refused where no signature of its release is found: beside the program on its mirror, at the publisher, or
	// in a bundle. A signature that is wrong is always refused. Programs whose checksums kubexm was released with need none; programs of
	// others, images and packages are not concerned. With it you cannot use programs of Kubernetes that you have built yourself.
	RequireSignatures bool `json:"requireSignatures,omitempty"`
	// How the control machine gets at a server, by URL prefix or registry, of which the longest counts
	// ({"https://mirror.example.com": {username: ci, passwordFrom: {env: MIRROR_PASSWORD}, caFile: ~/mirror-ca.pem}}).
	// Of what it is not given for, docker's logins and the proxies of the environment count; where apt or dnf of the control
	// machine read an index of packages, their own settings.
	Access map[string]Access `json:"access,omitempty"`
	// Whether everything comes from the local store and nothing is fetched: `kubexm download --export` on another machine
	// and `kubexm import` fill it. So do packages of the operating system that hosts lack, which `--os` adds to it;
	// the hosts' own repositories are not asked.
	Offline bool `json:"offline,omitempty"`
}

// Access is what it takes to get at a server, besides its address.
type Access struct {
	// User name of the login. It is given to what the prefix covers, and to nobody that it redirects to.
	Username string `json:"username,omitempty"`
	// Password.
	Password secret.Secret `json:"password,omitzero"`
	// Where the password is read from.
	PasswordFrom *SecretSource `json:"passwordFrom,omitempty"`
	// CA certificates (PEM) on the control machine, to trust besides those of its system.
	CAFile string `json:"caFile,omitempty"`
	// URL of a proxy, or direct; also for where the server redirects to. Default: HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
	Proxy string `json:"proxy,omitempty"`
	// Where the URL of a proxy that wants a login is read from: http://user:password@host:port.
	ProxyFrom *SecretSource `json:"proxyFrom,omitempty"`
}

// Preflight holds the limits of the preflight checks. Where directories share a file system, what they need adds up.
type Preflight struct {
	// Fewest processors of a host.
	MinCPUs int `json:"minCPUs,omitempty" jsonschema:"default=2,minimum=1"`
	// Least memory of a master: 4 GB, of which the kernel keeps some.
	MinMasterMemoryMiB int `json:"minMasterMemoryMiB,omitempty" jsonschema:"default=3600,minimum=1"`
	// Least memory of other hosts: 2 GB, of which the kernel keeps some.
	MinWorkerMemoryMiB int `json:"minWorkerMemoryMiB,omitempty" jsonschema:"default=1800,minimum=1"`
	// Least free space of a node in runtime.dataRoot, for images and containers. /usr/local/bin and /var/lib/kubelet need
	// another 1000 and 500 MiB.
	MinNodeDiskMiB int `json:"minNodeDiskMiB,omitempty" jsonschema:"default=5000,minimum=1"`
	// Least free space in etcd.dataDir of an etcd member.
	MinEtcdDiskMiB int `json:"minEtcdDiskMiB,omitempty" jsonschema:"default=1000,minimum=1"`
	// Least free space in registry.dataDir of the registry host.
	MinRegistryDiskMiB int `json:"minRegistryDiskMiB,omitempty" jsonschema:"default=5000,minimum=1"`
	// Fewest free inodes of a node in runtime.dataRoot.
	MinNodeInodes int `json:"minNodeInodes,omitempty" jsonschema:"default=50000,minimum=1"`
}

// Upgrade says how nodes that must be drained are changed.
type Upgrade struct {
	// How many nodes are drained and changed at a time, once the first one is well: a number, or a share of them like 10%, rounded down, at least one.
	// Masters change one by one.
	MaxUnavailable string `json:"maxUnavailable,omitempty" jsonschema:"default=1"`
	// How long the first node must stay Ready with what it got, and with pods, before the others follow; 0s: they follow at once.
	Pause metav1.Duration `json:"pause,omitzero" jsonschema:"default=0s"`
	// How the pods of a node are made to leave.
	Drain Drain `json:"drain,omitzero"`
}

// Drain says how the pods of a node are made to leave.
type Drain struct {
	// How long they may take. Disruption budgets are respected meanwhile.
	Timeout metav1.Duration `json:"timeout,omitzero" jsonschema:"default=10m"`
	// Whether pods are deleted that disruption budgets do not let go within two minutes, or a third of the timeout if that is less, or that nothing would start on another node.
	// They get as long again to end.
	Force bool `json:"force,omitempty"`
	// Whether pods may be moved that have data in volumes of type emptyDir, which is lost; false: their nodes are not drained.
	DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty" jsonschema:"default=true"`
}

// Hooks are commands of yours around the work on each node that is drained.
type Hooks struct {
	// Before a node is drained: because it changes, or because it leaves the cluster.
	BeforeNode []Hook `json:"beforeNode,omitempty"`
	// After a node that has changed gets pods again. They run whenever the work on it has begun, also where it failed or kubexm was killed: then in the next run.
	AfterNode []Hook `json:"afterNode,omitempty"`
}

// Hook is a command in a shell. Its environment has KUBEXM_HOOK (beforeNode, afterNode), KUBEXM_CLUSTER, KUBEXM_NODE, KUBEXM_ADDRESS,
// KUBEXM_KUBERNETES_VERSION and, of use on the control machine, KUBEXM_KUBECONFIG. It may run again for the same node after a run that was cut off.
type Hook struct {
	// What it is called in messages.
	Name string `json:"name" jsonschema:"required"`
	// Script for sh.
	Command string `json:"command" jsonschema:"required"`
	// Where it runs: on the control machine, as the user that runs kubexm, or on the host, as root.
	Where string `json:"where,omitempty" jsonschema:"default=control,enum=control,enum=host"`
	// How long it may take.
	Timeout metav1.Duration `json:"timeout,omitzero" jsonschema:"default=5m"`
	// Whether the run stops where it fails.
	FailurePolicy string `json:"failurePolicy,omitempty" jsonschema:"default=Fail,enum=Fail,enum=Ignore"`
}

// Values of Hook.Where and Hook.FailurePolicy.
const (
	HookControl = "control"
	HookHost    = "host"
	HookIgnore  = "Ignore"
)

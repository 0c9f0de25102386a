// Package v1alpha1 is the configuration of a cluster, as written in cluster.yaml.
//
// Comments of fields are shown to users by `kubexm config explain` and stand in
// the JSON Schema. The jsonschema tags are the one source of what is required,
// what values are allowed, and plain defaults: pkg/config enforces them.
package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/util/secret"
)

// What every configuration file starts with.
const (
	APIVersion = "kubexm.io/v1alpha1"
	Kind       = "Cluster"
)

// Cluster is everything kubexm knows about a wanted cluster.
type Cluster struct {
	// Version of this format.
	APIVersion string `json:"apiVersion" jsonschema:"required,enum=kubexm.io/v1alpha1"`
	// Kind of the document.
	Kind string `json:"kind" jsonschema:"required,enum=Cluster"`
	// Who the cluster is.
	Metadata Metadata `json:"metadata" jsonschema:"required"`
	// What the cluster shall be.
	Spec Spec `json:"spec" jsonschema:"required"`
	// Where it was read from, for what turns out to be wrong later.
	Origin Origin `json:"-"`
}

// Origin is the file that a configuration stands in.
type Origin struct {
	File  string
	Lines map[string]int // of each field that is written, like spec.hosts[1].address
}

// Metadata identifies the cluster.
type Metadata struct {
	// Name of the cluster: a DNS label. Its directory on the control machine has the same name.
	Name string `json:"name" jsonschema:"required"`
}

// Spec is the wanted state.
type Spec struct {
	// How to log in to the hosts. Each host may override each field.
	Global Connection `json:"global,omitzero"`
	// The machines of the cluster.
	Hosts []Host `json:"hosts" jsonschema:"required"`
	// Which hosts have which role, instead of or besides hosts[].roles. Hosts are given by name or by
	// range: "node[1:3]" is node1, node2 and node3; "node[01:12]" is node01 to node12.
	RoleGroups RoleGroups `json:"roleGroups,omitzero"`
	// Kubernetes itself.
	Kubernetes Kubernetes `json:"kubernetes,omitzero"`
	// The database of the cluster.
	Etcd Etcd `json:"etcd,omitzero"`
	// The container runtime of every node.
	Runtime Runtime `json:"runtime,omitzero"`
	// Networks of pods and services.
	Network Network `json:"network,omitzero"`
	// Name resolution inside the cluster.
	DNS DNS `json:"dns,omitzero"`
	// How the API server is reached. Every client uses https://<domain>:<port>; /etc/hosts on each node decides
	// where that leads.
	LoadBalancer LoadBalancer `json:"loadBalancer,omitzero"`
	// A private image registry, and how nodes reach registries.
	Registry *Registry `json:"registry,omitempty"`
	// Storage classes to install.
	Storage *Storage `json:"storage,omitempty"`
	// Further software to install, in this order.
	Addons []Addon `json:"addons,omitempty"`
	// Preparation of the hosts' operating system.
	System System `json:"system,omitzero"`
	// Entries for the hosts' own name resolution.
	Extra Extra `json:"extra,omitzero"`
	// Where kubexm gets what it installs.
	Source Source `json:"source,omitzero"`
	// What the machines must have before anything is installed.
	Preflight Preflight `json:"preflight,omitzero"`
}

// Credentials is how to log in to a machine.
type Credentials struct {
	// Login user. Another user than root needs sudo.
	User string `json:"user,omitempty" jsonschema:"default=root"`
	// TCP port of sshd.
	Port int `json:"port,omitempty" jsonschema:"default=22,minimum=1,maximum=65535"`
	// Private key file on the control machine; "~/" is the home directory. Default: the keys of the SSH agent,
	// then ~/.ssh/id_ed25519, id_ecdsa and id_rsa.
	PrivateKeyPath string `json:"privateKeyPath,omitempty"`
	// Passphrase of the private key.
	Passphrase secret.Secret `json:"passphrase,omitzero"`
	// Where the passphrase of the private key is read from.
	PassphraseFrom *SecretSource `json:"passphraseFrom,omitempty"`
	// Login password.
	Password secret.Secret `json:"password,omitzero"`
	// Where the login password is read from.
	PasswordFrom *SecretSource `json:"passwordFrom,omitempty"`
}

// Connection is how to reach a machine and become root there.
type Connection struct {
	Credentials
	// Password for sudo, where sudo asks for one. Default: the login password.
	SudoPassword secret.Secret `json:"sudoPassword,omitzero"`
	// Where the password for sudo is read from.
	SudoPasswordFrom *SecretSource `json:"sudoPasswordFrom,omitempty"`
	// Machine to connect through, like ssh -J. User and key default to those of the host.
	Bastion *Bastion `json:"bastion,omitempty"`
	// How long the network may take: durations like 10s or 2m.
	Timeouts Timeouts `json:"timeouts,omitzero"`
}

// Bastion is a machine that connections pass through.
type Bastion struct {
	// IP address or name of the bastion, as the control machine reaches it.
	Address string `json:"address" jsonschema:"required"`
	Credentials
}

// Timeouts limits how long the network may take.
type Timeouts struct {
	// Until a connection stands, log-in included.
	Connect metav1.Duration `json:"connect,omitzero" jsonschema:"default=10s"`
	// Silence after which a machine is asked for a sign of life; without an answer to four such questions it is lost.
	KeepAlive metav1.Duration `json:"keepAlive,omitzero" jsonschema:"default=15s"`
}

// SecretSource says where a secret is read from, on the control machine, when
// it is needed: exactly one field is given.
type SecretSource struct {
	// Name of an environment variable.
	Env string `json:"env,omitempty"`
	// A file; one newline at its end is dropped.
	File string `json:"file,omitempty"`
	// A shell command line; its output is the secret, one newline at its end is dropped.
	Exec string `json:"exec,omitempty"`
}

// Role is what a host does in the cluster.
type Role string

// The roles, in the order in which Host.Roles holds them.
const (
	RoleMaster       Role = "master"
	RoleEtcd         Role = "etcd"
	RoleWorker       Role = "worker"
	RoleRegistry     Role = "registry"
	RoleLoadBalancer Role = "loadbalancer"
)

// Host is one machine. Its connection fields override those of spec.global.
type Host struct {
	// Name of the host: a DNS label (RFC 1123). Its node in Kubernetes has this name, /etc/hosts of every host
	// knows it, and it becomes the machine's host name until the cluster is deleted.
	Name string `json:"name" jsonschema:"required"`
	// IP address or name at which the control machine reaches the host.
	Address string `json:"address" jsonschema:"required"`
	// IPv4 address at which the other hosts reach it. Default: address.
	InternalAddress string `json:"internalAddress,omitempty"`
	// Processor architecture. Default: asked from the host.
	Arch string `json:"arch,omitempty" jsonschema:"enum=amd64,enum=arm64"`
	// What the host does. A master without the role worker gets the taint
	// node-role.kubernetes.io/control-plane:NoSchedule.
	Roles []Role `json:"roles,omitempty" jsonschema:"enum=master,enum=etcd,enum=worker,enum=registry,enum=loadbalancer"`
	// Labels of the node, besides those that kubexm sets for its roles.
	Labels map[string]string `json:"labels,omitempty"`
	// Taints of the node, besides those that kubexm sets for its roles.
	Taints []Taint `json:"taints,omitempty"`
	Connection
}

// Is reports whether the host has the role.
func (h *Host) Is(r Role) bool { return slices.Contains(h.Roles, r) }

// Taint keeps pods off a node unless they tolerate it.
type Taint struct {
	// A label key, like example.com/dedicated.
	Key string `json:"key" jsonschema:"required"`
	// A label value.
	Value string `json:"value,omitempty"`
	// What happens to pods that do not tolerate the taint.
	Effect string `json:"effect" jsonschema:"required,enum=NoSchedule,enum=PreferNoSchedule,enum=NoExecute"`
}

// RoleGroups lists the hosts of each role, by name or by range.
type RoleGroups struct {
	// Control planes.
	Master []string `json:"master,omitempty"`
	// Members of the etcd cluster. With etcd.type kubeadm: the masters.
	Etcd []string `json:"etcd,omitempty"`
	// Nodes for ordinary pods.
	Worker []string `json:"worker,omitempty"`
	// The host of the private image registry: one.
	Registry []string `json:"registry,omitempty"`
	// Hosts of the external load balancer.
	LoadBalancer []string `json:"loadbalancer,omitempty"`
}

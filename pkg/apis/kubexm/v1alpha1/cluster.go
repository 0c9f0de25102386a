// Package v1alpha1 is the configuration of a cluster, as written in cluster.yaml.
//
// Comments of fields are shown to users by `kubexm config explain` and stand in
// the JSON Schema. The jsonschema tags are the one source of what is required,
// what values are allowed, and plain defaults: pkg/config enforces them.
//
// The tag change decides how a change of a field is brought about on a cluster
// that runs; a field without one has that of the field it is part of. The values
// are those of config.Way; refuse is followed by the reason and the way out:
// "refuse,<why>; <way out>". What was not given before can be given all the same.
//
// The tag delete:"refuse" stands at what `kubexm delete cluster` empties: it must
// be as the cluster was made with. The tag content:"file" stands at names of files
// on the control machine whose content counts like the field itself.
package v1alpha1

import (
	"slices"
	"strings"

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
	Text  []byte         // the whole document
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
	Global Connection `json:"global,omitzero" change:"none"`
	// The machines of the cluster. Any of them can be added to a cluster that runs, and removed from it.
	Hosts []Host `json:"hosts" jsonschema:"required" change:"procedure"`
	// Which hosts have which role, instead of or besides hosts[].roles. Hosts are given by name or by
	// range: "node[1:3]" is node1, node2 and node3; "node[01:12]" is node01 to node12.
	RoleGroups RoleGroups `json:"roleGroups,omitzero" change:"none"`
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
	Storage *Storage `json:"storage,omitempty" change:"converge"`
	// Further software to install, in this order.
	Addons []Addon `json:"addons,omitempty" change:"converge"`
	// Preparation of the hosts' operating system.
	System System `json:"system,omitzero" change:"converge"`
	// Entries for the hosts' own name resolution.
	Extra Extra `json:"extra,omitzero" change:"converge"`
	// Where kubexm gets what it installs.
	Source Source `json:"source,omitzero" change:"none"`
	// What the machines must have before anything is installed.
	Preflight Preflight `json:"preflight,omitzero" change:"none"`
	// How nodes are drained and changed when they get another version.
	Upgrade Upgrade `json:"upgrade,omitzero" change:"none"`
	// Commands of yours around the work on each node that is drained.
	Hooks Hooks `json:"hooks,omitzero" change:"none"`
	// Backups of the cluster, and who can read them.
	Backup Backup `json:"backup,omitzero" change:"none"`
}

// Credentials is how to log in to a machine.
type Credentials struct {
	// Login user. On hosts, another user than root needs sudo.
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
	// What to do with a machine whose host key is not known: ask, accept-new (record the key that it shows first) or strict (refuse it).
	// Default: ask on a terminal, else accept-new.
	HostKeyPolicy string `json:"hostKeyPolicy,omitempty" jsonschema:"enum=ask,enum=accept-new,enum=strict"`
	// How long the network may take: durations like 10s or 2m.
	Timeouts Timeouts `json:"timeouts,omitzero"`
}

// Bastion is a machine that connections pass through.
type Bastion struct {
	// IP address or name of the bastion, as the control machine reaches it.
	Address string `json:"address" jsonschema:"required"`
	// Public key of the bastion's sshd, or its fingerprint, as for hosts.
	HostKey string `json:"hostKey,omitempty"`
	Credentials
}

// Timeouts limits how long the network may take.
type Timeouts struct {
	// Until a connection stands, login included.
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

// Roles returns all roles.
func Roles() []Role { return []Role{RoleMaster, RoleEtcd, RoleWorker, RoleRegistry, RoleLoadBalancer} }

// Host is one machine. Its connection fields override those of spec.global.
type Host struct {
	// Name of the host: a DNS label (RFC 1123). Its node in Kubernetes has this name, /etc/hosts of every host
	// knows it, and it becomes the machine's host name until the cluster is deleted.
	Name string `json:"name" jsonschema:"required" change:"none"`
	// IP address or name at which the control machine reaches the host. Hosts behind one address have a port each.
	Address string `json:"address" jsonschema:"required" change:"restart"`
	// IP address at which the other hosts reach it. Where pods and services have networks of both families, nodes have two of them:
	// 10.0.0.11,fd00::11, in the order of the networks. Default: address.
	InternalAddress string `json:"internalAddress,omitempty" change:"rejoin"`
	// Processor architecture. Default: asked from the host.
	Arch string `json:"arch,omitempty" jsonschema:"enum=amd64,enum=arm64" change:"none"`
	// What the host does. A master without the role worker gets the taint
	// node-role.kubernetes.io/control-plane:NoSchedule.
	Roles []Role `json:"roles,omitempty" jsonschema:"enum=master,enum=etcd,enum=worker,enum=registry,enum=loadbalancer" change:"procedure"`
	// Labels of the node, besides those that kubexm sets for its roles.
	Labels map[string]string `json:"labels,omitempty" change:"converge"`
	// Annotations of the node.
	Annotations map[string]string `json:"annotations,omitempty" change:"converge"`
	// Taints of the node, besides those that kubexm sets for its roles.
	Taints []Taint `json:"taints,omitempty" change:"converge"`
	// Public key with which the machine's sshd must prove itself, like ssh-ed25519 AAAA..., or its fingerprint, like SHA256:....
	// Default: the key on record, see global.hostKeyPolicy.
	HostKey    string `json:"hostKey,omitempty" change:"none"`
	Connection `change:"none"`
}

// IPs are the internal addresses of the host, the primary one first; at least one, which may be empty.
func (h *Host) IPs() []string { return strings.Split(h.InternalAddress, ",") }

// IP is the primary internal address.
func (h *Host) IP() string { return h.IPs()[0] }

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

package config

import "k8s.io/apimachinery/pkg/util/version"

// Versions are the parts that were tested with one minor version of Kubernetes.
// All but Pause are written with a v, like upstream's release tags.
type Versions struct {
	Kubernetes string // newest known patch release
	Tested     bool   // whether clusters of this minor are part of the tests
	Etcd       string // for etcd.type kubexm
	EtcdImage  string // for etcd.type kubeadm: what kubeadm asks for
	CoreDNS    string // what kubeadm asks for
	Pause      string // what kubeadm asks for; a tag
	NodeParts
}

// NodeParts are versions of what does not depend on the version of Kubernetes.
type NodeParts struct {
	Containerd string
	Runc       string
	CNI        string // containernetworking/plugins
	Crictl     string
	Flannel    string
	FlannelCNI string // flannel-io/cni-plugin
	HAProxy    string // tag of the image, as the next
	Nginx      string
	KubeVIP    string
	Registry   string // of the project Distribution
	Harbor     string
}

var current = NodeParts{
	Containerd: "v2.3.4",
	Runc:       "v1.5.1",
	CNI:        "v1.9.1",
	Crictl:     "v1.36.0",
	Flannel:    "v0.28.9",
	FlannelCNI: "v1.9.1-flannel3",
	HAProxy:    "3.2.22",
	Nginx:      "1.30.4",
	KubeVIP:    "v1.2.2",
	Registry:   "v3.1.2",
	Harbor:     "v2.15.2",
}

// versions has one line for each minor, oldest first; a newer one goes to the
// end and becomes the default. What kubeadm asks for: cmd/kubeadm/app/constants.
var versions = []Versions{
	{"v1.32.13", false, "v3.5.33", "v3.5.24", "v1.11.3", "3.10", current},
	{"v1.33.13", false, "v3.5.33", "v3.5.24", "v1.12.0", "3.10", current},
	{"v1.34.11", true, "v3.6.16", "v3.6.5", "v1.12.1", "3.10.1", current},
	{"v1.35.8", true, "v3.6.16", "v3.6.6", "v1.13.1", "3.10.1", current},
	{"v1.36.4", true, "v3.6.16", "v3.6.8", "v1.14.2", "3.10.2", current},
	{"v1.37.1", true, "v3.7.1", "v3.7.0", "v1.14.6", "3.10.2", current},
}

// MinEtcd is kubeadm's MinExternalEtcdVersion in all these minors.
const MinEtcd = "v3.5.24"

// VersionsFor returns the parts for a Kubernetes version: those of its minor,
// or of the nearest known one; for what is no version, the newest.
func VersionsFor(kubernetes string) Versions {
	if minor(kubernetes) == 0 {
		return versions[len(versions)-1]
	}
	best := versions[0]
	for _, v := range versions {
		if minor(v.Kubernetes) <= minor(kubernetes) {
			best = v
		}
	}
	return best
}

// DefaultKubernetes is the version installed when none is asked for.
func DefaultKubernetes() string { return versions[len(versions)-1].Kubernetes }

// minor returns 37 for v1.37.0 and v1.37, 0 for what is no version.
func minor(v string) uint {
	if p, err := version.ParseGeneric(v); err == nil {
		return p.Minor()
	}
	return 0
}

// atLeast compares versions; what is no version is at least nothing.
func atLeast(v, than string) bool {
	have, err := version.ParseSemantic(v)
	return err == nil && have.AtLeast(version.MustParseSemantic(than))
}

package config

import "k8s.io/apimachinery/pkg/util/version"

// Versions are the parts that were tested with one minor version of Kubernetes; those that do not depend on it are in package plugin.
// All but Pause are written with a v, like upstream's release tags.
type Versions struct {
	Kubernetes string // newest known patch release
	Tested     bool   // whether clusters of this minor are part of the tests
	Etcd       string // for etcd.type kubexm
	EtcdImage  string // for etcd.type kubeadm
	CoreDNS    string // what kubeadm asks for
	Pause      string // what kubeadm asks for; a tag
}

// versions has one line for each minor, oldest first; a newer one goes to the
// end and becomes the default. What kubeadm asks for: cmd/kubeadm/app/constants. Its etcd is another one where that is not to be
// used, or cannot be upgraded: see nextEtcd.
var versions = []Versions{
	{"v1.32.13", false, "v3.5.33", "v3.5.24", "v1.11.3", "3.10"},
	{"v1.33.13", false, "v3.5.33", "v3.5.24", "v1.12.0", "3.10"},
	{"v1.34.11", true, "v3.6.16", "v3.6.16", "v1.12.1", "3.10.1"},
	{"v1.35.8", true, "v3.6.16", "v3.6.16", "v1.13.1", "3.10.1"},
	{"v1.36.4", true, "v3.6.16", "v3.6.16", "v1.14.2", "3.10.2"},
	{"v1.37.1", true, "v3.7.1", "v3.7.1", "v1.14.6", "3.10.2"},
}

// MinEtcd is kubeadm's MinExternalEtcdVersion in all these minors.
const MinEtcd = "v3.5.24"

// VersionsFor returns the parts for a Kubernetes version: those of its minor,
// or of the nearest known one; for what is no version, the newest.
func VersionsFor(kubernetes string) Versions {
	if Minor(kubernetes) == 0 {
		return versions[len(versions)-1]
	}
	best := versions[0]
	for _, v := range versions {
		if Minor(v.Kubernetes) <= Minor(kubernetes) {
			best = v
		}
	}
	return best
}

// KnownKubernetes are the newest known versions of all minors, oldest first.
func KnownKubernetes() (all []string) {
	for _, v := range versions {
		all = append(all, v.Kubernetes)
	}
	return all
}

// DefaultKubernetes is the version installed when none is asked for.
func DefaultKubernetes() string { return versions[len(versions)-1].Kubernetes }

// Minor is the number of a minor version: 37 of v1.37.0 and v1.37; 0 of what is no version.
func Minor(v string) int {
	if p, err := version.ParseGeneric(v); err == nil {
		return int(p.Minor())
	}
	return 0
}

// atLeast compares versions; what is no version is at least nothing.
func atLeast(v, than string) bool {
	have, err := version.ParseSemantic(v)
	return err == nil && have.AtLeast(version.MustParseSemantic(than))
}

package config

import (
	"slices"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/plugin"
)

// gate is a known fact about versions that do not go together.
type gate struct {
	from    string // first Kubernetes version it holds for; empty: all
	path    string // the field to change
	warning bool   // works, but not as wanted or not for long
	value   func(*v1alpha1.Spec) (found string, applies bool)
	msg     string
}

var gates = []gate{
	{path: "spec.etcd.version", value: before(func(s *v1alpha1.Spec) *string { return &s.Etcd.Version }, MinEtcd), msg: "Kubernetes needs etcd " + MinEtcd + " or newer"},
	{path: "spec.etcd.version", value: etcdWithdrawn, msg: "this release is never to be used: take v3.7.1, or a newer one"},
	{path: "spec.etcd.version", warning: true, value: etcdAhead, msg: "newer than the etcd tested with this Kubernetes"},
	{
		from: "v1.35.0", path: "spec.kubernetes.proxyMode", warning: true, value: proxyMode(v1alpha1.ProxyIPVS),
		msg: "ipvs is deprecated since Kubernetes 1.35; nftables takes its place",
	},
	{path: "spec.kubernetes.kubeProxy.config", warning: true, value: proxyUnused, msg: "has no effect: there is no kube-proxy"},
	{path: "spec.kubernetes.proxyMode", value: proxyNone, msg: "this network plugin does not replace kube-proxy"},
}

// ofPlugins are the gates of the plugins that a cluster has.
func ofPlugins(s *v1alpha1.Spec) (all []gate) {
	for _, p := range plugin.Of(s) {
		for _, g := range p.Gates {
			all = append(all, gate{from: g.From, path: p.Version.Path, value: before(p.Version.Of, g.Least), msg: g.Why})
		}
	}
	return all
}

func before(field func(*v1alpha1.Spec) *string, v string) func(*v1alpha1.Spec) (string, bool) {
	return func(s *v1alpha1.Spec) (string, bool) {
		found := *field(s)
		return found, isVersion(found) && !atLeast(found, v)
	}
}

func etcdAhead(s *v1alpha1.Spec) (string, bool) {
	return s.Etcd.Version, Minor(s.Etcd.Version) > Minor(VersionsFor(s.Kubernetes.Version).Etcd)
}

func etcdWithdrawn(s *v1alpha1.Spec) (string, bool) {
	return s.Etcd.Version, Same(s.Etcd.Version, "v3.7.0")
}

func proxyMode(mode string) func(*v1alpha1.Spec) (string, bool) {
	return func(s *v1alpha1.Spec) (string, bool) { return mode, s.Kubernetes.ProxyMode == mode }
}

func proxyUnused(s *v1alpha1.Spec) (string, bool) {
	return "", s.Kubernetes.ProxyMode == v1alpha1.ProxyNone && len(s.Kubernetes.KubeProxy.Config) > 0
}

func proxyNone(s *v1alpha1.Spec) (string, bool) {
	return s.Kubernetes.ProxyMode, s.Kubernetes.ProxyMode == v1alpha1.ProxyNone && !plugin.NetworkOf(s).Services
}

func (k *checker) checkGates() {
	for _, g := range slices.Concat(ofPlugins(k.Spec), gates) {
		if g.from != "" && !atLeast(k.Kubernetes.Version, g.from) {
			continue
		}
		if found, applies := g.value(k.Spec); applies && g.warning {
			k.warn(g.path, found, "%s", g.msg)
		} else if applies {
			k.fail(g.path, found, "%s", g.msg)
		}
	}
}

package config

import (
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
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
	{path: "spec.runtime.version", value: containerdBefore("v1.7.0"), msg: "containerd must be 1.7 or newer"},
	{from: "v1.36.0", path: "spec.runtime.version", value: containerdBefore("v2.0.0"), msg: "Kubernetes 1.36 and newer need containerd 2.x"},
	{path: "spec.etcd.version", value: etcdBefore(MinEtcd), msg: "Kubernetes needs etcd " + MinEtcd + " or newer"},
	{path: "spec.etcd.version", warning: true, value: etcdAhead, msg: "newer than the etcd tested with this Kubernetes"},
	{
		from: "v1.35.0", path: "spec.kubernetes.proxyMode", warning: true, value: proxyMode(v1alpha1.ProxyIPVS),
		msg: "ipvs is deprecated since Kubernetes 1.35; nftables takes its place",
	},
	{path: "spec.kubernetes.proxyMode", value: proxyNone, msg: "only the plugin cilium replaces kube-proxy"},
}

func containerdBefore(v string) func(*v1alpha1.Spec) (string, bool) {
	return func(s *v1alpha1.Spec) (string, bool) {
		return s.Runtime.Version, s.Runtime.Type == "containerd" && isVersion(s.Runtime.Version) && !atLeast(s.Runtime.Version, v)
	}
}

func etcdBefore(v string) func(*v1alpha1.Spec) (string, bool) {
	return func(s *v1alpha1.Spec) (string, bool) {
		return s.Etcd.Version, isVersion(s.Etcd.Version) && !atLeast(s.Etcd.Version, v)
	}
}

func etcdAhead(s *v1alpha1.Spec) (string, bool) {
	return s.Etcd.Version, minor(s.Etcd.Version) > minor(VersionsFor(s.Kubernetes.Version).Etcd)
}

func proxyMode(mode string) func(*v1alpha1.Spec) (string, bool) {
	return func(s *v1alpha1.Spec) (string, bool) { return mode, s.Kubernetes.ProxyMode == mode }
}

func proxyNone(s *v1alpha1.Spec) (string, bool) {
	return s.Kubernetes.ProxyMode, s.Kubernetes.ProxyMode == v1alpha1.ProxyNone && s.Network.Plugin != v1alpha1.PluginCilium
}

func (k *checker) checkGates() {
	for _, g := range gates {
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

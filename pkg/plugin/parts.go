package plugin

import "github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"

// Parts of more than one container runtime.
var (
	runc = Component{
		Name: "runc", Version: "v1.5.1",
		Base: GitHub + "opencontainers/runc/releases/download/v{version}/",
		File: "runc.{arch}",
		Sums: "runc.sha256sum",
	}
	crictl = Component{
		Name: "crictl", Version: "v1.36.0",
		Base:     GitHub + "kubernetes-sigs/cri-tools/releases/download/v{version}/",
		File:     "crictl-v{version}-linux-{arch}.tar.gz",
		Sums:     "{file}.sha256",
		Programs: []string{"crictl"},
	}
	cniPlugins = Component{
		Name: CNIPlugins, Version: "v1.9.1",
		Base:     GitHub + "containernetworking/plugins/releases/download/v{version}/",
		File:     "cni-plugins-linux-{arch}-v{version}.tgz",
		Sums:     "{file}.sha256",
		Programs: []string{"[a-z]*"}, // not LICENSE and README.md
	}
)

// runtimeVersion is the version of a cluster's container runtime, where that is the named one.
func runtimeVersion(name string) Field {
	return Field{"spec.runtime.version", func(s *v1alpha1.Spec) *string {
		if s.Runtime.Type != name {
			return nil
		}
		return &s.Runtime.Version
	}}
}

// CNIPlugins is the part of runtimes that network plugins build on.
const CNIPlugins = "cni-plugins"

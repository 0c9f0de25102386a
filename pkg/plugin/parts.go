package plugin

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

// CNIPlugins is the part of runtimes that network plugins build on.
const CNIPlugins = "cni-plugins"

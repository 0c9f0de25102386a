package resource

import "strings"

// Component is how one program is published upstream. In its texts {version}
// stands for the version without its v, {arch} for amd64 or arm64 and {file} for the expanded File.
type Component struct {
	Name     string   // also the name on a machine of a program published bare
	Base     string   // URL of the folder that holds File and Sums
	File     string   // name of the file, upstream and in the store
	Sums     string   // name of the file with the SHA-256: a bare sum, or lines as of sha256sum; or a URL of its own
	AMD64    bool     // it is published for amd64 alone
	Programs []string // path.Match patterns of the programs wanted from the archive; none: File is the program
}

const github = "https://github.com/"

// Components returns the table of everything that can be fetched, by name. A
// version not pinned in pins.json is trusted by the checksum its publisher
// gives, so that a new release needs no new kubexm.
func Components() []Component {
	return []Component{
		kubernetes("kubeadm"),
		kubernetes("kubelet"),
		kubernetes("kubectl"),
		kubernetes("kube-apiserver"),
		kubernetes("kube-controller-manager"),
		kubernetes("kube-scheduler"),
		kubernetes("kube-proxy"),
		{
			Name:     "etcd",
			Base:     github + "etcd-io/etcd/releases/download/v{version}/",
			File:     "etcd-v{version}-linux-{arch}.tar.gz",
			Sums:     "SHA256SUMS",
			Programs: []string{"*/etcd", "*/etcdctl", "*/etcdutl"},
		},
		{
			Name:     "containerd",
			Base:     github + "containerd/containerd/releases/download/v{version}/",
			File:     "containerd-{version}-linux-{arch}.tar.gz",
			Sums:     "{file}.sha256sum",
			Programs: []string{"bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr"},
		},
		{
			Name: "runc",
			Base: github + "opencontainers/runc/releases/download/v{version}/",
			File: "runc.{arch}",
			Sums: "runc.sha256sum",
		},
		{
			Name:     "cni-plugins",
			Base:     github + "containernetworking/plugins/releases/download/v{version}/",
			File:     "cni-plugins-linux-{arch}-v{version}.tgz",
			Sums:     "{file}.sha256",
			Programs: []string{"[a-z]*"}, // not LICENSE and README.md
		},
		{
			Name:     "crictl",
			Base:     github + "kubernetes-sigs/cri-tools/releases/download/v{version}/",
			File:     "crictl-v{version}-linux-{arch}.tar.gz",
			Sums:     "{file}.sha256",
			Programs: []string{"crictl"},
		},
		{
			Name:     "registry",
			Base:     github + "distribution/distribution/releases/download/v{version}/",
			File:     "registry_{version}_linux_{arch}.tar.gz",
			Sums:     "{file}.sha256",
			Programs: []string{"registry"},
		},
		{
			Name: "harbor",
			Base: github + "goharbor/harbor/releases/download/v{version}/",
			File: "harbor-offline-installer-v{version}.tgz",
			// https://docs.github.com/en/rest/releases/releases#get-a-release-by-tag-name: nothing with a SHA-256 is beside it.
			Sums:     "https://api.github.com/repos/goharbor/harbor/releases/tags/v{version}",
			AMD64:    true,
			Programs: []string{"harbor/harbor.v{version}.tar.gz", "harbor/prepare", "harbor/common.sh"},
		},
	}
}

// sums is the URL of what has the checksum.
func (c Component) sums() string {
	if strings.HasPrefix(c.Sums, "https://") {
		return c.Sums
	}
	return c.Base + c.Sums
}

// kubernetes is a program of a Kubernetes release, published bare.
func kubernetes(name string) Component {
	return Component{
		Name: name,
		Base: "https://dl.k8s.io/release/v{version}/bin/linux/{arch}/",
		File: name,
		Sums: "{file}.sha256",
	}
}

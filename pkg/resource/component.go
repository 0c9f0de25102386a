package resource

import (
	"slices"

	"github.com/kubexm/kubexm/pkg/plugin"
)

// Component is how a program is published upstream.
type Component = plugin.Component

// Components returns the table of everything that can be fetched, by name. A
// version not pinned in pins.json is trusted by the checksum its publisher
// gives, so that a new release needs no new kubexm.
func Components() []Component {
	all := []Component{
		kubernetes("kubeadm"),
		kubernetes("kubelet"),
		kubernetes("kubectl"),
		kubernetes("kube-apiserver"),
		kubernetes("kube-controller-manager"),
		kubernetes("kube-scheduler"),
		kubernetes("kube-proxy"),
		{
			Name:     "etcd",
			Base:     plugin.GitHub + "etcd-io/etcd/releases/download/v{version}/",
			File:     "etcd-v{version}-linux-{arch}.tar.gz",
			Sums:     "SHA256SUMS",
			Programs: []string{"*/etcd", "*/etcdctl", "*/etcdutl"},
		},
	}
	for _, p := range plugin.All() {
		for _, part := range p.Parts { // some are of several
			if !slices.ContainsFunc(all, func(c Component) bool { return c.Name == part.Name }) {
				all = append(all, part)
			}
		}
	}
	return slices.DeleteFunc(all, func(c Component) bool { return c.Image != "" })
}

// kubernetes is a program of a Kubernetes release, published bare.
func kubernetes(name string) Component {
	return Component{
		Name:   name,
		Base:   "https://dl.k8s.io/release/v{version}/bin/linux/{arch}/",
		File:   name,
		Sums:   "{file}.sha256",
		Signer: plugin.Signer{Name: "krel-staging@k8s-releng-prod.iam.gserviceaccount.com", Issuer: "https://accounts.google.com"},
	}
}

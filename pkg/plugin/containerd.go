package plugin

import (
	"cmp"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

var containerd = Runtime{
	Plugin: Plugin{
		Name: "containerd", Unit: "containerd",
		Parts: []Component{
			{
				Name: "containerd", Version: "v2.3.4",
				Base:     GitHub + "containerd/containerd/releases/download/v{version}/",
				File:     "containerd-{version}-linux-{arch}.tar.gz",
				Sums:     "{file}.sha256sum",
				Programs: []string{"bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr"},
			},
			runc, crictl, cniPlugins,
		},
		Version: runtimeVersion("containerd"),
		Default: func(s *v1alpha1.Spec) { s.Runtime.DataRoot = cmp.Or(s.Runtime.DataRoot, "/var/lib/containerd") },
		Gates: []Gate{
			{Least: "v1.7.0", Why: "containerd must be 1.7 or newer"},
			// https://kubernetes.io/blog/2025/12/17/kubernetes-v1-35-release. Kubelets still start with it until 1.38
			// (https://github.com/kubernetes/enhancements/pull/6087), but nobody supports that, nor containerd 1.7.
			{From: "v1.36.0", Least: "v2.0.0", Why: "Kubernetes 1.35 is the last that supports containerd 1.x"},
		},
		Left: Left{
			Mounts: []string{"/run/containerd/*"},
			Paths:  []string{"/run/containerd", "/run/nri"},
			Empty:  []string{"/opt/containerd/bin", "/opt/containerd/lib", "/opt/containerd"},
		},
	},
	Socket: "/run/containerd/containerd.sock",
	Config: "/etc/containerd/config.toml", Mark: "io.containerd.metadata.v1.bolt",
	Hosts:  "/etc/containerd/certs.d/",
	Images: "ctr -n k8s.io images ls -q",
	Run:    `run_image() { ctr -n k8s.io run --rm --net-host --privileged "$@"; }`,
}

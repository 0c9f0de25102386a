package plugin

import (
	"cmp"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// docker is Docker Engine by upstream's static archive, which brings a containerd of its own, and cri-dockerd, which speaks for it to the kubelet.
//
// Facts: https://docs.docker.com/engine/install/binaries, https://docs.docker.com/engine/storage/containerd, https://github.com/Mirantis/cri-dockerd
var docker = Runtime{
	Plugin: Plugin{
		Name: "docker", Unit: "docker",
		Parts: []Component{
			{
				Name: "docker", Version: "v29.9.3",
				Base:     "https://download.docker.com/linux/static/stable/{machine}/",
				File:     "docker-{version}.tgz", // nobody publishes a checksum of it
				Programs: []string{"docker/docker", "docker/dockerd", "docker/containerd", "docker/containerd-shim-runc-v2"},
			},
			{
				Name: "cri-dockerd", Version: "v0.4.3",
				Base: GitHub + "Mirantis/cri-dockerd/releases/download/v{version}/",
				File: "cri-dockerd-{version}.{arch}.tgz",
				// As of Harbor: nothing with a SHA-256 is beside it.
				Sums:     "https://api.github.com/repos/Mirantis/cri-dockerd/releases/tags/v{version}",
				Programs: []string{"cri-dockerd/cri-dockerd"},
			},
			runc, crictl, cniPlugins,
		},
		Version: runtimeVersion("docker"),
		Gates:   []Gate{{Least: "v29.0.0", Why: "Docker must be 29 or newer: older ones know mirrors of Docker Hub alone"}},
		Default: func(s *v1alpha1.Spec) { s.Runtime.DataRoot = cmp.Or(s.Runtime.DataRoot, "/var/lib/docker") },
		Left: Left{
			Mounts: []string{"/run/docker/*"},
			Paths:  []string{"/run/containerd", "/run/docker", "/run/docker.sock", "/run/docker.pid", "/run/cri-dockerd.sock", "/var/lib/cri-dockerd"},
			Empty:  []string{"/etc/docker/certs.d", "/etc/docker", "/opt/containerd/bin", "/opt/containerd/lib", "/opt/containerd"},
		},
	},
	Socket: "/run/cri-dockerd.sock",
	Shim:   "cri-docker",
	Takes:  "containerd", // https://github.com/moby/moby/blob/master/cmd/dockerd, initializeContainerd
	Config: "/etc/docker/daemon.json", Mark: "engine-id",
	Hosts:  "/etc/docker/certs.d/",
	Ends:   true, // https://docs.docker.com/engine/daemon/live-restore: containers live on while patch releases change
	Images: `docker image ls --format '{{.Repository}}:{{.Tag}}'`,
	Run:    `run_image() { i=$1 n=$2 p=$3; shift 3; docker run --rm --name "$n" --network host --privileged --entrypoint "$p" "$i" "$@"; }`,
}

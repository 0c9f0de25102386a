// Package docker holds the steps that install and run Docker Engine with cri-dockerd, runc and the CNI plugins, and bring images to it.
package docker

import (
	"slices"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
)

// Steps install and run Docker Engine, which starts a containerd of its own, and cri-dockerd. It gets images as registries say.
func Steps(c *cluster.Cluster, host string, registries step.Files) []step.Step {
	return step.Runtime(step.RuntimePrograms(c.Store, c.RuntimePrograms(host)...), settings(c), registries, engine(c, host), shim(c, host))
}

// settings are daemon.json and the configuration of crictl. Pods have their network by CNI: Docker makes none, and leaves packet filters alone. Its logs stay
// smaller than those that the kubelet would rotate, which it cannot with Docker.
func settings(c *cluster.Cluster) step.Files {
	return step.Files{What: "container runtime", List: []step.File{
		{Path: "/etc/docker/daemon.json", Content: templates.Render("docker/daemon", struct{ Root string }{c.DataRoot()}), Mode: 0o644},
		step.CrictlConfig(plugin.RuntimeOf(c.Spec).Endpoint()),
	}}
}

func engine(c *cluster.Cluster, host string) step.Unit {
	return step.Unit{
		Name: "docker", Description: "Docker Engine", Documentation: "https://docs.docker.com",
		After: "network.target", Type: "notify", Command: step.BinDir + "/dockerd",
		Settings: slices.Concat(step.HoldsContainers(), []string{"ExecReload=/bin/sh -c 'kill -s HUP $MAINPID'", "TimeoutStartSec=10min"}, step.Limits(c.FactsOf(host).CanRaiseLimits(), "-999")),
	}
}

func shim(c *cluster.Cluster, host string) step.Unit {
	kind := plugin.RuntimeOf(c.Spec)
	return step.Unit{
		Name: kind.Shim, Description: "CRI of Docker Engine", Documentation: "https://github.com/Mirantis/cri-dockerd",
		After: kind.Unit + ".service", Type: "notify", Command: step.BinDir + "/cri-dockerd",
		Args: map[string]string{
			"container-runtime-endpoint": kind.Endpoint(), "pod-infra-container-image": c.Image("pause"), "streaming-bind-addr": "127.0.0.1",
			"network-plugin": "cni", "cni-conf-dir": "/etc/cni/net.d", "cni-bin-dir": step.CNIBinDir,
		},
		Settings: step.Limits(c.FactsOf(host).CanRaiseLimits(), "-999"),
	}
}

// Registries tells the kubelet of logins, on top of what Docker's containerd reads of registries. Docker asks a registry that wants tokens with those that it
// is called with alone.
//
// Facts: https://kubernetes.io/docs/concepts/containers/images/#configuring-nodes-to-authenticate-to-a-private-registry
func Registries(c *cluster.Cluster, hosts step.Files) step.Files {
	if logins, any := c.Logins(); any {
		hosts.List = append(slices.Clone(hosts.List), step.File{Path: loginsDir + "/config.json", Content: logins, Mode: 0o600})
	}
	return hosts
}

// loginsDir has the logins of the node, as the kubelet reads them.
const loginsDir = "/var/lib/kubelet"

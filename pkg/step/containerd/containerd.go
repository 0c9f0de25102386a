// Package containerd holds the steps that install and run containerd with runc
// and the CNI plugins, and bring images to it.
package containerd

import (
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
)

// Steps install and run containerd, which gets images as registries say.
func Steps(c *cluster.Cluster, host string, registries step.Files) []step.Step {
	return step.Runtime(step.RuntimePrograms(c.Store, c.RuntimePrograms(host)...), settings(c, host), registries, unit(c, host))
}

// settings are config.toml, in the format of the configured version, and the configuration of crictl.
func settings(c *cluster.Cluster, host string) step.Files {
	name := "containerd/config-v3"
	if strings.HasPrefix(c.Spec.Runtime.Version, "v1.") {
		name = "containerd/config-v2"
	}
	config := templates.Render(name, struct {
		Root, Pause string
		RestrictOOM bool
	}{c.DataRoot(), c.Image("pause"), !c.FactsOf(host).CanRaiseLimits()})
	return step.Files{What: "container runtime", List: []step.File{
		{Path: "/etc/containerd/config.toml", Content: config, Mode: 0o644},
		step.CrictlConfig(plugin.RuntimeOf(c.Spec).Endpoint()),
	}}
}

func unit(c *cluster.Cluster, host string) step.Unit {
	return step.Unit{
		Name: "containerd", Description: "containerd container runtime", Documentation: "https://containerd.io",
		After: "network.target", Type: "notify", Command: step.BinDir + "/containerd",
		Settings: append(step.HoldsContainers(), step.Limits(c.FactsOf(host).CanRaiseLimits(), "-999")...),
	}
}

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

// Steps install and run containerd.
func Steps(c *cluster.Cluster) func(host string) []step.Step {
	registries := Registries(c) // the same for all
	return func(h string) []step.Step {
		return []step.Step{Programs(c, h), Config(c, h, registries), Service(c, h)}
	}
}

// Programs puts containerd, runc, crictl and the CNI plugins on the host.
func Programs(c *cluster.Cluster, host string) step.Step {
	return step.RuntimePrograms(c.Store, c.RuntimePrograms(host)...)
}

// Config writes config.toml in the format of the configured version, the
// configuration of crictl and, in the same round trip, what Registries returned.
func Config(c *cluster.Cluster, host string, registries step.Files) step.Step {
	f := settings(c, host)
	f.List, f.Also = append(f.List, registries.List...), registries.Also
	return f
}

// settings are the files that containerd reads when it starts, and crictl's.
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

// Service runs containerd.
func Service(c *cluster.Cluster, host string) step.Step {
	return step.Unit{
		Name: "containerd", Description: "containerd container runtime", Documentation: "https://containerd.io",
		After: "network.target", Type: "notify", Command: step.BinDir + "/containerd",
		Settings: append(step.HoldsContainers(), step.Limits(c.FactsOf(host).CanRaiseLimits(), "-999")...),
		Reads:    []step.Step{Programs(c, host), settings(c, host)},
	}.Service()
}

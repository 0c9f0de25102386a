// Package crio holds the steps that install and run CRI-O with runc and the CNI plugins, and bring images to it.
package crio

import (
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
)

// confDir has the parts of CRI-O's configuration; those of others come after kubexm's.
const confDir = "/etc/crio/crio.conf.d/"

// Steps install and run CRI-O, with conmon and pinns, which gets images as registries say.
func Steps(c *cluster.Cluster, host string, registries step.Files) []step.Step {
	return step.Runtime(step.RuntimePrograms(c.Store, c.RuntimePrograms(host)...), settings(c), registries, unit(c, host))
}

// settings are the files that CRI-O reads when it starts, and crictl's. Signatures of images are for the kubelet's webhooks to judge: any image is taken.
func settings(c *cluster.Cluster) step.Files {
	config := templates.Render("crio/crio", struct{ Root, Pause string }{c.DataRoot(), c.Image("pause")})
	return step.Files{What: "container runtime", List: []step.File{
		{Path: confDir + "10-kubexm.conf", Content: config, Mode: 0o644},
		{Path: "/etc/crio/policy.json", Content: step.Content(`{"default": [{"type": "insecureAcceptAnything"}]}` + "\n"), Mode: 0o644},
		step.CrictlConfig(plugin.RuntimeOf(c.Spec).Endpoint()),
	}}
}

func unit(c *cluster.Cluster, host string) step.Unit {
	return step.Unit{
		Name: "crio", Description: "CRI-O container runtime", Documentation: "https://cri-o.io",
		After: "network.target", Type: "notify", Command: step.BinDir + "/crio",
		Settings: slices.Concat(step.HoldsContainers(), []string{
			"ExecReload=/bin/sh -c 'kill -s HUP $MAINPID'", "TimeoutStartSec=10min", // after a power cut it looks through its storage first
			"Environment=CONTAINER_REGISTRIES_CONF_DIR=" + strings.TrimSuffix(registriesDir, "/") + " STORAGE_OPTS=", // what is in /etc/containers is podman's
		}, step.Limits(c.FactsOf(host).CanRaiseLimits(), "-999")),
	}
}

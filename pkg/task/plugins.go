package task

import (
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/calico"
	"github.com/kubexm/kubexm/pkg/step/cilium"
	"github.com/kubexm/kubexm/pkg/step/containerd"
	"github.com/kubexm/kubexm/pkg/step/crio"
	"github.com/kubexm/kubexm/pkg/step/docker"
	"github.com/kubexm/kubexm/pkg/step/flannel"
	"github.com/kubexm/kubexm/pkg/step/loadbalancer"
	"github.com/kubexm/kubexm/pkg/step/localpath"
	"github.com/kubexm/kubexm/pkg/step/registry"
)

type onHost = func(c *cluster.Cluster, host string) step.Step

// The steps of plugins, by the names of their rows in package plugin. A proxy has none of its own.
var (
	runtimes = map[string]struct {
		run  func(c *cluster.Cluster, host string, registries step.Files) []step.Step
		load onHost                            // the images that a node needs
		from func(*cluster.Cluster) step.Files // the registries, where it gets images: the same for all hosts
	}{
		"containerd": {containerd.Steps, containerd.Load, containerd.Registries},
		"cri-o":      {crio.Steps, crio.Load, crio.Registries},
		"docker":     {docker.Steps, docker.Load, func(c *cluster.Cluster) step.Files { return docker.Registries(c, containerd.Registries(c)) }},
	}
	networks = map[string]struct {
		install func(*cluster.Cluster) []step.Step
		follow  func(*cluster.Cluster) step.Step // the addresses of nodes, once kubelets tell them
	}{
		"flannel": {flannel.Steps, flannel.Addresses},
		"calico":  {calico.Steps, calico.Addresses},
		"cilium":  {cilium.Steps, cilium.Addresses},
	}
	storages = map[string]func(*cluster.Cluster) step.Step{
		"local-path": localpath.Objects,
	}
	vips = map[string]struct {
		run      onHost
		handOver func(c *cluster.Cluster, host string, others []string) step.Step // of one that is a pod: before the API server beside it stops
	}{
		"keepalived": {run: loadbalancer.Keepalived},
		"kube-vip":   {loadbalancer.KubeVIP, loadbalancer.HandOver},
	}
	registries = map[string]struct {
		run  func(c *cluster.Cluster, host string) []step.Step
		gone func() step.Step // from Docker
	}{
		"registry": {run: registry.Steps},
		"harbor":   {registry.HarborSteps, registry.HarborGone},
	}
)

// Package cilium has the steps of the network plugin Cilium.
package cilium

import (
	"encoding/json"

	"github.com/kubexm/kubexm/pkg/chart"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step"
)

// Steps install Cilium by its chart.
func Steps(c *cluster.Cluster) []step.Step {
	all, err := json.Marshal(chart.Merge(values(c), c.Spec.Network.Cilium.Values))
	c.Check(err)
	return []step.Step{step.ApplyChart{
		What: "cilium", File: c.Artifact(plugin.CiliumChart, c.FirstMaster()), Namespace: "kube-system", Kubernetes: c.Spec.Kubernetes.Version, Values: all,
		Store: c.Store, API: c.AnyAPI(),
	}}
}

type object = map[string]any

// values are those that follow from the cluster, and other defaults than the chart's: images are known by their tags, which kubexm has looked up once; configuration
// files of other networks stay; pods start again when their configuration changes; and Hubble, which is off, has no certificates that are made anew with every run.
func values(c *cluster.Cluster) object {
	v4, v6 := c.PodCIDR(4) != "", c.PodCIDR(6) != ""
	all := object{
		"k8sServiceHost": c.Spec.LoadBalancer.Domain, "k8sServicePort": c.Spec.LoadBalancer.Port, // not the Service, which needs kube-proxy
		"ipam": object{"mode": "kubernetes"}, "k8s": object{"requireIPv4PodCIDR": v4, "requireIPv6PodCIDR": v6},
		"ipv4": object{"enabled": v4}, "ipv6": object{"enabled": v6},
		"kubeProxyReplacement": !c.HasProxy(),
		"cni":                  object{"exclusive": false},
		"image":                object{"useDigest": false},
		"rollOutCiliumPods":    true,
		"updateStrategy":       object{"rollingUpdate": object{"maxUnavailable": "10%"}},
		"operator": object{
			"image": object{"useDigest": false}, "rollOutPods": true, "replicas": min(2, len(c.Nodes())), // no two on one node
			"tolerations": []object{{"operator": "Exists"}},
		},
		"policyCIDRMatchMode": []string{"nodes"},        // the DNS cache of a node is an address of the node, and policies name it by that
		"envoy":               object{"enabled": false}, // it is in the agent's pod
		"hubble":              object{"enabled": false, "tls": object{"auto": object{"method": "cronJob"}}},
		"clustermesh":         object{"apiserver": object{"tls": object{"auto": object{"method": "cronJob"}}}},
	}
	if !v4 {
		all["underlayProtocol"] = "ipv6"
	}
	return all
}

// Addresses starts Cilium again on nodes whose addresses have changed.
func Addresses(c *cluster.Cluster) step.Step {
	return step.NodeAddresses{
		Of: c.NodeIPs(), Plugin: "cilium", Namespace: "kube-system", Label: "k8s-app", Value: "cilium", Kind: "cilium.io/v2 CiliumNode", API: c.AnyAPI(),
	}
}

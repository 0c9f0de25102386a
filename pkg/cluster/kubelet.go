package cluster

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// object is a configuration document that users may add any field to.
type object = map[string]any

// KubeletConfig is the KubeletConfiguration of a node; host "" means what all
// nodes have in common, as kubeadm keeps it in the cluster.
//
// Facts: https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1
func (c *Cluster) KubeletConfig(host string) map[string]any {
	nodes := c.nodeFacts()
	if host != "" {
		nodes = []*runner.Facts{c.FactsOf(host)}
	}
	k := c.Spec.Kubernetes
	conf := object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"authentication": object{
			"anonymous": object{"enabled": false},
			"webhook":   object{"enabled": true},
			"x509":      object{"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
		},
		"authorization": object{"mode": "Webhook"},
		"cgroupDriver":  "systemd", "clusterDNS": c.podNameServers(), "clusterDomain": k.DNSDomain,
		"containerRuntimeEndpoint": plugin.RuntimeOf(c.Spec).Endpoint(), "healthzBindAddress": "127.0.0.1", "healthzPort": 10248,
		"maxPods": k.MaxPods, "podPidsLimit": k.PodPidsLimit, "rotateCertificates": true,
	}
	if c.Kubeadm() || c.Host(host).Is(v1alpha1.RoleMaster) { // kube-vip may come and go: a kubelet without a path would leave its pod behind
		conf["staticPodPath"] = runner.ManifestDir
	}
	if len(k.FeatureGates) > 0 {
		conf["featureGates"] = k.FeatureGates
	}
	for _, f := range nodes {
		if f.CgroupVersion == 1 && c.Minor() >= 35 {
			conf["failCgroupV1"] = false // https://kep.k8s.io/5573
		}
		if !f.CanRaiseLimits() {
			conf["oomScoreAdj"] = 0
		}
		if f.Features[runner.FeatureResolved] && host != "" { // kubeadm looks at each node itself
			conf["resolvConf"] = "/run/systemd/resolve/resolv.conf"
		}
	}
	return merge(conf, k.Kubelet.Config)
}

// DNSCacheIP is the address of the DNS cache on every node; empty: there is none.
func (c *Cluster) DNSCacheIP() string {
	if cache := c.Spec.DNS.NodeLocalDNS; *cache.Enabled {
		return cache.IP
	}
	return ""
}

// podNameServers are asked by pods, one when the one before does not answer.
func (c *Cluster) podNameServers() (all []any) {
	if ip := c.DNSCacheIP(); ip != "" {
		all = append(all, ip)
	}
	return append(all, c.DNSIP())
}

// Drains returns the nodes among hosts whose pods must go before their kubelets or container runtimes change, or went for that in a run that was cut off.
func (c *Cluster) Drains(hosts []string) []string {
	return slices.DeleteFunc(slices.Clone(hosts), func(h string) bool {
		return c.Holds(h) || !c.OtherManagers(h) && !c.losesCache(h) && !c.OtherKubelet(h) && !c.RuntimeEndsPods(h) && !c.FactsOf(h).Drained
	})
}

// losesCache reports whether pods of a node ask a DNS cache that is not to be any more. Without an answer they wait before they ask the next server. It is an error if there
// is to be one at another address: until all nodes are drained pods ask at both, and it listens at one.
func (c *Cluster) losesCache(host string) bool {
	stay := c.podNameServers()
	for _, s := range c.FactsOf(host).PodNameServers {
		if at, err := netip.ParseAddr(s); err != nil || c.ServiceNets()[0].Contains(at) || slices.Contains(stay, any(s)) {
			continue
		}
		if ip := c.DNSCacheIP(); ip != "" {
			c.Check(fault.Advise(fmt.Errorf("spec.dns.nodeLocalDNS.ip: pods ask the DNS cache at %s, it cannot move to %s at once", s, ip),
				"set spec.dns.nodeLocalDNS.enabled: false and apply; then turn it on with the other address"))
		}
		return true
	}
	return false
}

// OtherManagers reports whether the kubelet of a node is to give processors and memory to pods in another way than it does.
func (c *Cluster) OtherManagers(host string) bool {
	return c.FactsOf(host).Managers != runner.Managers(c.Spec.Kubernetes.Kubelet.Config)
}

// ProxyConfig is the KubeProxyConfiguration of all nodes.
//
// Facts: https://kubernetes.io/docs/reference/config-api/kube-proxy-config.v1alpha1
func (c *Cluster) ProxyConfig() map[string]any {
	conf := object{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": c.ProxyMode(), "clusterCIDR": c.Spec.Network.PodCIDR,
		"clientConnection": object{"kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf"},
	}
	if len(c.Spec.Kubernetes.FeatureGates) > 0 {
		conf["featureGates"] = c.Spec.Kubernetes.FeatureGates
	}
	if c.Any(runner.FeatureConntrackFixed) {
		conf["conntrack"] = object{"maxPerCore": 0, "min": 0}
	}
	for _, f := range c.nodeFacts() {
		if !f.CanRaiseLimits() {
			conf["oomScoreAdj"] = 0
		}
	}
	return merge(conf, c.Spec.Kubernetes.KubeProxy.Config)
}

// APIServerArgs are the flags of the API server in either way of running it that are not its defaults. One that ends takes itself
// out of the Service kubernetes, and answers on until every kube-proxy has heard of it: else it might start again while pods are
// still led to it, and refuse what it cannot judge yet. It closes its watches within the time given here; by default it waits a
// minute for clients to do that, which they do not, until it is killed (k8s.io/apiserver/pkg/server/genericapiserver.go). It trusts
// no kubelet whose serving certificate the cluster has not signed, and nobody by a bootstrap token: nodes join with their
// certificates.
func (c *Cluster) APIServerArgs() map[string]string {
	return map[string]string{
		"shutdown-delay-duration": "3s", "shutdown-watch-termination-grace-period": "10s", "enable-bootstrap-token-auth": "false",
		"kubelet-certificate-authority": "/etc/kubernetes/pki/ca.crt",
	}
}

// ControllerManagerArgs are the flags of the controller manager in either way of
// running it that are not its defaults. It asks the API server for an account for each
// of its 45 controllers when it starts or takes over; at 20 calls a second, its
// default, that is six seconds without any. It has no controllers of bootstrap tokens.
func (c *Cluster) ControllerManagerArgs() map[string]string {
	args := map[string]string{"kube-api-qps": "100", "kube-api-burst": "200", "controllers": "*"}
	switch v4, v6 := strconv.Itoa(c.Spec.Kubernetes.NodeCIDRMaskSize), strconv.Itoa(c.Spec.Kubernetes.NodeCIDRMaskSizeIPv6); {
	case c.DualStack():
		args["node-cidr-mask-size-ipv4"], args["node-cidr-mask-size-ipv6"] = v4, v6
	case c.IPv6():
		args["node-cidr-mask-size-ipv6"] = v6 // kubeadm reads no other one
	default:
		args["node-cidr-mask-size"] = v4
	}
	if c.SignerApart() != nil {
		args["cluster-signing-cert-file"] = SignerFile
	}
	return args
}

// YAML writes a configuration document; keys are sorted.
func (c *Cluster) YAML(doc any) []byte {
	b, err := yaml.Marshal(doc)
	c.Check(err)
	return b
}

// merge puts the user's fields over ours, object by object.
func merge(ours, users map[string]any) map[string]any {
	out := maps.Clone(ours)
	for k, v := range users {
		a, isObject := out[k].(map[string]any)
		b, too := v.(map[string]any)
		if isObject && too {
			out[k] = merge(a, b)
		} else {
			out[k] = v
		}
	}
	return out
}

// FeatureGates is the value of a --feature-gates flag, empty when there are none.
func (c *Cluster) FeatureGates() string {
	gates := c.Spec.Kubernetes.FeatureGates
	var all []string
	for _, k := range slices.Sorted(maps.Keys(gates)) {
		all = append(all, fmt.Sprintf("%s=%t", k, gates[k]))
	}
	return strings.Join(all, ",")
}

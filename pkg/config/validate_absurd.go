package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// checkAbsurd refuses, or warns of, what is well formed and still breaks a cluster or lays it open.
func (k *checker) checkAbsurd() {
	k.checkReservedNames()
	k.checkAddresses()
	k.checkDNSLoops()
	for i := range k.Hosts {
		k.checkLabels(hostPath(i), &k.Hosts[i])
		k.checkTaints(hostPath(i), &k.Hosts[i])
	}
	k.checkOpenDoors()
}

// reservedNames lead every machine to itself (RFC 6761, and what systems have in /etc/hosts).
var reservedNames = []string{"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"}

func (k *checker) checkReservedNames() {
	type given struct{ path, name string }
	names := []given{{"spec.loadBalancer.domain", k.LoadBalancer.Domain}}
	for i, h := range k.Hosts {
		names = append(names, given{hostPath(i) + ".name", h.Name})
	}
	for i, h := range k.Extra.Hosts {
		names = append(names, given{fmt.Sprintf("spec.extra.hosts[%d].domain", i), h.Domain})
	}
	if k.Registry != nil {
		domain, _ := SplitRegistry(k.Registry.PrivateRegistry)
		names = append(names, given{"spec.registry.privateRegistry", domain})
	}
	for _, n := range names {
		if slices.Contains(reservedNames, n.name) || strings.HasSuffix(n.name, ".localhost") {
			k.fail(n.path, n.name, "means the machine itself everywhere; take another name")
		}
	}
}

// checkAddresses refuses addresses that no other machine can reach.
func (k *checker) checkAddresses() {
	bastions := map[string]bool{}
	for i, h := range k.Hosts {
		k.reachable(hostPath(i)+".address", h.Address, "127.0.0.0/8") // a forwarded port of this machine is a way
		for _, ip := range h.IPs() {
			if ip != h.Address {
				k.reachable(hostPath(i)+".internalAddress", ip, "127.0.0.0/8") // which checkHosts refuses
			}
		}
		if b := h.Bastion; b != nil && !bastions[b.Address] {
			bastions[b.Address] = true
			k.reachable(hostPath(i)+".bastion.address", b.Address, "127.0.0.0/8")
		}
	}
	const vip = "spec.loadBalancer.vip"
	k.reachable(vip, k.LoadBalancer.VIP, "")
	if k.LoadBalancer.VIP != "" && bastions[k.LoadBalancer.VIP] {
		k.fail(vip, k.LoadBalancer.VIP, "is the address of a bastion; it must be a free one")
	}
}

// reachable refuses reserved addresses, but for those of a network.
func (k *checker) reachable(path, value, but string) {
	ip, err := netip.ParseAddr(value)
	if err != nil {
		return
	}
	for _, r := range reserved {
		if net := netip.MustParsePrefix(r.net); r.net != but && net.Contains(ip) {
			k.fail(path, value, "is in %s (%s), where no other machine can reach it", net, r.what)
		}
	}
}

// checkDNSLoops refuses name servers at which CoreDNS would ask itself.
func (k *checker) checkDNSLoops() {
	check := func(path, server string) {
		if host, _, err := net.SplitHostPort(server); err == nil {
			server = host
		}
		ip, err := netip.ParseAddr(server)
		switch {
		case err != nil:
		case ip.IsLoopback() || ip.IsUnspecified():
			k.fail(path, server, "is CoreDNS itself, seen from its pod; give the address of a name server outside the cluster")
		case slices.ContainsFunc(k.Network.ServiceCIDRs(), func(s string) bool { p, err := netip.ParsePrefix(s); return err == nil && p.Contains(ip) }), server == k.DNS.NodeLocalDNS.IP:
			k.fail(path, server, "is an address of the cluster's own DNS, which would ask itself; give that of a name server outside the cluster")
		}
	}
	for i, server := range k.DNS.CoreDNS.Upstream {
		check(fmt.Sprintf("spec.dns.coredns.upstream[%d]", i), server)
	}
	for i, z := range k.DNS.CoreDNS.ExternalZones {
		for j, server := range z.Nameservers {
			check(fmt.Sprintf("spec.dns.coredns.externalZones[%d].nameservers[%d]", i, j), server)
		}
	}
}

// ownLabels are those that the kubelet sets, or that follow from the roles.
//
// Facts: https://kubernetes.io/docs/reference/labels-annotations-taints
var ownLabels = map[string]string{
	corev1.LabelHostname: "is set by the kubelet", corev1.LabelOSStable: "is set by the kubelet", corev1.LabelArchStable: "is set by the kubelet",
	"beta.kubernetes.io/os": "is set by the kubelet", "beta.kubernetes.io/arch": "is set by the kubelet",
	"node-role.kubernetes.io/control-plane": "follows from the role master", "node-role.kubernetes.io/worker": "follows from the role worker",
	"node-role.kubernetes.io/master": "is a former label; use the role master",
}

func (k *checker) checkLabels(path string, h *v1alpha1.Host) {
	for key := range h.Labels {
		if why := ownLabels[key]; why != "" {
			k.fail(fmt.Sprintf("%s.labels[%s]", path, key), "", "%s; leave it out", why)
		}
	}
}

// ownTaints are those that Kubernetes sets and removes as the state of a node changes.
var ownTaints = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure,
	corev1.TaintNodeNetworkUnavailable, corev1.TaintNodePIDPressure, corev1.TaintNodeOutOfService, "node.cloudprovider.kubernetes.io/uninitialized",
}

func (k *checker) checkTaints(path string, h *v1alpha1.Host) {
	seen := map[string]string{}
	if h.Is(v1alpha1.RoleMaster) && !h.Is(v1alpha1.RoleWorker) {
		seen["node-role.kubernetes.io/control-plane:NoSchedule"] = "the one of a master without the role worker"
	}
	for i, t := range h.Taints {
		at, name := fmt.Sprintf("%s.taints[%d]", path, i), t.Key+":"+t.Effect
		switch {
		case slices.Contains(ownTaints, t.Key):
			k.fail(at, name, "is set and removed by Kubernetes itself as the node's state changes")
		case seen[name] != "":
			k.fail(at, name, "the same as %s: a node has one taint of a key and an effect", seen[name])
		}
		seen[name] = at
	}
}

// checkOpenDoors warns of settings that let in everybody.
func (k *checker) checkOpenDoors() {
	const apiServer, kubelet = "spec.kubernetes.apiServer.extraArgs", "spec.kubernetes.kubelet"
	args := func(path, flag string, values map[string]string, open func(string) bool, what string) {
		for name, value := range values {
			if Dashed(name) == flag && open(value) {
				k.warn(fmt.Sprintf("%s[%s]", path, name), value, "%s", what)
			}
		}
	}
	always := func(value string) bool { return strings.Contains(value, "AlwaysAllow") }
	isTrue := func(value string) bool { b, err := strconv.ParseBool(value); return b && err == nil }
	given := func(value string) bool { return value != "" && value != "0" }
	const all = "everybody who reaches the API server may do everything"
	args(apiServer, "authorization-mode", k.Kubernetes.APIServer.ExtraArgs, always, all)
	args(apiServer, "token-auth-file", k.Kubernetes.APIServer.ExtraArgs, given, "tokens in a file never expire, and cannot be revoked without a restart; use certificates or OIDC")
	const kubelets = "everybody who reaches a node may run commands in its pods"
	args(kubelet+".extraArgs", "authorization-mode", k.Kubernetes.Kubelet.ExtraArgs, always, kubelets)
	args(kubelet+".extraArgs", "anonymous-auth", k.Kubernetes.Kubelet.ExtraArgs, isTrue, kubelets)
	const readable = "everybody who reaches a node may read what its pods are"
	args(kubelet+".extraArgs", "read-only-port", k.Kubernetes.Kubelet.ExtraArgs, given, readable)
	at := func(path ...string) any {
		var value any = k.Kubernetes.Kubelet.Config
		for _, p := range path {
			m, _ := value.(map[string]any)
			value = m[p]
		}
		return value
	}
	if mode := at("authorization", "mode"); mode == "AlwaysAllow" {
		k.warn(kubelet+".config[authorization]", mode, "%s", kubelets)
	}
	if at("authentication", "anonymous", "enabled") == true {
		k.warn(kubelet+".config[authentication]", "anonymous", "%s", kubelets)
	}
	if port, ok := at("readOnlyPort").(int64); ok && port != 0 {
		k.warn(kubelet+".config[readOnlyPort]", port, "%s", readable)
	}
}

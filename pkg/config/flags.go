package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// drainedFor begins the fields whose change needs a node without pods, which runner.Managers knows.
const drainedFor = "spec.kubernetes.kubelet.config."

// own lists what kubexm sets itself, or must see in a field, so that the user must not: flags, and
// fields of the kubelet's and kube-proxy's configuration. Behind the name
// stands the field to use instead, where there is one.
var own = map[string]map[string]string{
	"spec.kubernetes.apiServer.extraArgs": {
		"advertise-address": "", "client-ca-file": "",
		"encryption-provider-config": "spec.kubernetes.apiServer.encryption",
		"etcd-cafile":                "", "etcd-certfile": "", "etcd-keyfile": "", "etcd-servers": "spec.etcd",
		"feature-gates":                 "spec.kubernetes.featureGates",
		"kubelet-certificate-authority": "", "kubelet-client-certificate": "", "kubelet-client-key": "",
		"proxy-client-cert-file": "", "proxy-client-key-file": "",
		"requestheader-allowed-names": "", "requestheader-client-ca-file": "",
		"requestheader-extra-headers-prefix": "", "requestheader-group-headers": "", "requestheader-username-headers": "",
		"secure-port": "", "service-account-key-file": "", "service-account-signing-key-file": "",
		"service-cluster-ip-range": "spec.network.serviceCIDR",
		"tls-cert-file":            "", "tls-private-key-file": "",
	},
	"spec.kubernetes.controllerManager.extraArgs": {
		"allocate-node-cidrs": "", "authentication-kubeconfig": "", "authorization-kubeconfig": "",
		"client-ca-file": "", "cluster-cidr": "spec.network.podCIDR",
		"cluster-signing-cert-file": "", "cluster-signing-key-file": "",
		"feature-gates": "spec.kubernetes.featureGates", "kubeconfig": "",
		"node-cidr-mask-size":      "spec.kubernetes.nodeCidrMaskSize",
		"node-cidr-mask-size-ipv4": "spec.kubernetes.nodeCidrMaskSize", "node-cidr-mask-size-ipv6": "spec.kubernetes.nodeCidrMaskSizeIPv6",
		"requestheader-client-ca-file": "", "root-ca-file": "", "service-account-private-key-file": "",
		"service-cluster-ip-range":        "spec.network.serviceCIDR",
		"use-service-account-credentials": "",
	},
	"spec.kubernetes.scheduler.extraArgs": {
		"authentication-kubeconfig": "", "authorization-kubeconfig": "",
		"feature-gates": "spec.kubernetes.featureGates", "kubeconfig": "",
	},
	"spec.kubernetes.kubelet.extraArgs": {
		"bootstrap-kubeconfig": "", "cert-dir": "", "cgroup-driver": "", "client-ca-file": "",
		"cluster-dns": "", "cluster-domain": "spec.kubernetes.dnsDomain",
		"config": "spec.kubernetes.kubelet.config", "config-dir": "spec.kubernetes.kubelet.config", "container-runtime-endpoint": "",
		"feature-gates": "spec.kubernetes.featureGates", "hostname-override": "spec.hosts[].name", "kubeconfig": "",
		"max-pods": "spec.kubernetes.maxPods", "node-ip": "spec.hosts[].internalAddress",
		"node-labels": "spec.hosts[].labels", "pod-max-pids": "spec.kubernetes.podPidsLimit",
		"register-with-taints": "spec.hosts[].taints", "tls-cert-file": "", "tls-private-key-file": "",

		"cpu-manager-policy": drainedFor + "cpuManagerPolicy", "cpu-manager-policy-options": drainedFor + "cpuManagerPolicyOptions",
		"kube-reserved": drainedFor + "kubeReserved", "memory-manager-policy": drainedFor + "memoryManagerPolicy",
		"reserved-cpus": drainedFor + "reservedSystemCPUs", "reserved-memory": drainedFor + "reservedMemory",
		"system-reserved": drainedFor + "systemReserved", "topology-manager-policy": drainedFor + "topologyManagerPolicy",
		"topology-manager-policy-options": drainedFor + "topologyManagerPolicyOptions", "topology-manager-scope": drainedFor + "topologyManagerScope",
	},
	"spec.kubernetes.kubelet.config": {
		"apiVersion": "", "cgroupDriver": "", "clusterDNS": "",
		"clusterDomain": "spec.kubernetes.dnsDomain", "containerRuntimeEndpoint": "",
		"featureGates": "spec.kubernetes.featureGates", "kind": "", "maxPods": "spec.kubernetes.maxPods",
		"podPidsLimit": "spec.kubernetes.podPidsLimit", "registerWithTaints": "spec.hosts[].taints", "staticPodPath": "",
		"tlsCertFile": "", "tlsPrivateKeyFile": "",
	},
	"spec.kubernetes.kubeProxy.config": {
		"apiVersion": "", "clientConnection": "", "clusterCIDR": "spec.network.podCIDR",
		"featureGates": "spec.kubernetes.featureGates", "hostnameOverride": "", "kind": "", "mode": "spec.kubernetes.proxyMode",
	},
	"spec.etcd.extraArgs": {
		"advertise-client-urls": "", "cert-file": "", "client-cert-auth": "", "data-dir": "spec.etcd.dataDir",
		"initial-advertise-peer-urls": "", "initial-cluster": "", "initial-cluster-state": "", "initial-cluster-token": "",
		"key-file": "", "listen-client-urls": "", "listen-peer-urls": "", "name": "",
		"peer-cert-file": "", "peer-client-cert-auth": "", "peer-key-file": "", "peer-trusted-ca-file": "", "trusted-ca-file": "",
	},
}

// removed lists flags that make a component end at once, and since when. From
// the change logs; kubelet 1.37: cmd/kubelet/app/options/globalflags_linux.go.
var removed = map[string]map[string]string{
	"spec.kubernetes.apiServer.extraArgs": {"insecure-port": "v1.24.0", "insecure-bind-address": "v1.24.0"},
	"spec.kubernetes.kubelet.extraArgs": {
		"container-runtime": "v1.27.0", "network-plugin": "v1.24.0", "cni-bin-dir": "v1.24.0", "cni-conf-dir": "v1.24.0",
		"application-metrics-count-limit": "v1.37.0", "boot-id-file": "v1.37.0", "container-hints": "v1.37.0",
		"containerd": "v1.37.0", "containerd-namespace": "v1.37.0", "enable-load-reader": "v1.37.0",
		"event-storage-age-limit": "v1.37.0", "event-storage-event-limit": "v1.37.0", "global-housekeeping-interval": "v1.37.0",
		"log-cadvisor-usage": "v1.37.0", "machine-id-file": "v1.37.0", "storage-driver-buffer-duration": "v1.37.0",
		"storage-driver-db": "v1.37.0", "storage-driver-host": "v1.37.0", "storage-driver-password": "v1.37.0",
		"storage-driver-secure": "v1.37.0", "storage-driver-table": "v1.37.0", "storage-driver-user": "v1.37.0",
	},
}

// flagName matches the name of a flag; components of Kubernetes take _ for -, too.
var flagName = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*$`)

func (k *checker) checkFlags() {
	kube := k.Kubernetes
	for _, of := range []struct {
		path, program, version string
		args                   map[string]string
	}{
		{"spec.kubernetes.apiServer.extraArgs", "kube-apiserver", kube.Version, kube.APIServer.ExtraArgs},
		{"spec.kubernetes.controllerManager.extraArgs", "kube-controller-manager", kube.Version, kube.ControllerManager.ExtraArgs},
		{"spec.kubernetes.scheduler.extraArgs", "kube-scheduler", kube.Version, kube.Scheduler.ExtraArgs},
		{"spec.kubernetes.kubelet.extraArgs", "kubelet", kube.Version, kube.Kubelet.ExtraArgs},
		{"spec.etcd.extraArgs", "etcd", k.Etcd.Version, k.Etcd.ExtraArgs},
	} {
		path := of.path
		for flag, value := range of.args {
			at := fmt.Sprintf("%s[%s]", path, flag)
			since, gone := removed[path][Dashed(flag)]
			switch {
			case !flagName.MatchString(flag):
				meant := strings.Trim(flag, "-")
				if !flagName.MatchString(meant) {
					meant = ""
				}
				k.errs = append(k.errs, Error{Path: at, Msg: "must be the name of a flag: small letters, digits, -, _ and ., no leading dashes", Suggestion: meant})
			case strings.ContainsFunc(value, unicode.IsControl):
				k.fail(at, value, "must be a value of one line, without control characters")
			case gone && atLeast(kube.Version, since):
				k.fail(at, "", "this flag was removed in Kubernetes %s", since)
			case !isOwn(path, flag):
				k.checkFlag(at, of.program, of.version, Dashed(flag), value)
			}
		}
		k.refuseOwn(path, slices.Collect(maps.Keys(of.args)))
	}
	k.refuseOwn("spec.kubernetes.kubelet.config", slices.Collect(maps.Keys(kube.Kubelet.Config)))
	k.refuseOwn("spec.kubernetes.kubeProxy.config", slices.Collect(maps.Keys(kube.KubeProxy.Config)))
}

func isOwn(path, flag string) bool {
	_, is := own[path][Dashed(flag)]
	return is
}

// Dashed is the name of a flag of Kubernetes as it is documented; its programs take _ for -, too.
func Dashed(flag string) string { return strings.ReplaceAll(flag, "_", "-") }

func (k *checker) refuseOwn(path string, keys []string) {
	for _, key := range keys {
		instead, found := own[path][Dashed(key)]
		switch {
		case strings.HasPrefix(instead, drainedFor):
			k.fail(fmt.Sprintf("%s[%s]", path, key), "", "use %s: kubexm drains nodes where a change of it needs that", instead)
		case found && instead != "":
			k.fail(fmt.Sprintf("%s[%s]", path, key), "", "is set by kubexm; use %s", instead)
		case found:
			k.fail(fmt.Sprintf("%s[%s]", path, key), "", "is set by kubexm itself")
		}
	}
}

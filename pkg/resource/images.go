package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// images names the images that kubexm itself deploys, by component. {version}
// stands for the version without its v.
var images = map[string]string{
	"coredns":                 "registry.k8s.io/coredns/coredns:v{version}",
	"etcd":                    "registry.k8s.io/etcd:{version}-0",
	"flannel":                 "ghcr.io/flannel-io/flannel:v{version}",
	"flannel-cni":             "ghcr.io/flannel-io/flannel-cni-plugin:v{version}",
	"haproxy":                 "docker.io/library/haproxy:{version}",
	"kube-apiserver":          "registry.k8s.io/kube-apiserver:v{version}",
	"kube-controller-manager": "registry.k8s.io/kube-controller-manager:v{version}",
	"kube-proxy":              "registry.k8s.io/kube-proxy:v{version}",
	"kube-scheduler":          "registry.k8s.io/kube-scheduler:v{version}",
	"kube-vip":                "ghcr.io/kube-vip/kube-vip:v{version}",
	"local-path":              "docker.io/rancher/local-path-provisioner:v{version}",
	"metrics-server":          "registry.k8s.io/metrics-server/metrics-server:v{version}",
	"node-local-dns":          "registry.k8s.io/dns/k8s-dns-node-cache:{version}",
	"nginx":                   "docker.io/library/nginx:{version}",
	"pause":                   "registry.k8s.io/pause:{version}",
}

// Image returns the full reference of a component's image. The version may have a leading v.
func Image(component, version string) (string, error) {
	name, ok := images[component]
	if !ok {
		return "", fault.Advise(fmt.Errorf("unknown image %q", component), "use one of: "+strings.Join(slices.Sorted(maps.Keys(images)), ", "))
	}
	version = strings.TrimPrefix(version, "v")
	if !versionForm.MatchString(version) {
		return "", fmt.Errorf("image %s: version %q is not of the form 1.2.3", component, version)
	}
	return strings.ReplaceAll(name, "{version}", version), nil
}

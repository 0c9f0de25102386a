package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// images names the images that kubexm itself deploys, by component, but for those of plugins. {version}
// stands for the version without its v.
var images = map[string]string{
	"coredns":                 "registry.k8s.io/coredns/coredns:v{version}",
	"etcd":                    "registry.k8s.io/etcd:v{version}",
	"kube-apiserver":          "registry.k8s.io/kube-apiserver:v{version}",
	"kube-controller-manager": "registry.k8s.io/kube-controller-manager:v{version}",
	"kube-proxy":              "registry.k8s.io/kube-proxy:v{version}",
	"kube-scheduler":          "registry.k8s.io/kube-scheduler:v{version}",
	"metrics-server":          "registry.k8s.io/metrics-server/metrics-server:v{version}",
	"node-local-dns":          "registry.k8s.io/dns/k8s-dns-node-cache:{version}",
	"pause":                   "registry.k8s.io/pause:{version}",
}

// Image returns the full reference of a component's image. The version may have a leading v.
func Image(component, version string) (string, error) {
	all := maps.Clone(images)
	for _, p := range plugin.All() {
		for _, c := range p.Parts {
			all[c.Name] = c.Image
		}
	}
	name := all[component]
	if name == "" {
		maps.DeleteFunc(all, func(_, image string) bool { return image == "" })
		return "", fault.Advise(fmt.Errorf("unknown image %q", component), "use one of: "+strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	version = strings.TrimPrefix(version, "v")
	if !versionForm.MatchString(version) {
		return "", fmt.Errorf("image %s: version %q is not of the form 1.2.3", component, version)
	}
	if component == "etcd" && strings.HasPrefix(version, "3.5.") { // only Kubernetes has built images of them there
		return "registry.k8s.io/etcd:" + version + "-0", nil
	}
	return strings.ReplaceAll(name, "{version}", version), nil
}

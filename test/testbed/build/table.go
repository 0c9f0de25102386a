package build

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Component is one program set of a cluster, built from ordinary Go modules.
type Component struct {
	Name     string            // kubernetes, containerd...
	Version  string            // with v
	Programs map[string]string // file name: package

	set     string // directory below components: go.mod pins all modules
	module  string // whose version is the component's
	flags   string // for the linker; {V} is the version, {v} the same without v, {MAJ} and {MIN} its numbers
	gcflags string // for the compiler
	tags    string
	cgo     bool                                // needs a C compiler; linked statically
	publish func(Component, *publication) error // how upstream publishes it; nil: only in images
	release string                              // version when it is not the module's
	extra   bool                                // most clusters do without it
}

const versionPackages = "k8s.io/component-base/version k8s.io/client-go/pkg/version"

func kubernetes(set string) Component {
	c := Component{Name: "kubernetes", set: set, module: "k8s.io/kubernetes", Programs: map[string]string{}, publish: publishKubernetes}
	for _, p := range strings.Fields("kubeadm kubelet kubectl kube-apiserver kube-controller-manager kube-scheduler kube-proxy") {
		c.Programs[p] = "k8s.io/kubernetes/cmd/" + p
	}
	for _, p := range strings.Fields(versionPackages) {
		for _, v := range []string{"gitVersion={V}", "gitMajor={MAJ}", "gitMinor={MIN}", "gitTreeState=clean"} {
			c.flags += " -X " + p + "." + v
		}
	}
	return c
}

func etcd(set string) Component {
	return Component{Name: "etcd", set: set, module: "go.etcd.io/etcd/server/v3", publish: publishEtcd, Programs: map[string]string{
		"etcd": "go.etcd.io/etcd/server/v3", "etcdctl": "go.etcd.io/etcd/etcdctl/v3", "etcdutl": "go.etcd.io/etcd/etcdutl/v3",
	}}
}

func containerd(set, module string) Component {
	c := Component{
		Name: "containerd", set: set, module: module, tags: containerdTags, Programs: map[string]string{}, publish: publishContainerd,
		flags: "-X " + module + "/version.Version={v} -X " + module + "/version.Revision=module",
	}
	for _, p := range strings.Fields("containerd containerd-shim-runc-v2 ctr") {
		c.Programs[p] = module + "/cmd/" + p
	}
	return c
}

func cniPlugins() Component {
	const module = "github.com/containernetworking/plugins"
	c := Component{
		Name: "cni-plugins", set: "cni", module: module, Programs: map[string]string{}, publish: publishCNI,
		flags: "-X " + module + "/pkg/utils/buildversion.BuildVersion={V}",
	}
	for _, p := range strings.Fields(`ipam/dhcp ipam/host-local ipam/static main/bridge main/dummy main/host-device main/ipvlan
		main/loopback main/macvlan main/ptp main/tap main/vlan meta/bandwidth meta/firewall meta/portmap meta/sbr meta/tuning meta/vrf`) {
		c.Programs[path.Base(p)] = module + "/plugins/" + p
	}
	return c
}

// docker is what upstream's static archive has: programs of three modules, one of them under another name.
func docker() Component {
	const daemon, client = "github.com/moby/moby/v2", "github.com/docker/cli"
	return Component{
		Name: "docker", set: "docker", release: "v29.9.3", extra: true, publish: publishDocker, tags: containerdTags + " exclude_graphdriver_btrfs",
		gcflags: client + "/...=-lang=go1.25", // it has no go.mod that could say so
		flags:   "-X " + daemon + "/dockerversion.Version={v} -X " + client + "/cli/version.Version={v}",
		Programs: map[string]string{
			"dockerd": daemon + "/cmd/dockerd", "docker-proxy": daemon + "/cmd/docker-proxy", "docker": client + "/cmd/docker",
			"containerd": "github.com/containerd/containerd/v2/cmd/containerd", "containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
		},
	}
}

// own is a program of the testbed itself.
func own(name string) Component {
	return Component{Name: name, set: name, release: "v1", Programs: map[string]string{name: "kubexm.test/components/" + name}}
}

const (
	calicoModule = "github.com/projectcalico/calico"
	ciliumModule = "github.com/cilium/cilium"
	crioModule   = "github.com/cri-o/cri-o"
	shimModule   = "github.com/Mirantis/cri-dockerd"
)

const containerdTags = "no_btrfs osusergo netgo static_build urfave_cli_no_docs"

// components is everything that can be built. The first of a name is the one
// that is meant by the name alone.
func components() []Component {
	return []Component{
		kubernetes("k8s-1.37"), kubernetes("k8s-1.36"), kubernetes("k8s-1.35"), kubernetes("k8s-1.34"),
		etcd("etcd-3.7"), etcd("etcd-3.6"),
		containerd("containerd", "github.com/containerd/containerd/v2"), containerd("containerd-1.7", "github.com/containerd/containerd"),
		{
			Name: "runc", set: "runc", module: "github.com/opencontainers/runc", cgo: true, tags: "seccomp netgo osusergo urfave_cli_no_docs",
			flags: "-X main.version={v} -X main.gitCommit=module", Programs: map[string]string{"runc": "github.com/opencontainers/runc"}, publish: publishRunc,
		},
		{
			Name: "cri-o", set: "cri-o", module: crioModule, cgo: true, extra: true, publish: publishCRIO,
			tags:     "containers_image_openpgp containers_image_ostree_stub exclude_graphdriver_btrfs seccomp osusergo netgo",
			Programs: map[string]string{"crio": crioModule + "/cmd/crio"},
		},
		docker(),
		{
			Name: "cri-dockerd", set: "cri-dockerd", module: shimModule, extra: true, publish: publishCRIDockerd, tags: "osusergo netgo",
			flags: "-X " + shimModule + "/cmd/version.Version={v}", Programs: map[string]string{"cri-dockerd": shimModule},
		},
		cniPlugins(),
		// flannel-io/cni-plugin is no module that can be had: the plugin is the one from which it was forked.
		{
			Name: "flannel-cni", set: "flannel-cni", release: "v1.9.1-flannel3", publish: publishFlannelCNI,
			flags:    "-X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion={V}",
			Programs: map[string]string{"flannel": "github.com/containernetworking/plugins/plugins/meta/flannel"},
		},
		{
			Name: "flannel", set: "flannel", module: "github.com/flannel-io/flannel", cgo: true, tags: "netgo osusergo", publish: publishFlannel,
			flags:    "-X github.com/flannel-io/flannel/pkg/version.Version={V}",
			Programs: map[string]string{"flanneld": "github.com/flannel-io/flannel", "install-conf": "github.com/flannel-io/flannel/cmd/install_conf"},
		},
		{
			Name: "calico", set: "calico", module: calicoModule, release: "v3.28.5", publish: publishCalico, extra: true, // the tag of the module's version
			flags: "-X main.VERSION={V} -X " + calicoModule + "/node/pkg/lifecycle/startup.VERSION={V} -X " + calicoModule + "/node/buildinfo.GitVersion={V}",
			Programs: map[string]string{
				"calico-node": calicoModule + "/node/cmd/calico-node", "calico": calicoModule + "/cni-plugin/cmd/calico", "install": calicoModule + "/cni-plugin/cmd/install", "calico-typha": calicoModule + "/typha/cmd/calico-typha",
				"kube-controllers": calicoModule + "/kube-controllers/cmd/kube-controllers", "check-status": calicoModule + "/kube-controllers/cmd/check-status",
			},
		},
		{
			Name: "cilium", set: "cilium", module: ciliumModule, publish: publishCilium, extra: true, tags: "osusergo netgo ipam_provider_operator",
			flags: "-X '" + ciliumModule + "/pkg/version.ciliumVersion={v} module 2026-01-01T00:00:00+00:00'",
			Programs: map[string]string{
				"cilium-agent": ciliumModule + "/daemon", "cilium-operator-generic": ciliumModule + "/operator", "cilium-cni": ciliumModule + "/plugins/cilium-cni",
				"cilium-dbg": ciliumModule + "/cilium-dbg", "cilium-health-responder": ciliumModule + "/cilium-health/responder",
				"cilium-mount": ciliumModule + "/tools/mount", "cilium-sysctlfix": ciliumModule + "/tools/sysctlfix",
			},
		},
		{
			Name: "metrics-server", set: "metrics-server", module: "sigs.k8s.io/metrics-server", extra: true, publish: publishMetricsServer,
			flags:    "-X k8s.io/component-base/version.gitVersion={V}",
			Programs: map[string]string{"metrics-server": "sigs.k8s.io/metrics-server/cmd/metrics-server"},
		},
		{
			Name: "crictl", set: "cri-tools", module: "sigs.k8s.io/cri-tools", flags: "-X sigs.k8s.io/cri-tools/pkg/version.Version={V}",
			Programs: map[string]string{"crictl": "sigs.k8s.io/cri-tools/cmd/crictl"}, publish: publishCrictl,
		},
		{Name: "coredns", set: "coredns-slim", module: "github.com/coredns/coredns", Programs: map[string]string{"coredns": "kubexm.test/components/coredns"}},
		{
			Name: "kube-vip", set: "kube-vip", module: "github.com/kube-vip/kube-vip", flags: "-X main.Version={V}",
			Programs: map[string]string{"kube-vip": "github.com/kube-vip/kube-vip"},
		},
		{
			Name: "local-path", set: "local-path", module: "github.com/rancher/local-path-provisioner", extra: true, flags: "-X main.VERSION={V}",
			Programs: map[string]string{"local-path-provisioner": "github.com/rancher/local-path-provisioner"},
		},
		{
			Name: "registry", set: "registry", module: "github.com/distribution/distribution/v3", publish: publishRegistry, extra: true,
			flags:    "-X github.com/distribution/distribution/v3/version.version={V} -X github.com/distribution/distribution/v3/version.revision=module",
			Programs: map[string]string{"registry": "github.com/distribution/distribution/v3/cmd/registry"},
		},
		{
			Name: "versitygw", set: "s3", module: "github.com/versity/versitygw", extra: true,
			flags: "-X main.Version={V} -X main.Build=module", Programs: map[string]string{"versitygw": "github.com/versity/versitygw/cmd/versitygw"},
		},
		own("pause"), own("probe"),
	}
}

// Table returns all components with their versions. sets is the directory of the module sets.
func Table(sets string) ([]Component, error) {
	all := components()
	for i := range all {
		if err := all[i].resolve(sets); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (c *Component) resolve(sets string) error {
	if c.Version = c.release; c.Version != "" {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(sets, c.set, "go.mod"))
	if err != nil {
		return fmt.Errorf("reading the modules of %s: %w", c.Name, err)
	}
	m := regexp.MustCompile(`(?m)^(?:require|\s)\s*` + regexp.QuoteMeta(c.module) + ` (v\S+)`).FindSubmatch(b)
	if m == nil {
		return fmt.Errorf("reading the modules of %s: %s/go.mod does not require %s", c.Name, c.set, c.module)
	}
	c.Version = string(m[1])
	return nil
}

// Find picks a component by name or name@version; a version may be cut short
// at a dot (kubernetes@1.36).
func Find(table []Component, want string) (Component, error) {
	name, version, _ := strings.Cut(want, "@")
	version = strings.TrimPrefix(version, "v")
	var known []string
	for _, c := range table {
		have := strings.TrimPrefix(c.Version, "v")
		if c.Name == name && (version == "" || have == version || strings.HasPrefix(have, version+".")) {
			return c, nil
		}
		known = append(known, c.Name+"@"+c.Version)
	}
	return Component{}, fmt.Errorf("no component %q; there are: %s", want, strings.Join(known, " "))
}

// Default is what one ordinary cluster of the default version needs.
func Default(table []Component) []Component {
	seen := map[string]bool{}
	var first []Component
	for _, c := range table {
		if !seen[c.Name] && !c.extra {
			seen[c.Name] = true
			first = append(first, c)
		}
	}
	return first
}

// packages lists the packages of a component, in a fixed order.
func (c Component) packages() []string { return slices.Sorted(maps.Values(c.Programs)) }

// space is how many bytes of disk building it takes, the compiler's cache included.
func (c Component) space() uint64 {
	if c.Name == "kubernetes" || c.Name == "calico" || c.Name == "cilium" {
		return 5 << 30
	}
	return 1 << 29
}

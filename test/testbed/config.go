package testbed

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/template"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/test/testbed/build"
)

//go:embed scripts/cluster.yaml.tmpl
var clusterTemplate string

// ConfigOptions say what cluster Config describes.
type ConfigOptions struct {
	Name       string // of the cluster; empty: testbed
	Nodes      int    // how many of the nodes, from node1
	Row        int    // of the deployment matrix: 1 is kubeadm with its own etcd, 2 is kubexm with binaries, 3 is kubeadm with etcd as a binary
	Kubernetes string // version or minor version; empty: the newest that can be built
	Upstream   bool   // as in the real world: no mirror, and kubexm chooses the versions
}

// configData is what the template is fed.
type configData struct {
	Name, User, KeyFile, SudoPassword, Arch, Type string
	EtcdType                                      string
	Upstream                                      bool
	Files, Images                                 string // addresses of the mirror
	Hosts                                         []configHost
	Registries                                    []string
	Kubernetes, Etcd, Containerd, Flannel         string // versions
}

type configHost struct {
	Name, Address string
	Roles         []string
}

// Config writes a cluster.yaml for the first nodes, with the versions that the
// testbed builds and the mirror as the source. The first node is master and
// etcd, the others are workers; a single node is everything.
func (t *Testbed) Config(w io.Writer, b *build.Builder, o ConfigOptions) error {
	nodes, err := t.Nodes()
	if err != nil {
		return err
	}
	if o.Nodes < 1 || o.Nodes > len(nodes) {
		return fmt.Errorf("a cluster of %d nodes: testbed %s has %d", o.Nodes, t.Name, len(nodes))
	}
	if o.Row < 1 || o.Row > 3 {
		return fmt.Errorf("no row %d of the deployment matrix here: want 1, 2 or 3", o.Row)
	}
	kind := []string{"kubeadm", "kubexm", "kubeadm"}[o.Row-1]
	data := configData{
		Name: cmp.Or(o.Name, "testbed"), Upstream: o.Upstream, User: t.User(), KeyFile: t.KeyFile(), Arch: runtime.GOARCH, Type: kind,
		EtcdType: []string{"kubeadm", "kubexm", "kubexm"}[o.Row-1],
		Files:    t.FilesAddress(), Images: t.ImagesAddress(), Hosts: configHosts(nodes[:o.Nodes]),
		Registries: []string{"registry.k8s.io", "ghcr.io", "docker.io", "quay.io", "kubexm.test"},
	}
	if data.User == "kube" {
		data.SudoPassword = Password
	}
	table, err := b.Table()
	if err != nil {
		return err
	}
	find := func(to *string, want string) error {
		c, err := build.Find(table, want)
		*to = c.Version
		return err
	}
	err = errors.Join(find(&data.Kubernetes, "kubernetes@"+o.Kubernetes), find(&data.Containerd, "containerd"), find(&data.Flannel, "flannel"))
	if err == nil { // the etcd of the same minor version as the one that kubexm would choose
		etcd := config.VersionsFor(data.Kubernetes).Etcd
		err = find(&data.Etcd, "etcd@"+etcd[:strings.LastIndex(etcd, ".")])
	}
	if err != nil {
		return err
	}
	tmpl, err := template.New("cluster.yaml").Option("missingkey=error").Funcs(template.FuncMap{"join": strings.Join}).Parse(clusterTemplate)
	if err != nil {
		return err
	}
	return tmpl.Execute(w, data)
}

func configHosts(nodes []Node) []configHost {
	var hosts []configHost
	for i, n := range nodes {
		roles := []string{"worker"}
		if i == 0 {
			roles = []string{"master", "etcd"}
		}
		if len(nodes) == 1 {
			roles = append(roles, "worker")
		}
		hosts = append(hosts, configHost{n.Name, n.Address, roles})
	}
	return hosts
}

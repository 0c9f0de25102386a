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

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/test/testbed/build"
)

//go:embed scripts/cluster.yaml.tmpl
var clusterTemplate string

// ConfigOptions say what cluster Config describes.
type ConfigOptions struct {
	Name       string // of the cluster; empty: testbed
	Nodes      int    // how many of the nodes, from node1
	Row        int    // of the deployment matrix, see Rows
	Kubernetes string // version or minor version; empty: the newest that can be built
	Network    string // the plugin; empty: flannel
	Runtime    string // empty: containerd
	Upstream   bool   // as in the real world: no mirror, and kubexm chooses the versions
}

// configData is what the template is fed.
type configData struct {
	Name, User, KeyFile, SudoPassword, Arch, Type string // no KeyFile, no Arch: not in the file
	EtcdType, EtcdURL, EtcdCerts, Balancer, VIP   string
	Network                                       string // empty: flannel, in the version that was built
	Runtime                                       string // empty: containerd, likewise
	Upstream                                      bool
	Files, Images                                 string // addresses of the mirror
	PodCIDR, ServiceCIDR                          string // empty: the defaults, of IPv4
	Hosts                                         []configHost
	Registries                                    []string
	Kubernetes, Etcd, Containerd, Flannel         string // versions
}

type configHost struct {
	Name, Address, Internal string // no Internal: the address
	Roles                   []string
}

// Row is a way to deploy a cluster.
type Row struct {
	Kubernetes, Etcd string // who runs them: kubeadm or kubexm; etcd also external
	Masters          int
	Balancer         string // off, kube-vip, or the type of an internal or external load balancer
}

// External reports whether the last two nodes are load balancers.
func (r Row) External() bool { return strings.HasPrefix(r.Balancer, "kubexm-k") }

// ExternalEtcd reports whether the last node runs an etcd that is not kubexm's: see RunEtcd.
func (r Row) ExternalEtcd() bool { return r.Etcd == v1alpha1.TypeExternal }

// Nodes is how many a cluster of the row has with one worker, and with what is beside it.
func (r Row) Nodes() int {
	n := r.Masters + 1
	if r.External() {
		n += 2
	}
	if r.ExternalEtcd() {
		n++
	}
	return n
}

// Rows is the deployment matrix: row 1 is the first.
var Rows = []Row{
	{"kubeadm", "kubeadm", 1, "off"},
	{"kubexm", "kubexm", 1, "off"},
	{"kubeadm", "kubexm", 1, "off"},
	{"kubeadm", "kubeadm", 3, "off"},
	{"kubexm", "kubexm", 3, "off"},
	{"kubeadm", "kubexm", 3, "off"},
	{"kubeadm", "kubeadm", 3, "haproxy"},
	{"kubeadm", "kubexm", 3, "haproxy"},
	{"kubexm", "kubexm", 3, "haproxy"},
	{"kubeadm", "kubeadm", 3, "nginx"},
	{"kubeadm", "kubexm", 3, "nginx"},
	{"kubexm", "kubexm", 3, "nginx"},
	{"kubeadm", "kubeadm", 3, "kube-vip"},
	{"kubeadm", "kubexm", 3, "kube-vip"},
	{"kubexm", "kubexm", 3, "kube-vip"},
	{"kubeadm", "kubeadm", 3, "kubexm-kh"},
	{"kubeadm", "kubeadm", 3, "kubexm-kn"},
	{"kubeadm", "kubexm", 3, "kubexm-kh"},
	{"kubeadm", "kubexm", 3, "kubexm-kn"},
	{"kubexm", "kubexm", 3, "kubexm-kh"},
	{"kubexm", "kubexm", 3, "kubexm-kn"},
	{"kubeadm", "external", 3, "off"},
}

// Config writes a cluster.yaml for the first nodes, with the versions that the
// testbed builds and the mirror as the source. The first nodes are masters and etcd,
// the last ones load balancers where the row has them, the others are workers; a
// single node is everything. The node of an external etcd is the very last, and no host of the cluster.
func (t *Testbed) Config(w io.Writer, b *build.Builder, o ConfigOptions) error {
	nodes, err := t.Nodes()
	if err != nil {
		return err
	}
	if o.Nodes < 1 || o.Nodes > len(nodes) {
		return fmt.Errorf("a cluster of %d nodes: testbed %s has %d", o.Nodes, t.Name, len(nodes))
	}
	if o.Row < 1 || o.Row > len(Rows) {
		return fmt.Errorf("no row %d of the deployment matrix here: want 1 to %d", o.Row, len(Rows))
	}
	row := Rows[o.Row-1]
	nodes = nodes[:o.Nodes]
	var etcd, certs string
	if row.ExternalEtcd() {
		last := nodes[len(nodes)-1]
		if err := t.etcdCerts(last); err != nil {
			return err
		}
		nodes, etcd, certs = nodes[:len(nodes)-1], etcdURL(last), t.EtcdCerts()
	}
	hosts, err := row.hosts(nodes)
	if err != nil {
		return err
	}
	data := configData{
		Name: cmp.Or(o.Name, "testbed"), Upstream: o.Upstream, User: t.User(), KeyFile: t.KeyFile(), Arch: runtime.GOARCH,
		Type: row.Kubernetes, EtcdType: row.Etcd, EtcdURL: etcd, EtcdCerts: certs, Balancer: row.Balancer, VIP: t.VIP(),
		Network: o.Network, Runtime: o.Runtime, Files: t.FilesAddress(), Images: t.ImagesAddress(), Hosts: hosts,
	}
	data.PodCIDR, data.ServiceCIDR = t.cidrs()
	if data.User == "kube" {
		data.SudoPassword = Password
	}
	return data.write(w, b, o.Kubernetes)
}

// ConfigAnywhere writes a cluster.yaml of row 1 for two hosts that are nowhere and may have any
// architecture: for downloads from a mirror (see mirror.Serve) with these addresses.
func ConfigAnywhere(w io.Writer, b *build.Builder, files, images string) error {
	row := Rows[0]
	hosts, err := row.hosts([]Node{{Name: "node1", Address: "192.0.2.1"}, {Name: "node2", Address: "192.0.2.2"}})
	if err != nil {
		return err
	}
	data := configData{
		Name: "anywhere", User: "root", Type: row.Kubernetes, EtcdType: row.Etcd, Balancer: row.Balancer, Files: files, Images: images, Hosts: hosts,
	}
	return data.write(w, b, "")
}

// write fills in the versions that can be built, of Kubernetes the one that is wanted, and writes the file.
func (data configData) write(w io.Writer, b *build.Builder, kubernetes string) error {
	data.Registries = []string{"registry.k8s.io", "ghcr.io", "docker.io", "quay.io", "kubexm.test"}
	table, err := b.Table()
	if err != nil {
		return err
	}
	find := func(to *string, want string) error {
		c, err := build.Find(table, want)
		*to = c.Version
		return err
	}
	err = errors.Join(find(&data.Kubernetes, "kubernetes@"+kubernetes), find(&data.Containerd, "containerd"), find(&data.Flannel, "flannel"))
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

func (r Row) hosts(nodes []Node) ([]configHost, error) {
	balancers := len(nodes)
	if r.External() {
		balancers -= 2
	}
	if balancers < r.Masters || len(nodes) > 1 && balancers == r.Masters {
		return nil, fmt.Errorf("%d nodes are too few for %d masters, a worker and the load balancers", len(nodes), r.Masters)
	}
	var hosts []configHost
	for i, n := range nodes {
		roles := []string{"worker"}
		switch {
		case i < r.Masters && r.ExternalEtcd():
			roles = []string{"master"}
		case i < r.Masters:
			roles = []string{"master", "etcd"}
		case i >= balancers:
			roles = []string{"loadbalancer"}
		}
		if len(nodes) == 1 {
			roles = append(roles, "worker")
		}
		one := configHost{Name: n.Name, Address: n.Address, Roles: roles}
		if n.Second != "" {
			one.Internal = strings.Join(n.Addresses(), ",")
		}
		hosts = append(hosts, one)
	}
	return hosts, nil
}

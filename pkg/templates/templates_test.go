package templates_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/templates"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

type zone struct {
	Zones, Nameservers []string
	Cache              int
}

type unit struct {
	Description, Documentation, After, Type, Command string

	Before   []string
	Args     map[string]string
	Settings []string
}

// data has what each template is rendered with: one set or more.
var data = map[string][]any{
	"containerd/config-v2": {containerd{"/var/lib/containerd", "registry.k8s.io/pause:3.10", true}},
	"containerd/config-v3": {containerd{"/data/containerd", "registry.k8s.io/pause:3.10", false}},
	"containerd/hosts":     {hosts},
	"coredns/corefile": {
		corefile{"cluster.local", "", "", "", []string{"/etc/resolv.conf"}, nil},
		corefile{"k8s.example", "", "", "", []string{"192.0.2.53", "192.0.2.54"}, []zone{{[]string{"corp.example", "example.net"}, []string{"192.0.2.1"}, 5}}},
	},
	"coredns/cachefile": {
		corefile{"cluster.local", "169.254.25.10", "169.254.25.10:9254", "10.233.0.10", []string{"/etc/resolv.conf"}, nil},
		corefile{"k8s.example", "fd69:254:25::10", "[fd69:254:25::10]:9254", "fd00:10:233::a", []string{"192.0.2.53", "192.0.2.54"}, []zone{{[]string{"corp.example", "example.net"}, []string{"192.0.2.1"}, 5}}},
	},
	"coredns/cache": {map[string]string{"Corefile": ".:53 {\n    errors\n}", "IP": "169.254.25.10", "Image": "registry.k8s.io/coredns/coredns:v1.14.6", "Digest": "0123456789abcdef"}},
	"coredns/coredns": {struct {
		Corefile, ClusterIP, Image, Digest string
		Replicas                           int
	}{".:53 {\n    errors\n}", "10.233.0.10", "registry.k8s.io/coredns/coredns:v1.14.6", "0123456789abcdef", 2}},
	"docker/daemon": {map[string]string{"Root": "/var/lib/docker"}},
	"crio/crio":     {map[string]string{"Root": "/var/lib/crio/storage", "Pause": "registry.k8s.io/pause:3.10"}},
	"crio/pinned":   {[]string{"registry.k8s.io/coredns/coredns:v1.14.6", "registry.k8s.io/pause:3.10"}},
	"crio/registries": {[]any{
		map[string]any{"Prefix": "docker.io", "First": []any{map[string]any{"Location": "mirror.example.com/hub", "Insecure": true}}, "Last": map[string]any{"Location": "docker.io", "Insecure": false}},
	}},
	"kubeadm/patch": {map[string]string{"Pod": "kube-apiserver", "Digest": "0123456789abcdef"}},
	"kubernetes/kube-proxy": {map[string]string{
		"Config": "kind: KubeProxyConfiguration\nmode: nftables", "Server": "https://lb.kubexm.local:6443", "Image": "registry.k8s.io/kube-proxy:v1.37.1", "Digest": "0123456789abcdef",
	}},
	"flannel/flannel":      {flannel("10.233.64.0/18", ""), flannel("10.233.64.0/18", "fd00:10:233:40::/58"), flannel("", "fd00:10:233:40::/58")},
	"calico/calico":        {calico("10.233.64.0/18", "", "vxlan", 0), calico("10.233.64.0/18", "fd00:10:233:40::/58", "bird", 3), calico("", "fd00:10:233:40::/58", "vxlan", 0)},
	"localpath/local-path": {map[string]any{"Image": "docker.io/rancher/local-path-provisioner:v0.0.30", "Helper": "docker.io/library/busybox:1.37.0", "Path": "/srv", "Default": true}},
	"loadbalancer/haproxy": {proxied},
	"loadbalancer/nginx":   {proxied},
	"loadbalancer/keepalived": {map[string]any{
		"Name": "lb1", "Interface": "eth0", "IP": "10.0.0.21", "VIP": "10.0.0.100", "Port": 6443, "RouterID": 100, "Priority": 150, "IPv6": false, "Own": "127.0.0.1",
		"Peers": []string{"10.0.0.22"},
	}, map[string]any{
		"Name": "lb1", "Interface": "eth0", "IP": "fd00::21", "VIP": "fd00::100", "Port": 6443, "RouterID": 100, "Priority": 150, "IPv6": true, "Own": "::1",
		"Peers": []string{"fd00::22"},
	}},
	"loadbalancer/proxy-pod": {map[string]any{
		"Proxy": "haproxy", "Image": "haproxy:3", "Digest": "abc", "Directory": "/etc/haproxy", "Mounted": "/etc/proxy", "IPv6": true, "Port": 6443,
		"Command": []string{"sh", "-c", `exec "haproxy" -db`},
	}},
	"loadbalancer/kube-vip":    {vip("arp"), vip("bgp")},
	"kubernetes/fence":         {struct{ Machines []string }{[]string{"7e22", "7e23"}}},
	"kubernetes/configuration": {map[string][]byte{"cluster.yaml": []byte("kind: Cluster\n"), "secrets": nil}},
	"kubernetes/identity":      {struct{ ID, Name string }{"7e22222222222222222222222", "123"}},
	"kubernetes/rbac":          {struct{ AdminGroup, KubeletClientUser string }{"kubeadm:cluster-admins", "kube-apiserver-kubelet-client"}},
	"registry/config":          {map[string]any{"Dir": "/var/lib/registry", "Listen": ":443", "ReadOnly": true, "Secret": "ABC", "Cert": "/etc/registry/tls.crt", "Key": "/etc/registry/tls.key", "Users": "/etc/registry/htpasswd"}},
	"registry/harbor": {map[string]any{
		"Host": "registry.kubexm.local", "Port": 443, "Cert": "/etc/registry/tls.crt", "Key": "/etc/registry/tls.key", "Admin": "ABC", "Database": "DEF",
		"Dir": "/data/harbor", "Version": "2.15.0",
	}},
	"systemd/dropin": {unit{Command: "/usr/local/bin/etcd"}, full},
	"systemd/timed":  {map[string]any{"Description": "Snapshot of etcd", "After": "network-online.target", "Timeout": "1h", "Service": []string{"User=ops"}, "Command": "/usr/local/libexec/kubexm-etcd-backup"}},
	"systemd/timer":  {map[string]any{"Description": "Snapshot of etcd", "Calendar": "daily", "Settings": []string{"RandomizedDelaySec=10min"}}},
	"systemd/unit":   {unit{Description: "etcd", Documentation: "https://etcd.io", Type: "notify"}, full},
}

var full = unit{
	Description: "Kubernetes node agent", Documentation: "https://kubernetes.io/docs", After: "containerd.service", Type: "simple",
	Before: []string{"/bin/mkdir -p /run/x"}, Command: "/usr/local/bin/kubelet $ARGS", Settings: []string{"Delegate=yes", "LimitNOFILE=1048576"},
	Args: map[string]string{"v": "4", "plain": "a,b=c", "words": "two words", "quote": `say "x"`, "expanded": "$HOME and 100%", "backslash": `a\b`, "lines": "one\r\ntwo", "empty": ""},
}

type place struct {
	URL           string
	Override      bool
	CA            string
	Insecure      bool
	Authorization string
}

var hosts = struct {
	First []place
	Last  place
}{
	[]place{{"https://registry.kubexm.local/v2/docker.io", true, "/etc/ca.crt", false, "Basic a3ViZXht"}, {"http://mirror.example.com", false, "", true, ""}},
	place{"https://registry-1.docker.io", false, "", false, "Basic eW91"},
}

type containerd struct {
	Root, Pause string
	RestrictOOM bool
}

type corefile struct {
	Domain, IP, Health, ClusterIP string
	Upstream                      []string
	Zones                         []zone
}

func flannel(v4, v6 string) map[string]any {
	return map[string]any{
		"PodCIDR": v4, "PodCIDRv6": v6, "IPv6": v4 == "", "Dual": v4 != "" && v6 != "", "Backend": "vxlan", "Image": "ghcr.io/flannel-io/flannel:v0.28.9", "CNIImage": "ghcr.io/flannel-io/flannel-cni-plugin:v1.9.1-flannel3",
		"Digest": "0123456789abcdef", "NFTables": true, "APIHost": "lb.kubexm.local", "APIPort": 6443,
	}
}

func calico(v4, v6, backend string, typha int) map[string]any {
	return map[string]any{
		"PodCIDR": v4, "PodCIDRv6": v6, "BlockSize": 26, "VXLAN": "CrossSubnet", "IPIP": "Never", "Backend": backend, "Felix": `{"xdpEnabled":false}`, "MTU": 0, "Typha": typha,
		"Node": "docker.io/calico/node:v3.28.5", "CNI": "docker.io/calico/cni:v3.28.5", "Controllers": "docker.io/calico/kube-controllers:v3.28.5",
		"TyphaImage": "docker.io/calico/typha:v3.28.5", "APIHost": "lb.kubexm.local", "APIPort": 6443, "Accounts": []string{"calico-node"},
	}
}

var proxied = map[string]any{
	"Listen": "*:6443", "Connections": 20000, "Interval": 1, "Masters": []map[string]string{{"Name": "node1", "Address": "10.0.0.11:6443"}, {"Name": "node2", "Address": "[fd00::12]:6443"}},
}

func vip(mode string) map[string]any {
	return map[string]any{
		"Kubeconfig": "0123456789abcdef", "Image": "kube-vip:v1", "VIP": "10.0.0.100", "Interface": "eth0", "Mode": mode, "IP": "10.0.0.11", "Subnet": 32, "Port": 6443,
		"ASN": 64512, "Peers": "10.0.0.1:64513::false", "HoldTime": "30",
	}
}

// TestTemplates renders every template there is; one without data here fails.
func TestTemplates(t *testing.T) {
	for _, name := range templates.Names() {
		t.Run(name, func(t *testing.T) {
			if data[name] == nil {
				t.Fatal("add it to data, with all that it is rendered with")
			}
			var b strings.Builder
			for _, d := range data[name] {
				b.Write(templates.Render(name, d))
				b.WriteString("==== end\n")
			}
			golden.File(t, filepath.Join("testdata", t.Name()), b.String())
		})
	}
	for name := range data {
		if !slices.Contains(templates.Names(), name) {
			t.Errorf("there is no template %s", name)
		}
	}
}

func TestMissingData(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a template was rendered without its data")
		}
	}()
	templates.Render("kubernetes/rbac", map[string]string{"AdminGroup": "a"})
}

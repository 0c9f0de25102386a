package plugin

import "github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"

var haproxy = Proxy{
	Plugin: Plugin{
		Name: v1alpha1.ProxyHAProxy, Unit: "haproxy",
		Parts: []Component{{Name: "haproxy", Version: "3.2.22", Image: "docker.io/library/haproxy:{version}"}},
	},
	External: v1alpha1.ExternalHAProxy,
	Template: "loadbalancer/haproxy", Config: "/etc/haproxy/haproxy.cfg",
	Packages:     map[string][]string{"apt": {"haproxy"}, "dnf": {"haproxy"}, "yum": {"haproxy"}},
	PackagesLeft: []string{"/var/lib/haproxy", "/run/haproxy", "/run/haproxy.pid", "/run/haproxy-master.sock", "/run/kubexm-haproxy"},
	Command:      "/usr/sbin/haproxy -Ws -f /etc/haproxy/haproxy.cfg", Type: "notify",
	Check: "/usr/sbin/haproxy -c -f /etc/haproxy/haproxy.cfg", Signal: "USR2",
	Pod: "haproxy -W -db -f haproxy.cfg", PodCheck: "haproxy -c -f haproxy.cfg",
}

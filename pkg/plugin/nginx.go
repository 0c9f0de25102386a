package plugin

import "github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"

var nginx = Proxy{
	Plugin: Plugin{
		Name: v1alpha1.ProxyNginx, Unit: "nginx",
		Parts: []Component{{Name: "nginx", Version: "1.30.4", Image: "docker.io/library/nginx:{version}"}},
	},
	External: v1alpha1.ExternalNginx,
	Template: "loadbalancer/nginx", Config: "/etc/nginx/nginx.conf",
	Packages:     map[string][]string{"apt": {"nginx", "libnginx-mod-stream"}, "dnf": {"nginx", "nginx-mod-stream"}, "yum": {"nginx", "nginx-mod-stream"}},
	PackagesLeft: []string{"/var/lib/nginx", "/var/log/nginx", "/run/nginx.pid", "/run/kubexm-nginx"},
	Command:      `/usr/sbin/nginx -g "daemon off;"`, Type: "simple", Titled: true,
	Check: "/usr/sbin/nginx -t -q", Signal: "HUP",
	Pod: `nginx -c $PWD/nginx.conf -g "daemon off;"`, PodCheck: "nginx -t -q -c $PWD/nginx.conf",
}

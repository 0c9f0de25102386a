package plugin

import "github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"

var keepalived = VIP{
	Plugin: Plugin{Name: "keepalived", Unit: "keepalived"},
	Mode:   v1alpha1.BalancerExternal, Role: v1alpha1.RoleLoadBalancer,
	Config:       "/etc/keepalived/keepalived.conf",
	Holds:        func(*v1alpha1.Spec) bool { return true },
	Packages:     []string{"keepalived"},
	PackagesLeft: []string{"/etc/iproute2/rt_addrprotos.d/keepalived.conf", "/run/keepalived"},
}

package config

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/plugin"
)

// Validate returns what is wrong with a cluster that went through Default, and
// what works but may not be meant. Of the files that are named it asks whether they
// can be read, and reads those of an external etcd.
func Validate(c *v1alpha1.Cluster) (errs, warnings Errors) {
	k := &checker{Spec: &c.Spec}
	k.masters = hostsWith(k.Spec, v1alpha1.RoleMaster)
	k.members = hostsWith(k.Spec, v1alpha1.RoleEtcd)
	k.label("metadata.name", c.Metadata.Name)
	if c.Metadata.Name == "packages" {
		k.fail("metadata.name", c.Metadata.Name, "is the directory of downloads in the work directory; take another name")
	}
	for _, check := range []func(){
		k.checkHosts, k.checkConnections, k.checkRoles, k.checkTopology,
		k.checkKubernetes, k.checkEtcd, k.checkData, k.checkVersions, k.checkPlugins, k.checkGates, k.checkFlags, k.checkTyped, k.checkFeatureGates, k.checkAdmission,
		k.checkNetwork, k.checkDNS, k.checkLoadBalancer, k.checkSystem, k.checkTime, k.checkResolvers, k.checkSource, k.checkRegistry, k.checkUpgrade, k.checkBackup, k.checkStorage, k.checkAddons, k.checkAbsurd,
	} {
		check()
	}
	return k.errs, k.warnings
}

// checker holds a cluster while it is validated.
type checker struct {
	*v1alpha1.Spec
	masters, members []string // names of hosts
	errs, warnings   Errors
}

func (k *checker) fail(path string, value any, format string, args ...any) {
	k.errs = append(k.errs, Error{Path: path, Value: fmt.Sprint(value), Msg: fmt.Sprintf(format, args...)})
}

// lately refuses what a release before has taken.
func (k *checker) lately(e Error) {
	e.lately = true
	k.errs = append(k.errs, e)
}

func (k *checker) warn(path string, value any, format string, args ...any) {
	k.warnings = append(k.warnings, Error{Path: path, Value: fmt.Sprint(value), Msg: fmt.Sprintf(format, args...)})
}

// Fail, IP and Interface check for rows of plugins.
func (k *checker) Fail(path string, value any, why string) { k.fail(path, value, "%s", why) }

// IP checks an address.
func (k *checker) IP(path, value string) {
	switch ip, err := netip.ParseAddr(value); {
	case err != nil || ip.Zone() != "":
		k.fail(path, value, "must be an IP address")
	case ip.String() != value:
		k.lately(Error{Path: path, Value: value, Msg: notShortest, Suggestion: ip.String()})
	}
}

// notShortest is said of addresses of IPv6 that machines and programs show otherwise: they are compared as texts.
const notShortest = "is not in its shortest form"

// Interface checks the name of a network interface.
func (k *checker) Interface(path, value string) {
	if value != "" && !interfaceName.MatchString(value) {
		k.fail(path, value, "is not the name of a network interface, like eth0")
	}
}

// checkPlugins checks the sections of the configuration that are of one plugin alone.
func (k *checker) checkPlugins() {
	chosen := plugin.Of(k.Spec)
	for _, p := range plugin.All() {
		switch s := p.Section; {
		case s == nil || !s.Given(k.Spec):
		case !slices.ContainsFunc(chosen, func(c plugin.Plugin) bool { return c.Name == p.Name }):
			k.fail(s.Path, "", "%s", s.Only)
		case s.Check != nil:
			s.Check(k.Spec, k)
		}
	}
}

// rolePath is the field that is written to give a role.
func (k *checker) rolePath(r v1alpha1.Role) string {
	for _, g := range groupsOf(k.RoleGroups) {
		if g.role == r && len(g.hosts) > 0 {
			return "spec.roleGroups." + string(r)
		}
	}
	return "spec.hosts"
}

func (k *checker) checkRoles() {
	known := make([]string, len(k.Hosts))
	for i, h := range k.Hosts {
		known[i] = h.Name
		if len(h.Roles) == 0 {
			k.errs = append(k.errs, Error{Path: hostPath(i), Value: h.Name, Msg: "has no role", Allowed: []string{"master", "etcd", "worker", "registry"}})
		}
	}
	for _, g := range groupsOf(k.RoleGroups) {
		for i, entry := range g.hosts {
			path := fmt.Sprintf("spec.roleGroups.%s[%d]", g.role, i)
			hosts, err := expand(entry)
			if err != nil {
				k.fail(path, entry, "%v", err)
			}
			for _, name := range hosts {
				if slices.Contains(known, name) {
					continue
				}
				e := Error{Path: path, Value: name, Msg: "no such host"}
				if name == entry { // not out of a range
					e.Suggestion = Nearest(name, known)
				}
				k.errs = append(k.errs, e)
			}
		}
	}
}

// checkTopology holds the deployment matrix: which kinds and numbers of masters
// and etcd members go together.
func (k *checker) checkTopology() {
	external := k.Etcd.Type == v1alpha1.TypeExternal
	switch n := len(k.masters); {
	case n == 0:
		k.fail(k.rolePath("master"), "", "no host has the role master")
	case n == 2:
		k.warn(k.rolePath("master"), "", "2 masters survive no failure; use 1, or 3 or more: a cluster of 2 is not created, only left while one is exchanged")
	}
	if len(hostsWith(k.Spec, v1alpha1.RoleWorker)) == 0 {
		k.warn(k.rolePath("worker"), "", "no host has the role worker: ordinary pods will not start")
	}
	switch n := len(k.members); {
	case n == 0 && !external:
		k.fail(k.rolePath("etcd"), "", "no host has the role etcd")
	case n > 0 && external:
		k.fail(k.rolePath("etcd"), "", "with etcd.type external no host has the role etcd")
	case n > 0 && n%2 == 0:
		k.warn(k.rolePath("etcd"), "", "%d etcd members survive no more failures than %d", n, n-1)
	}
	if k.Etcd.Type == v1alpha1.TypeKubeadm {
		if k.Kubernetes.Type != v1alpha1.TypeKubeadm {
			k.fail("spec.etcd.type", k.Etcd.Type, "needs kubernetes.type kubeadm, is %s", k.Kubernetes.Type)
		}
		if len(k.members) > 0 && !slices.Equal(k.masters, k.members) {
			k.fail(k.rolePath("etcd"), "", "with etcd.type kubeadm the masters and only they have the role etcd; leave the role out")
		}
	}
	if external && k.Etcd.External == nil {
		k.fail("spec.etcd.external", "", "required with etcd.type external")
	} else if !external && k.Etcd.External != nil {
		k.fail("spec.etcd.external", "", "only with etcd.type external, is %s", k.Etcd.Type)
	}
}

package config

import (
	"cmp"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/plugin"
)

// Default fills in everything that was left open and that can be known without
// asking the hosts: each host gets all its roles and connection fields, versions
// start with v, "~/" is the home directory. Hosts without a bastion of their own
// share the pointer to the global one. What stays open is decided by facts,
// hosts[].arch and kubernetes.proxyMode, or by who runs an external etcd. The zone may come from KXZONE.
func Default(c *v1alpha1.Cluster) {
	s := &c.Spec
	resolveRoles(s)
	finishConnection(&s.Global, nil)
	for i := range s.Hosts {
		h := &s.Hosts[i]
		inherit(&h.Connection, s.Global)
		finishConnection(&h.Connection, s.Global.Bastion)
		if _, err := netip.ParseAddr(h.Address); err == nil && h.InternalAddress == "" {
			h.InternalAddress = h.Address
		}
	}
	defaultNetworks(s)
	dataDir := s.Etcd.DataDir
	setDefaults(reflect.ValueOf(c).Elem())
	if s.Etcd.Type == v1alpha1.TypeExternal { // kubexm has no directory there
		s.Etcd.DataDir = dataDir
	}
	if x := s.Etcd.External; x != nil {
		x.CAFile, x.CertFile, x.KeyFile = expandHome(x.CAFile), expandHome(x.CertFile), expandHome(x.KeyFile)
	}
	for key, a := range s.Source.Access {
		a.CAFile = expandHome(a.CAFile)
		s.Source.Access[key] = a
	}
	for _, t := range s.Backup.Targets {
		if t.SFTP != nil {
			t.SFTP.PrivateKeyPath = expandHome(t.SFTP.PrivateKeyPath)
		}
	}
	defaultAddons(s.Addons)
	defaultVersions(s)
	defaultTimers(&s.Etcd)
	defaultLoadBalancer(s)
	defaultRegistry(s)
	for _, p := range plugin.Of(s) {
		if p.Default != nil {
			p.Default(s)
		}
	}
	for _, p := range plugin.All() {
		if v := p.Version.In(s); v != nil {
			*v = withV(cmp.Or(*v, p.Parts[0].Version))
		}
	}
	if all := plugin.StoragesOf(s); len(all) == 1 {
		s.Storage.Default = cmp.Or(s.Storage.Default, all[0].Name)
	}
	if s.Source.Zone == "" {
		s.Source.Zone = os.Getenv("KXZONE")
	}
}

// defaultAddons completes addons that are known by their names, and finds files.
func defaultAddons(addons []v1alpha1.Addon) {
	for i := range addons {
		a := &addons[i]
		if c, ok := plugin.KnownChart(*a); ok {
			a.Type, a.Chart, a.Repository = v1alpha1.AddonHelm, c.Name, c.Repository
			a.Version, a.Namespace = cmp.Or(a.Version, c.Version), cmp.Or(a.Namespace, c.Namespace)
		}
		a.Chart = expandHome(a.Chart)
		for _, files := range [][]string{a.Files, a.ValuesFiles} {
			for i, f := range files {
				files[i] = expandHome(f)
			}
		}
	}
}

func defaultVersions(s *v1alpha1.Spec) {
	s.Kubernetes.Version = withV(cmp.Or(s.Kubernetes.Version, DefaultKubernetes()))
	if s.Etcd.Type != v1alpha1.TypeExternal {
		s.Etcd.Version = withV(cmp.Or(s.Etcd.Version, EtcdFor(s, s.Kubernetes.Version)))
	}
}

func defaultTimers(e *v1alpha1.Etcd) {
	if b := &e.AutoBackup; *b.Enabled {
		b.Schedule, b.Dir, b.Keep = cmp.Or(b.Schedule, "*-*-* 02:00:00"), cmp.Or(b.Dir, "/var/backups/kube_etcd"), cmp.Or(b.Keep, 6)
	}
	if d := &e.AutoDefrag; d.Enabled {
		d.Schedule = cmp.Or(d.Schedule, "Sun *-*-* 03:30:00")
	}
}

// EtcdFor is the version of etcd that a cluster has with a version of Kubernetes, if none is written; empty: kubexm runs none.
func EtcdFor(s *v1alpha1.Spec, kubernetes string) string {
	if s.Etcd.Type == v1alpha1.TypeExternal {
		return ""
	}
	v := VersionsFor(kubernetes)
	if s.Etcd.Type == v1alpha1.TypeKubeadm {
		return v.EtcdImage
	}
	return v.Etcd
}

func defaultLoadBalancer(s *v1alpha1.Spec) {
	lb := &s.LoadBalancer
	if lb.Enabled == nil {
		lb.Enabled = new(len(hostsWith(s, v1alpha1.RoleMaster)) > 1)
	}
	if !*lb.Enabled {
		return
	}
	lb.Mode = cmp.Or(lb.Mode, v1alpha1.BalancerInternal)
	switch lb.Mode {
	case v1alpha1.BalancerInternal:
		lb.Internal = cmp.Or(lb.Internal, &v1alpha1.InternalLoadBalancer{})
		lb.Internal.Type = cmp.Or(lb.Internal.Type, plugin.Proxies()[0].Name)
	case v1alpha1.BalancerExternal:
		lb.External = cmp.Or(lb.External, &v1alpha1.ExternalLoadBalancer{})
		lb.External.Type = cmp.Or(lb.External.Type, plugin.Proxies()[0].External)
	}
}

func defaultRegistry(s *v1alpha1.Spec) {
	if len(hostsWith(s, v1alpha1.RoleRegistry)) > 0 {
		s.Registry = cmp.Or(s.Registry, &v1alpha1.Registry{})
		r := s.Registry
		r.Type = cmp.Or(r.Type, plugin.Registries()[0].Name)
		r.PrivateRegistry = cmp.Or(r.PrivateRegistry, "registry.kubexm.local")
		r.DataDir = cmp.Or(r.DataDir, plugin.RegistryOf(s).DataDir)
	}
	if s.Registry == nil {
		return
	}
	for name, a := range s.Registry.Auth {
		a.CAFile = expandHome(a.CAFile)
		s.Registry.Auth[name] = a
	}
}

var bareVersion = regexp.MustCompile(`^\d+\.\d+`)

func withV(version string) string {
	if bareVersion.MatchString(version) {
		return "v" + version
	}
	return version
}

// inherit gives a host what it does not say about its connection itself.
func inherit(c *v1alpha1.Connection, global v1alpha1.Connection) {
	inheritCredentials(&c.Credentials, global.Credentials)
	if c.SudoPassword.IsZero() && c.SudoPasswordFrom == nil {
		c.SudoPassword, c.SudoPasswordFrom = global.SudoPassword, global.SudoPasswordFrom
	}
	c.Bastion = cmp.Or(c.Bastion, global.Bastion)
	c.HostKeyPolicy = cmp.Or(c.HostKeyPolicy, global.HostKeyPolicy)
	c.Timeouts.Connect = cmp.Or(c.Timeouts.Connect, global.Timeouts.Connect)
	c.Timeouts.KeepAlive = cmp.Or(c.Timeouts.KeepAlive, global.Timeouts.KeepAlive)
}

// inheritCredentials takes over pairs of a secret and its source only together.
func inheritCredentials(c *v1alpha1.Credentials, from v1alpha1.Credentials) {
	c.User, c.Port = cmp.Or(c.User, from.User), cmp.Or(c.Port, from.Port)
	if c.PrivateKeyPath == "" {
		c.PrivateKeyPath = from.PrivateKeyPath
		if c.Passphrase.IsZero() && c.PassphraseFrom == nil {
			c.Passphrase, c.PassphraseFrom = from.Passphrase, from.PassphraseFrom
		}
	}
	if c.Password.IsZero() && c.PasswordFrom == nil {
		c.Password, c.PasswordFrom = from.Password, from.PasswordFrom
	}
}

// finishConnection completes the paths of keys, and the bastion unless it is
// the one shared by all hosts. User and key of
// the bastion are those of the connection; a password never goes to another
// machine than the one it is given for.
func finishConnection(c *v1alpha1.Connection, shared *v1alpha1.Bastion) {
	c.PrivateKeyPath = expandHome(c.PrivateKeyPath)
	b := c.Bastion
	if b == nil || b == shared {
		return
	}
	b.PrivateKeyPath = expandHome(b.PrivateKeyPath)
	inheritCredentials(&b.Credentials, v1alpha1.Credentials{
		User: c.User, PrivateKeyPath: c.PrivateKeyPath, Passphrase: c.Passphrase, PassphraseFrom: c.PassphraseFrom,
	})
}

func expandHome(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

func hostsWith(s *v1alpha1.Spec, r v1alpha1.Role) []string {
	var all []string
	for i := range s.Hosts {
		if s.Hosts[i].Is(r) {
			all = append(all, s.Hosts[i].Name)
		}
	}
	return all
}

package cluster

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/resource/registry"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// RegistryUser is who nodes are to the private registry, unless the configuration says so, or it has another from the beginning.
const RegistryUser = "kubexm"

// registryPusher is who pushes images to a registry that has a service of its own for that.
const registryPusher = "push"

// InDocker reports whether a host runs the private registry in Docker, which is not kubexm's, nor is its container runtime.
func InDocker(s *v1alpha1.Spec, h *v1alpha1.Host) bool {
	return h.Is(v1alpha1.RoleRegistry) && plugin.RegistryOf(s).Docker
}

// RegistryHost is the host of the private registry; empty: there is none.
func (c *Cluster) RegistryHost() string {
	if hosts := c.Hosts(v1alpha1.RoleRegistry); len(hosts) > 0 {
		return hosts[0]
	}
	return ""
}

// RegistryDomain is the name of the private registry without its port.
func (c *Cluster) RegistryDomain() string {
	domain, _ := config.SplitRegistry(c.Spec.Registry.PrivateRegistry)
	return domain
}

// RegistryPort is where the private registry listens.
func (c *Cluster) RegistryPort() int {
	_, port := config.SplitRegistry(c.Spec.Registry.PrivateRegistry)
	return port
}

// RegistryLogin is what nodes log in to the private registry with.
func (c *Cluster) RegistryLogin() (user string, password secret.Secret) {
	if a := c.Spec.Registry.Auth[c.Spec.Registry.PrivateRegistry]; a.Username != "" {
		return a.Username, a.Password
	}
	user = cmp.Or(plugin.RegistryOf(c.Spec).User, RegistryUser)
	password, err := c.Certs.Password(pki.Registry, user)
	c.Check(err)
	return user, password
}

// RegistryPusher is what kubexm itself logs in with to push images.
func (c *Cluster) RegistryPusher() (user string, password secret.Secret) {
	if plugin.RegistryOf(c.Spec).Push == 0 {
		return c.RegistryLogin()
	}
	password, err := c.Certs.Password(pki.Registry, registryPusher)
	c.Check(err)
	return registryPusher, password
}

// RegistryCert describes the serving certificate of the private registry.
func (c *Cluster) RegistryCert() pki.Spec {
	host := c.RegistryHost()
	return pki.RegistryServer(host, c.RegistryDomain(), c.Addresses(host))
}

// Registry is how the private registry is reached, from its host or a node.
func (c *Cluster) Registry() registry.Private {
	user, password := c.RegistryLogin()
	kind := plugin.RegistryOf(c.Spec)
	return registry.Private{
		Name: c.Spec.Registry.PrivateRegistry, Address: net.JoinHostPort(c.IP(c.RegistryHost()), strconv.Itoa(c.RegistryPort())),
		CA: c.Trust(pki.Registry), User: user, Password: password, Kind: kind.Name, Unit: kind.Unit,
	}
}

// RegistryPush is how images are pushed to the private registry: from its host alone, where it has a service for that.
func (c *Cluster) RegistryPush() registry.Private {
	p := c.Registry()
	if kind := plugin.RegistryOf(c.Spec); kind.Push != 0 {
		p.Address, p.Unit = net.JoinHostPort("127.0.0.1", strconv.Itoa(kind.Push)), kind.PushUnit()
		p.User, p.Password = c.RegistryPusher()
	}
	return p
}

// AllImages are the images that some node must have, each once.
func (c *Cluster) AllImages() (all []string) {
	for _, h := range c.Nodes() {
		for _, ref := range c.Images(h) {
			if !slices.Contains(all, ref) {
				all = append(all, ref)
			}
		}
	}
	return all
}

// wellKnown are the registries that most images are named after.
var wellKnown = []string{"docker.io", "gcr.io", "ghcr.io", "quay.io", "registry.k8s.io"}

// Upstreams are the registries whose images nodes ask the private registry for, sorted: those that the images of the
// cluster are named after, those that have mirrors, and the well-known ones, as anything in the store can be pushed.
func (c *Cluster) Upstreams() []string {
	all := slices.AppendSeq(slices.Clone(wellKnown), maps.Keys(c.Spec.Registry.Mirrors))
	for _, ref := range c.AllImages() {
		name, _, _ := strings.Cut(ref, "/")
		all = append(all, name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

package cluster

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/resource/registry"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// ImageSource is where a node asks for images of a registry: there, at a mirror, or at the private registry.
type ImageSource struct {
	Registry string // its name, with its port
	Path     string // that images lie below; empty: none
	Plain    bool   // it speaks plain HTTP
	Insecure bool   // any certificate is believed, and plain HTTP is tried after TLS
	CA       bool   // RegistryCAs has its authority
	User     string // empty: nobody logs in
	Password secret.Secret
}

// ImageRegistry is a registry that nodes are told about.
type ImageRegistry struct {
	Name    string
	Sources []ImageSource // in order
}

// ImageRegistries are those, by their names.
func (c *Cluster) ImageRegistries() (all []ImageRegistry) {
	conf := c.registries()
	names := slices.Concat(slices.Collect(maps.Keys(conf.Mirrors)), slices.Collect(maps.Keys(conf.Auth)), conf.Insecure)
	var upstreams []string // of the private registry
	if c.RegistryHost() != "" {
		upstreams = c.Upstreams()
		names = append(append(names, upstreams...), conf.PrivateRegistry)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		all = append(all, ImageRegistry{name, c.ImageSources(name, slices.Contains(upstreams, name))})
	}
	return all
}

// Login is the user with the password, as HTTP has it (RFC 7617); empty: nobody logs in.
func (s ImageSource) Login() string {
	if s.User == "" {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(s.User + ":" + s.Password.Reveal()))
}

// Logins are those of the registries and mirrors that nodes are told about, as Docker and the kubelet read them; any: there are some.
func (c *Cluster) Logins() (text []byte, any bool) {
	all := map[string]map[string]string{}
	for _, r := range c.ImageRegistries() {
		for _, from := range r.Sources {
			if login := from.Login(); login != "" {
				all[from.Registry] = map[string]string{"auth": login}
			}
		}
	}
	text, err := json.Marshal(map[string]map[string]map[string]string{"auths": all})
	c.Check(err)
	return append(text, '\n'), len(all) > 0
}

// RegistryCAs are the authorities of registries that are not among those of every system, by the names of the registries.
func (c *Cluster) RegistryCAs() map[string][]byte {
	all := map[string][]byte{}
	for name, a := range c.registries().Auth {
		if a.CAFile != "" {
			text, err := os.ReadFile(a.CAFile)
			c.Check(err)
			all[name] = text
		}
	}
	if c.RegistryHost() != "" {
		all[c.Spec.Registry.PrivateRegistry] = c.Trust(pki.Registry)
	}
	return all
}

// ImageSources are where a node asks for the images of a registry: in the private registry, if it is an upstream of that, at mirrors, and there
// itself, unless nothing is to be fetched and there is another.
func (c *Cluster) ImageSources(name string, upstream bool) (all []ImageSource) {
	conf := c.registries()
	if c.RegistryHost() != "" {
		private := c.Registry()
		p := ImageSource{Registry: private.Name, CA: true, User: private.User, Password: private.Password}
		if name == private.Name {
			return []ImageSource{p}
		}
		if upstream {
			p.Path = registry.RepositoryName(name)
			all = append(all, p)
		}
	}
	for _, m := range conf.Mirrors[name] {
		u, err := url.Parse(m)
		if err != nil {
			c.Check(fmt.Errorf("spec.registry.mirrors[%s]: %w", name, err))
			continue
		}
		p := c.source(u.Host, u.Scheme == "http")
		p.Path = strings.TrimPrefix(strings.Trim(u.Path, "/"), "v2/")
		all = append(all, p)
	}
	if len(all) == 0 || !c.Spec.Source.Offline {
		all = append(all, c.source(name, slices.Contains(conf.Insecure, name)))
	}
	return all
}

// source is a registry with what the configuration says of it.
func (c *Cluster) source(name string, plain bool) ImageSource {
	conf := c.registries()
	a := conf.Auth[name]
	return ImageSource{Registry: name, Plain: plain, Insecure: slices.Contains(conf.Insecure, name), CA: a.CAFile != "", User: a.Username, Password: a.Password}
}

func (c *Cluster) registries() v1alpha1.Registry {
	if c.Spec.Registry == nil {
		return v1alpha1.Registry{}
	}
	return *c.Spec.Registry
}

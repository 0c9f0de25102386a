package containerd

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/resource/registry"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
)

// certsDir is where containerd of either format finds how to reach registries: config_path.
const certsDir = "/etc/containerd/certs.d/"

// place is where containerd asks for images of a registry.
type place struct {
	URL           string
	Override      bool   // its path takes the place of /v2
	CA            string // file on the node
	Insecure      bool   // containerd tries TLS and believes any certificate, then plain HTTP
	Authorization string // header; registries that want a token get it with this, too
}

// Registries tells containerd where to get images, and with what login: what stands there is read at each pull. What
// kubexm has written of registries that the configuration has no more goes, also when it has none at all.
//
// Facts: https://github.com/containerd/containerd/blob/main/docs/hosts.md
func Registries(c *cluster.Cluster) step.Files {
	conf := c.Spec.Registry
	if conf == nil {
		conf = &v1alpha1.Registry{}
	}
	names := slices.Concat(slices.Collect(maps.Keys(conf.Mirrors)), slices.Collect(maps.Keys(conf.Auth)), conf.Insecure)
	var files []step.File
	var upstreams []string // of the private registry
	if c.RegistryHost() != "" {
		upstreams = c.Upstreams()
		names = append(append(names, upstreams...), conf.PrivateRegistry)
		files = append(files, step.File{Path: caFile(conf.PrivateRegistry), Content: c.Trust(pki.Registry), Mode: 0o644})
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if ca := conf.Auth[name].CAFile; ca != "" {
			text, err := os.ReadFile(ca)
			c.Check(err)
			files = append(files, step.File{Path: caFile(name), Content: text, Mode: 0o644})
		}
		files = append(files, hostsFile(name, places(c, name, slices.Contains(upstreams, name))))
	}
	return step.Files{What: "registries", List: files, Also: []step.Command{forgotten(files)}}
}

// forgotten removes what kubexm has written of registries that the configuration has no more.
func forgotten(files []step.File) step.Command {
	var keep strings.Builder
	for _, f := range files {
		keep.WriteString(" " + f.Path) // of letters, digits, dots, hyphens and a colon
	}
	const each = `for f in ` + certsDir + `*/hosts.toml; do case '%s ' in *" $f "*) ;; *) if grep -qx '# Made by kubexm.' "$f" 2>/dev/null; then %s; fi;; esac; done`
	return step.Command{
		What:   "no other registries",
		Unless: fmt.Sprintf(each, keep.String(), "exit 1"),
		Run:    fmt.Sprintf(each, keep.String(), `rm -f "$f" "${f%/*}/ca.crt"; rmdir "${f%/*}" 2>/dev/null || true`),
	}
}

func caFile(registry string) string { return certsDir + registry + "/ca.crt" }

// hostsFile lists places for the images of a registry, in order: containerd asks the one named server last.
func hostsFile(registry string, all []place) step.File {
	last := len(all) - 1
	f := step.File{Path: certsDir + registry + "/hosts.toml", Mode: 0o644}
	f.Content = templates.Render("containerd/hosts", struct {
		First []place
		Last  place
	}{all[:last], all[last]})
	if slices.ContainsFunc(all, func(p place) bool { return p.Authorization != "" }) {
		f.Mode = 0o600
	}
	return f
}

// places are where the images of a registry are asked for: in the private registry, if it is an upstream of that, at mirrors, and there itself, unless
// nothing is to be fetched and there is another.
func places(c *cluster.Cluster, name string, upstream bool) (all []place) {
	conf := c.Spec.Registry
	if c.RegistryHost() != "" {
		private := c.Registry()
		p := place{URL: "https://" + private.Name, CA: caFile(private.Name), Authorization: basic(private.User, private.Password.Reveal())}
		if name == private.Name {
			return []place{p}
		}
		if upstream {
			p.URL, p.Override = p.URL+"/v2/"+registry.RepositoryName(name), true
			all = append(all, p)
		}
	}
	for _, m := range conf.Mirrors[name] {
		u, err := url.Parse(m)
		if err != nil {
			c.Check(fmt.Errorf("spec.registry.mirrors[%s]: %w", name, err))
			continue
		}
		p := known(c, u.Host, u.Scheme)
		if path := strings.Trim(u.Path, "/"); path != "" {
			p.URL, p.Override = p.URL+"/v2/"+strings.TrimPrefix(path, "v2/"), true
		}
		all = append(all, p)
	}
	if len(all) == 0 || !c.Spec.Source.Offline {
		scheme := "https"
		if slices.Contains(conf.Insecure, name) {
			scheme = "http"
		}
		self := known(c, name, scheme)
		if name == "docker.io" {
			self.URL = scheme + "://registry-1.docker.io"
		}
		all = append(all, self)
	}
	return all
}

// known is a registry with what the configuration says of it.
func known(c *cluster.Cluster, name, scheme string) place {
	p := place{URL: scheme + "://" + name, Insecure: slices.Contains(c.Spec.Registry.Insecure, name)}
	a := c.Spec.Registry.Auth[name]
	if a.CAFile != "" {
		p.CA = caFile(name)
	}
	if a.Username != "" {
		p.Authorization = basic(a.Username, a.Password.Reveal())
	}
	return p
}

// basic is the header of a login (RFC 7617).
func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

package containerd

import (
	"maps"
	"slices"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
)

// place is where containerd asks for images of a registry.
type place struct {
	URL           string
	Override      bool   // its path takes the place of /v2
	CA            string // file on the node
	Insecure      bool   // containerd tries TLS and believes any certificate, then plain HTTP
	Authorization string // header; registries that want a token get it with this, too
}

// Registries tells containerd, or a runtime that has one below it, where to get images, and with what login: what stands there is read at each pull. What
// kubexm has written of registries that the configuration has no more goes, also when it has none at all.
//
// Facts: https://github.com/containerd/containerd/blob/main/docs/hosts.md
func Registries(c *cluster.Cluster) step.Files {
	var files []step.File
	dir := hostsDir(plugin.RuntimeOf(c.Spec).Hosts)
	cas := c.RegistryCAs()
	for _, name := range slices.Sorted(maps.Keys(cas)) {
		files = append(files, step.File{Path: dir.ca(name), Content: cas[name], Mode: 0o644})
	}
	for _, r := range c.ImageRegistries() {
		files = append(files, dir.hosts(r.Name, r.Sources))
	}
	return step.Files{What: "registries", List: files, Also: []step.Command{
		step.Forgotten("no other registries", string(dir)+"*/hosts.toml", files, `grep -qx '# Made by kubexm.' "$f" 2>/dev/null`, `rm -f "$f" "${f%/*}/ca.crt"; rmdir "${f%/*}" 2>/dev/null || true`),
	}}
}

// hostsDir is the directory that has one for each registry.
type hostsDir string

func (d hostsDir) ca(registry string) string { return string(d) + registry + "/ca.crt" }

// hosts lists the sources of a registry's images, in order: containerd asks the one named server last.
func (d hostsDir) hosts(registry string, sources []cluster.ImageSource) step.File {
	all := d.places(sources)
	last := len(all) - 1
	f := step.File{Path: string(d) + registry + "/hosts.toml", Mode: 0o644}
	f.Content = templates.Render("containerd/hosts", struct {
		First []place
		Last  place
	}{all[:last], all[last]})
	if slices.ContainsFunc(all, func(p place) bool { return p.Authorization != "" }) {
		f.Mode = 0o600
	}
	return f
}

// places are where the images of a registry are asked for.
func (d hostsDir) places(sources []cluster.ImageSource) (all []place) {
	for _, from := range sources {
		host, scheme := from.Registry, "https"
		if from.Plain {
			scheme = "http"
		}
		if host == "docker.io" {
			host = "registry-1.docker.io"
		}
		p := place{URL: scheme + "://" + host, Insecure: from.Insecure}
		if from.Path != "" {
			p.URL, p.Override = p.URL+"/v2/"+from.Path, true
		}
		if from.CA {
			p.CA = d.ca(from.Registry)
		}
		if login := from.Login(); login != "" {
			p.Authorization = "Basic " + login
		}
		all = append(all, p)
	}
	return all
}

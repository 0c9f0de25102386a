package crio

import (
	"maps"
	"slices"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
)

const (
	certsDir      = "/etc/containers/certs.d/"
	registriesDir = "/etc/crio/registries.conf.d/"
	registries    = registriesDir + "kubexm.conf"
)

// registry is where CRI-O asks for the images whose names begin with Prefix: at mirrors in their order, and last at the one that it calls the location.
type registry struct {
	Prefix string
	First  []place
	Last   place
}

type place struct {
	Location string
	Insecure bool // CRI-O tries TLS and believes any certificate, then plain HTTP
}

// registryOf has CRI-O ask places in their order.
func registryOf(name string, places []place) registry {
	last := len(places) - 1
	return registry{name, places[:last], places[last]}
}

func places(sources []cluster.ImageSource) (all []place) {
	for _, from := range sources {
		p := place{Location: from.Registry, Insecure: from.Insecure || from.Plain}
		if from.Path != "" {
			p.Location += "/" + from.Path
		}
		all = append(all, p)
	}
	return all
}

// Registries tells CRI-O where to get images, and with what login. It notices by itself when that changes. What kubexm has written of registries that the
// configuration has no more goes, and a mirror that kubexm was before it was killed.
//
// Facts: https://github.com/containers/image/blob/main/docs/containers-registries.conf.5.md,
// https://github.com/containers/image/blob/main/docs/containers-certs.d.5.md and containers-auth.json.5.md
func Registries(c *cluster.Cluster) step.Files {
	var files []step.File
	var all []registry
	for _, r := range c.ImageRegistries() {
		all = append(all, registryOf(r.Name, places(r.Sources)))
	}
	logins, _ := c.Logins()
	files = append(files,
		step.File{Path: registries, Content: templates.Render("crio/registries", all), Mode: 0o644},
		step.File{Path: "/etc/crio/auth.json", Content: logins, Mode: 0o600})
	cas := c.RegistryCAs()
	for _, name := range slices.Sorted(maps.Keys(cas)) {
		files = append(files, step.File{Path: certsDir + name + "/kubexm.crt", Content: cas[name], Mode: 0o644})
	}
	return step.Files{What: "registries", List: files, Also: []step.Command{
		step.Forgotten("no other registries", certsDir+"*/kubexm.crt "+mirrors, files, `[ -e "$f" ]`, `rm -f "$f"; rmdir "${f%/*}" 2>/dev/null || true`),
	}}
}

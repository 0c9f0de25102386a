package crio

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	logins := map[string]map[string]string{}
	for _, name := range c.RegistryNames() {
		sources := c.ImageSources(name)
		all = append(all, registryOf(name, places(sources)))
		for _, from := range sources {
			if from.User != "" {
				logins[from.Registry] = map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(from.User + ":" + from.Password.Reveal()))}
			}
		}
	}
	auth, err := json.Marshal(map[string]any{"auths": logins})
	c.Check(err)
	files = append(files,
		step.File{Path: registries, Content: templates.Render("crio/registries", all), Mode: 0o644},
		step.File{Path: "/etc/crio/auth.json", Content: append(auth, '\n'), Mode: 0o600})
	cas := c.RegistryCAs()
	var keep strings.Builder
	for _, name := range slices.Sorted(maps.Keys(cas)) {
		f := step.File{Path: certsDir + name + "/kubexm.crt", Content: cas[name], Mode: 0o644}
		files = append(files, f)
		keep.WriteString(" " + f.Path) // of letters, digits, dots, hyphens and a colon
	}
	const each = `for f in ` + certsDir + `*/kubexm.crt ` + mirrors + `; do case '%s ' in *" $f "*) ;; *) if [ -e "$f" ]; then %s; fi;; esac; done`
	return step.Files{What: "registries", List: files, Also: []step.Command{{
		What:   "no other registries",
		Unless: fmt.Sprintf(each, keep.String(), "exit 1"),
		Run:    fmt.Sprintf(each, keep.String(), `rm -f "$f"; rmdir "${f%/*}" 2>/dev/null || true`),
	}}}
}

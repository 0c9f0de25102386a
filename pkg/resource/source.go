package resource

import (
	"net/http"
	"strings"
)

// Source says where files and images are fetched from. Tried in order: the
// user's mirror, the mirror of the zone, the original.
type Source struct {
	Zone      string            // a key of zones; empty: $KXZONE
	Mirrors   map[string]string // URL prefix to URL prefix, or registry to registry ("http://host/path": without TLS); the longest wins
	Access    map[string]Access // how to get at what a URL prefix, or a registry, covers; the longest wins
	Offline   bool              // fetch nothing: what is missing in the store is an error
	Transport *http.Transport   // nil: one that honours HTTPS_PROXY, HTTP_PROXY and NO_PROXY
}

// zones are the mirrors known to be near to users of a zone. DaoCloud's are
// caching proxies of the named hosts: https://github.com/DaoCloud/public-image-mirror
// and https://github.com/DaoCloud/public-binary-files-mirror. Packages of operating systems: https://developer.aliyun.com/mirror.
var zones = map[string]map[string]string{
	"": nil,
	"cn": {
		"https://dl.k8s.io/":                   "https://files.m.daocloud.io/dl.k8s.io/",
		"https://github.com/":                  "https://files.m.daocloud.io/github.com/",
		"https://get.helm.sh/":                 "https://files.m.daocloud.io/get.helm.sh/",
		"https://storage.googleapis.com/":      "https://files.m.daocloud.io/storage.googleapis.com/",
		"http://deb.debian.org/":               "https://mirrors.aliyun.com/",
		"http://archive.ubuntu.com/":           "https://mirrors.aliyun.com/",
		"http://ports.ubuntu.com/":             "https://mirrors.aliyun.com/",
		"https://vault.centos.org/":            "https://mirrors.aliyun.com/centos-vault/",
		"https://dl.rockylinux.org/pub/rocky/": "https://mirrors.aliyun.com/rockylinux/",
		"https://repo.almalinux.org/":          "https://mirrors.aliyun.com/",
		"https://repo.openeuler.org/":          "https://mirrors.aliyun.com/openeuler/",
		"docker.io":                            "m.daocloud.io/docker.io",
		"gcr.io":                               "m.daocloud.io/gcr.io",
		"ghcr.io":                              "m.daocloud.io/ghcr.io",
		"quay.io":                              "m.daocloud.io/quay.io",
		"registry.k8s.io":                      "m.daocloud.io/registry.k8s.io",
	},
}

// places returns where to look for a URL or an image reference, in order.
func (s Source) places(original string) []string {
	var out []string
	for _, rules := range []map[string]string{s.Mirrors, zones[s.Zone]} {
		best := ""
		for from := range rules {
			rest, ok := strings.CutPrefix(original, from)
			if ok && len(from) > len(best) && (strings.HasSuffix(from, "/") || strings.HasPrefix(rest, "/")) {
				best = from
			}
		}
		if best != "" {
			out = append(out, strings.TrimRight(rules[best], "/")+"/"+strings.TrimLeft(original[len(best):], "/"))
		}
	}
	return append(out, original)
}

// Package source reaches the servers that files, images and packages are fetched from: mirrors before the original, by
// way of proxies, with logins, and with patience.
package source

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Config says where files and images are fetched from. Tried in order: the
// user's mirror, the mirror of the zone, the original.
type Config struct {
	Zone      string            // whose mirrors to take: "cn"; empty: $KXZONE, or none
	Mirrors   map[string]string // URL prefix to URL prefix, or registry to registry ("http://host/path": without TLS); the longest wins
	Access    map[string]Access // how to get at what a URL prefix, or a registry, covers; the longest wins
	Insecure  bool              // a mirror may redirect from https to http
	Signed    bool              // refuse files without the signature that their publisher makes
	Offline   bool              // fetch nothing: what is missing in the store is an error; no login is read
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
		"https://download.docker.com/":         "https://mirrors.aliyun.com/docker-ce/",
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

// Client reaches what a Config names. It is safe for concurrent use.
type Client struct {
	Config // as New got it; Zone and Transport are filled in
	doors  doors
}

// New returns a client. It makes no connection yet; the error is of an unknown zone, of an entry of Access, or of docker's logins.
func New(c Config) (*Client, error) {
	if c.Zone == "" {
		c.Zone = os.Getenv("KXZONE")
	}
	if _, ok := zones[c.Zone]; !ok {
		known := slices.DeleteFunc(slices.Sorted(maps.Keys(zones)), func(z string) bool { return z == "" })
		return nil, fault.Advise(fmt.Errorf("unknown source zone %q", c.Zone),
			"leave spec.source.zone and KXZONE empty or use one of: "+strings.Join(known, ", "))
	}
	if c.Transport == nil {
		c.Transport = newTransport()
	}
	all, err := newDoors(c)
	if err != nil {
		return nil, err
	}
	return &Client{c, all}, nil
}

// HTTP is what asks for files at a URL.
func (c *Client) HTTP(url string) *http.Client { return c.doors.to(url).client }

// Registry is what asks a registry for a repository ("https://registry.example.org/name"). It logs in as the registry wants it, and
// makes of answers that another try may cure the errors that Get makes of them.
func (c *Client) Registry(repository string) remote.Client {
	return registryClient{c.doors.to(repository).images}
}

// Place is where something is looked for.
type Place struct {
	URL   string // or the reference of an image
	Entry string // of the configuration that names this mirror; empty: it is the original
	zone  bool   // it is a mirror of the zone: others than the user chose it
}

// Original reports whether the place is no mirror.
func (p Place) Original() bool { return p.Entry == "" }

// Own reports whether the place is a mirror that the user has named, and not one of a zone.
func (p Place) Own() bool { return p.Entry != "" && !p.zone }

// Zone reports whether the place is a mirror of a zone.
func (p Place) Zone() bool { return p.zone }

// SumPlaces returns where to look for a checksum: as Places, but with the publisher before a mirror of the zone, which could make up a checksum
// for whatever it serves. A mirror of the user's own may serve what the user has built.
func (c Config) SumPlaces(original string) []Place {
	all := c.Places(original)
	slices.SortStableFunc(all, func(a, b Place) int {
		switch {
		case a.zone == b.zone:
			return 0
		case a.zone:
			return 1
		}
		return -1
	})
	return all
}

// Places returns where to look for a URL or an image reference, in order.
func (c Config) Places(original string) []Place {
	var out []Place
	for i, rules := range []map[string]string{c.Mirrors, zones[c.Zone]} {
		best := ""
		for from := range rules {
			rest, ok := strings.CutPrefix(original, from)
			if ok && len(from) > len(best) && (strings.HasSuffix(from, "/") || strings.HasPrefix(rest, "/")) {
				best = from
			}
		}
		if best != "" {
			url := strings.TrimRight(rules[best], "/") + "/" + strings.TrimLeft(original[len(best):], "/")
			out = append(out, Place{url, []string{fmt.Sprintf("spec.source.mirrors[%q]", best), fmt.Sprintf("spec.source.zone (or KXZONE) %s", c.Zone)}[i], i == 1})
		}
	}
	return append(out, Place{URL: original})
}

// Redacted returns a URL as it may be shown: without a password.
func Redacted(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}

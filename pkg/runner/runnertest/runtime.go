package runnertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/kubexm/kubexm/pkg/plugin"
)

// startContainerd makes containerd's socket.
func startContainerd(h *Host) error {
	if !h.fs.exists("/etc/containerd/config.toml") {
		return errors.New("failed to load TOML: /etc/containerd/config.toml: no such file or directory")
	}
	h.put(plugin.Runtimes()[0].Socket, "", 0o660)
	return nil
}

const (
	crioConf       = "/etc/crio/crio.conf.d/10-kubexm.conf"
	crioPinned     = "/etc/crio/crio.conf.d/20-kubexm-images.conf"
	crioRegistries = "/etc/crio/registries.conf.d/kubexm.conf"
	crioMirrors    = "/etc/crio/registries.conf.d/kubexm.store.conf"
)

// startCRIO makes CRI-O's socket.
func startCRIO(h *Host) error {
	for _, file := range []string{crioConf, crioRegistries, "/usr/local/bin/conmon", "/usr/local/bin/pinns"} {
		if !h.fs.exists(file) {
			return fmt.Errorf("validating runtime config: %s: no such file or directory", file)
		}
	}
	h.put(plugin.Runtimes()[1].Socket, "", 0o660)
	return reloadCRIO(h)
}

// reloadCRIO has CRI-O know what its files say now. In time it notices by itself what changes of registries, but not as soon as it is needed.
func reloadCRIO(h *Host) error {
	for _, file := range []string{crioPinned, crioMirrors} {
		text, _ := h.Get(file)
		h.put(known(file), text, 0o600)
	}
	return nil
}

// known is where the fake keeps what CRI-O has read of a file.
func known(file string) string { return "/run/crio/known/" + path.Base(file) }

func (h *Host) hasCRIO() bool { return h.fs.exists("/usr/local/bin/crio") }

// listImages is the list of images as crictl has it of CRI-O.
func (c *Call) listImages() int {
	type image struct {
		RepoTags    []string `json:"repoTags"`
		RepoDigests []string `json:"repoDigests"`
		Pinned      bool     `json:"pinned"`
	}
	list := []image{}
	c.mu.Lock()
	images := c.images()
	c.mu.Unlock()
	pinned, _ := c.Get(known(crioPinned))
	for _, name := range sorted(images) {
		digest, _, _ := strings.Cut(images[name], " ")
		list = append(list, image{[]string{name}, []string{name[:strings.LastIndex(name, ":")] + "@" + digest}, strings.Contains(pinned, fmt.Sprintf("%q", name))})
	}
	text, err := json.MarshalIndent(map[string]any{"images": list}, "", "  ")
	if err != nil {
		return c.fail(err)
	}
	c.Printf("%s\n", text)
	return 0
}

// registries are the places that CRI-O asks for images of a registry, as of a hosts.toml: of several files that speak of it the last counts.
func (c *Call) registries(name string) []map[string]string {
	all := []map[string]string{{"server": "https://" + name}}
	var auth struct {
		Auths map[string]struct{ Auth string }
	}
	text, _ := c.Get("/etc/crio/auth.json")
	_ = json.Unmarshal([]byte(text), &auth)
	for _, file := range []string{crioRegistries, known(crioMirrors)} {
		text, _ := c.Get(file)
		for _, section := range strings.Split(text, "\n[[registry]]\n")[1:] {
			if !strings.HasPrefix(section, fmt.Sprintf("prefix = %q\n", name)) {
				continue
			}
			first, mirrors, _ := strings.Cut(section, "\n[[registry.mirror]]\n")
			all = nil
			for _, text := range append(strings.Split(mirrors, "\n[[registry.mirror]]\n"), first) {
				if _, at, ok := strings.Cut(text, "location = \""); ok {
					location, _, _ := strings.Cut(at, "\"")
					host, below, _ := strings.Cut(location, "/")
					p := map[string]string{"server": "https://" + path.Join(host, "v2", below), "override_path": "true", "ca": "/etc/containers/certs.d/" + host + "/kubexm.crt"}
					if strings.Contains(text, "insecure = true") {
						p["server"] = "http" + strings.TrimPrefix(p["server"], "https")
					}
					if login := auth.Auths[host].Auth; login != "" {
						p["Authorization"] = "Basic " + login
					}
					all = append(all, p)
				}
			}
		}
	}
	return all
}

package runnertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/plugin"
)

// startContainerd makes containerd's socket.
func startContainerd(h *Host) error {
	if !h.fs.exists("/etc/containerd/config.toml") {
		return errors.New("failed to load TOML: /etc/containerd/config.toml: no such file or directory")
	}
	h.started.Store(0)
	h.put("/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db", "", 0o600)
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
	h.started.Store(1)
	h.put("/var/lib/crio/storage/storage.lock", "", 0o600)
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

// runtime is the container runtime that was started last.
func (h *Host) runtime() plugin.Runtime { return plugin.Runtimes()[h.started.Load()] }

// startDocker makes Docker's socket.
func startDocker(h *Host) error {
	for _, file := range []string{"/etc/docker/daemon.json", "/usr/local/bin/containerd", "/usr/local/bin/containerd-shim-runc-v2"} {
		if !h.fs.exists(file) {
			return fmt.Errorf("failed to start daemon: %s: no such file or directory", file)
		}
	}
	h.started.Store(2)
	h.put("/var/lib/docker/engine-id", "", 0o600)
	h.put("/run/docker.sock", "", 0o660)
	return nil
}

// startShim makes the socket of the CRI.
func startShim(h *Host) error {
	if !strings.HasPrefix(h.Unit("docker"), "active ") {
		return errors.New("cannot connect to the Docker daemon at unix:///var/run/docker.sock")
	}
	h.put(plugin.Runtimes()[2].Socket, "", 0o660)
	return nil
}

// dockerKeeps lists containers that never run, a line each: name, label and digest of the image.
const dockerKeeps = "/var/lib/docker/keeps"

// docker knows images, and containers that never run.
func docker(c *Call) int {
	if !strings.HasPrefix(c.Unit("docker"), "active ") {
		return c.Failf(1, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?")
	}
	args := slices.DeleteFunc(c.Args[1:], func(a string) bool { return a == "-q" || a == "--no-trunc" || a == "-f" })
	has := func(words string) bool { return strings.HasPrefix(strings.Join(args, " ")+" ", words+" ") }
	last := args[len(args)-1]
	text, _ := c.Get(dockerKeeps)
	keeps := splitLines([]byte(text))
	switch {
	case has("image ls --format"):
		c.mu.Lock()
		defer c.mu.Unlock()
		images := c.images()
		for _, name := range sorted(images) {
			digest, _, _ := strings.Cut(images[name], " ")
			c.Printf("%s\n", strings.NewReplacer("{{.Repository}}:{{.Tag}}", strings.TrimPrefix(strings.TrimPrefix(name, "docker.io/"), "library/"), "{{.ID}}", digest).Replace(last))
		}
	case has("load"):
		b, status := c.input(nil)
		if status != 0 {
			return status
		}
		return c.importImages(b)
	case has("--config /var/lib/kubelet pull"):
		return c.pull(last)
	case has("ps -aq --filter label=kubexm.io/image"):
		for _, l := range keeps {
			name, _, _ := strings.Cut(l, " ")
			c.Printf("%s\n", name)
		}
	case has("inspect --format"):
		for _, l := range keeps {
			if f := strings.Fields(l); slices.Contains(args, f[0]) {
				c.Printf("keeper %s %s\n", f[1], f[2])
			}
		}
	case has("rm"):
		keeps = slices.DeleteFunc(keeps, func(l string) bool { return strings.HasPrefix(l, last+" ") })
		c.put(dockerKeeps, strings.Join(append(keeps, ""), "\n"), 0o600)
	case has("create --name"):
		c.mu.Lock()
		digest, _, is := strings.Cut(c.images()[args[len(args)-2]]+" ", " ")
		c.mu.Unlock()
		if !is || digest == "" {
			return c.Failf(1, "No such image: %s", args[len(args)-2])
		}
		_, label, _ := strings.Cut(args[4], "=")
		c.put(dockerKeeps, strings.Join(append(keeps, args[2]+" "+label+" "+digest, ""), "\n"), 0o600)
		c.changed("keep %s", label)
	default:
		return c.Unknown()
	}
	return 0
}

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

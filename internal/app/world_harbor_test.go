package app_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// What Docker has on a host, one name a line, and where Harbor keeps what it was first started with.
const (
	dockerImages     = "/var/lib/docker/images"
	dockerContainers = "/var/lib/docker/containers"
	harborDatabase   = "/data/harbor/database/admin"
)

// runDocker has the owner of a machine run Docker there, with a container of theirs.
func (w *world) runDocker(h *runnertest.Host) {
	script := "systemctl disable --now firewalld\n"
	for _, name := range []string{"containerd", "docker"} {
		h.Put("/usr/bin/"+name+"d", "ELF", 0o755)
		h.Put("/usr/lib/systemd/system/"+name+".service", "[Service]\nType=notify\nExecStart=/usr/bin/"+name+"d\n[Install]\nWantedBy=multi-user.target\n", 0o644)
		script += "systemctl enable --now " + name + "\n"
	}
	for p, text := range map[string]string{
		"/usr/bin/docker": "ELF", "/etc/containerd/config.toml": "# Docker's\n", "/var/lib/containerd/theirs": "x", "/opt/containerd/bin/x": "",
		"/sys/fs/cgroup/system.slice/containerd.service/cgroup.procs": "4711\n", dockerImages: "busybox:1\n", dockerContainers: "theirs\n",
	} {
		h.Put(p, text, 0o755)
	}
	h.Remove("/opt/containerd/bin/x") // the directory stays
	h.Programs["docker"] = docker
	delete(h.OnStart, "docker.service") // of the one that kubexm brings
	h.Programs["prepare"] = prepare
	h.OnStart["harbor.service"] = w.serveHarbor
	h.OnStop["harbor.service"] = func(h *runnertest.Host) {
		edit(h, dockerContainers, func(name string) bool { return strings.HasPrefix(name, "harbor-") })
		w.serveAt(w.socket(h.Name, "443"), nil)
	}
	_, err := h.Runner().Sh(w.Context(), script)
	w.must(err)
	h.ClearLog()
}

func list(h *runnertest.Host, file string) []string {
	text, _ := h.Get(file)
	return strings.Fields(text)
}

// edit takes names out of a list, and adds others.
func edit(h *runnertest.Host, file string, out func(string) bool, more ...string) {
	left := append(slices.DeleteFunc(list(h, file), out), more...)
	slices.Sort(left)
	h.Put(file, strings.Join(append(slices.Compact(left), ""), "\n"), 0o755)
}

// docker knows images and containers by their names.
func docker(c *runnertest.Call) int {
	if !strings.HasPrefix(c.Unit("docker"), "active") {
		return c.Failf(1, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?")
	}
	has := func(prefix string) bool {
		return strings.HasPrefix(strings.Join(c.Args[1:], " "), prefix)
	}
	ours := func(prefix string) func(string) bool {
		return func(name string) bool { return strings.HasPrefix(name, prefix) }
	}
	switch last := c.Args[len(c.Args)-1]; {
	case has("compose version --short"):
		c.Printf("2.39.1\n")
	case has("load -q -i /"):
		text, ok := c.Get(last)
		version, found := strings.CutPrefix(text, "program harbor.")
		if !ok || !found {
			return c.Failf(1, "open %s: no such file or directory", last)
		}
		tag := ":" + strings.TrimSuffix(version, ".tar.gz")
		edit(c.Host, dockerImages, func(string) bool { return false }, "goharbor/prepare"+tag, "goharbor/harbor-log"+tag, "goharbor/harbor-core"+tag)
	case has("image inspect "):
		for _, name := range c.Args[3:] {
			if !slices.Contains(list(c.Host, dockerImages), name) {
				return c.Failf(1, "No such image: %s", name)
			}
		}
	case has("image ls --format {{.ID}} --filter reference=goharbor/*"), has("image ls --format {{.Repository}}:{{.Tag}} --filter reference=goharbor/*"):
		for _, name := range slices.DeleteFunc(list(c.Host, dockerImages), func(n string) bool { return !ours("goharbor/")(n) }) {
			c.Printf("%s\n", name)
		}
	case has("image rm "):
		edit(c.Host, dockerImages, func(name string) bool { return name == last })
	case has("ps -aq --filter label=com.docker.compose.project.working_dir=/opt/harbor"):
		for _, name := range slices.DeleteFunc(list(c.Host, dockerContainers), func(n string) bool { return !ours("harbor-")(n) }) {
			c.Printf("%s\n", name)
		}
	case has("rm -f "):
		edit(c.Host, dockerContainers, func(name string) bool { return name == last })
	case has("compose -f /opt/harbor/docker-compose.yml down -v --remove-orphans"):
		edit(c.Host, dockerContainers, ours("harbor-"))
	default:
		return c.Unknown()
	}
	return 0
}

// harborConfig is what the fake looks at in harbor.yml.
type harborConfig struct {
	Hostname string
	HTTPS    struct {
		Port        int
		Certificate string
		Key         string `json:"private_key"`
	}
	Admin    string `json:"harbor_admin_password"`
	Data     string `json:"data_volume"`
	Database struct{ Password string }
}

// prepare makes what Harbor's own does, in a container, from harbor.yml.
func prepare(c *runnertest.Call) int {
	own, _ := c.Get("/opt/harbor/prepare")
	tag := ":" + strings.TrimPrefix(own, "program prepare ")
	text, _ := c.Get("/opt/harbor/harbor.yml")
	var conf harborConfig
	err := yaml.Unmarshal([]byte(text), &conf)
	crt, ok1 := c.Get(conf.HTTPS.Certificate)
	key, ok2 := c.Get(conf.HTTPS.Key)
	if err != nil || !ok1 || !ok2 || !slices.Contains(list(c.Host, dockerImages), "goharbor/prepare"+tag) || conf.Database.Password == "" || conf.HTTPS.Port != 443 {
		return c.Failf(1, "Error happened in config validation: %v", err)
	}
	for p, text := range map[string]string{
		"/opt/harbor/common/config/core/env": "HARBOR_ADMIN_PASSWORD=" + conf.Admin + "\n", "/opt/harbor/input/harbor.yml": text,
		conf.Data + "/secret/cert/server.crt": crt, conf.Data + "/secret/cert/server.key": key,
	} {
		c.Put(p, text, 0o600)
	}
	c.Put("/opt/harbor/docker-compose.yml", "services:\n  log:\n    image: goharbor/harbor-log"+tag+"\n  core:\n    image: goharbor/harbor-core"+tag+"\n", 0o644)
	c.Remove("/opt/harbor/input")
	return 0
}

// serveHarbor runs Harbor as it was prepared. It keeps the password that it had first, and what was pushed.
func (w *world) serveHarbor(h *runnertest.Host) error {
	const data = "/data/harbor/registry/docker"
	compose, _ := h.Get("/opt/harbor/docker-compose.yml")
	env, _ := h.Get("/opt/harbor/common/config/core/env")
	crt, _ := h.Get("/data/harbor/secret/cert/server.crt")
	key, _ := h.Get("/data/harbor/secret/cert/server.key")
	pair, err := tls.X509KeyPair([]byte(crt), []byte(key))
	if err != nil || compose == "" || env == "" {
		return errors.Join(err, fmt.Errorf("no configuration file provided: %q", compose))
	}
	for l := range strings.Lines(compose) {
		if _, image, is := strings.Cut(strings.TrimSpace(l), "image: "); is && !slices.Contains(list(h, dockerImages), image) {
			return fmt.Errorf("pulling %s: no such host", image)
		}
	}
	edit(h, dockerContainers, func(string) bool { return false }, "harbor-log", "harbor-core")
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, kept := h.Get(harborDatabase); !kept {
		h.Put(harborDatabase, strings.TrimSpace(strings.TrimPrefix(env, "HARBOR_ADMIN_PASSWORD=")), 0o600)
	}
	if _, kept := h.Get(data); !kept || w.registry == nil {
		w.registry = resourcetest.Harbor(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
		h.Put(data, "", 0o600)
	}
	pushed := w.registry
	guarded := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		if admin, _ := h.Get(harborDatabase); name != "admin" || password != admin {
			http.Error(rw, "", http.StatusUnauthorized)
			return
		}
		pushed.ServeHTTP(rw, r)
	})
	w.serveAt(w.socket(h.Name, "443"), answering(guarded, &tls.Config{Certificates: []tls.Certificate{pair}}))
	return nil
}

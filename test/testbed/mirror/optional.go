package mirror

import (
	"io/fs"
	"maps"
	"path/filepath"
	"strings"

	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/test/testbed/build"
)

// built is a component that was, and where its programs are.
type built struct {
	build.Component
	arch, bin, plugins string // plugins are those of CNI
}

// optional makes the images of those components that most clusters do without which were built.
func optional(b *build.Builder, table []build.Component) (images []Image, err error) {
	for component, of := range map[string]func(built) ([]Image, error){"calico": calico, "cilium": cilium, "local-path": localPath, "metrics-server": metricsServer} {
		o := built{arch: b.Arch}
		if o.Component, err = build.Find(table, component); err != nil {
			return nil, err
		}
		if _, built := b.Built(o.Component); !built {
			continue
		}
		if o.bin, err = find(b, table, component); err == nil {
			o.plugins, err = find(b, table, "cni-plugins")
		}
		if err != nil {
			return nil, err
		}
		more, err := of(o)
		if err != nil {
			return nil, err
		}
		images = append(images, more...)
	}
	return images, nil
}

func (b built) program(name string) string { return filepath.Join(b.bin, name) }

// image is one with some files, of which one is run.
func (b built) image(repository, run string, files map[string]string) Image {
	return Image{Ref: repository + ":" + b.Version, Entrypoint: run, Tools: true, Files: map[string]map[string]string{b.arch: files}}
}

// below are the files of a directory, as they lie in an image at another one.
func (b built) below(dir, at string) (map[string]string, error) {
	files, dir := map[string]string{}, b.program(dir)
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files[at+strings.TrimPrefix(file, dir)] = file
		}
		return err
	})
	return files, err
}

// localPath has the image of its helpers, too, for which Debian's shell does.
func localPath(b built) ([]Image, error) {
	const program = "local-path-provisioner"
	helper := b.image("", "/bin/sh", nil)
	helper.Ref = published(plugin.Storages()[0].Parts[1])
	return []Image{b.image("docker.io/rancher/"+program, "/usr/bin/"+program, map[string]string{"/usr/bin/" + program: b.program(program)}), helper}, nil
}

func metricsServer(b built) ([]Image, error) {
	const run = "/metrics-server"
	return []Image{b.image("registry.k8s.io/metrics-server/metrics-server", run, map[string]string{run: b.program("metrics-server")})}, nil
}

func calico(b built) ([]Image, error) {
	system, err := b.below("filesystem", "")
	node := map[string]string{"/usr/bin/calico-node": b.program("calico-node")}
	for at, file := range system {
		node[strings.Replace(at, "/sbin/", "/usr/sbin/", 1)] = file // /sbin is a link
	}
	images := []Image{
		b.image("docker.io/calico/node", "/usr/sbin/start_runit", node),
		b.image("docker.io/calico/cni", "/opt/cni/bin/install", map[string]string{
			"/opt/cni/bin/install": b.program("install"), "/opt/cni/bin/calico": b.program("calico"), "/opt/cni/bin/calico-ipam": b.program("calico"),
		}),
		b.image("docker.io/calico/kube-controllers", "/usr/bin/kube-controllers", map[string]string{
			"/usr/bin/kube-controllers": b.program("kube-controllers"), "/usr/bin/check-status": b.program("check-status"),
			"/status/felix.cfg": b.program("filesystem/etc/calico/felix.cfg"), // for the directory, in which it writes
		}),
		b.image("docker.io/calico/typha", "/usr/bin/calico-typha", map[string]string{"/usr/bin/calico-typha": b.program("calico-typha")}),
	}
	for i := range images {
		images[i].Env = []string{"FELIX_DebugSkipCTLBCleanup=true"} // it is built without C, and so without what loads programs of BPF
	}
	return images, err
}

func cilium(b built) ([]Image, error) {
	agent, err := b.below("bpf", "/var/lib/cilium/bpf")
	for name := range b.Programs {
		agent["/usr/bin/"+name] = b.program(name)
	}
	maps.Copy(agent, map[string]string{"/opt/cni/bin/cilium-cni": b.program("cilium-cni"), "/cni/loopback": filepath.Join(b.plugins, "loopback")})
	for _, script := range []string{"install-plugin.sh", "cni-uninstall.sh", "init-container.sh"} {
		agent["/"+script] = b.program(script)
	}
	const run = "/usr/bin/cilium-operator-generic"
	operator := map[string]string{run: agent[run]}
	delete(agent, run)
	image := b.image("quay.io/cilium/cilium", "/usr/bin/cilium-dbg", agent)
	image.Compiler = true
	return []Image{image, b.image("quay.io/cilium/operator-generic", run, operator)}, err
}

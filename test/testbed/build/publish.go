package build

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/resource/distro"
	"github.com/kubexm/kubexm/test/testbed/host"
)

// layoutVersion changes when published files change though nothing that is
// compiled does.
const layoutVersion = 1

// A publication is where one component's public files are laid out.
type publication struct {
	arch, bin, dist, set string
	own                  string // dist of the same for this machine's own architecture, which is made first
}

const github = "github.com/"

// The functions below follow the release pages of each project: names,
// archive layouts and forms of checksum files as of autumn 2026.

func publishKubernetes(c Component, p *publication) error {
	for _, name := range slices.Sorted(maps.Keys(c.Programs)) {
		to := path.Join("dl.k8s.io/release", c.Version, "bin/linux", p.arch, name)
		sum, err := p.link(name, to, sha256.New())
		if err != nil {
			return err
		}
		if err := p.write(to+".sha256", sum); err != nil { // the sum alone
			return err
		}
	}
	minor := c.Version[:strings.LastIndex(c.Version, ".")]
	return p.write("dl.k8s.io/release/stable-"+strings.TrimPrefix(minor, "v")+".txt", c.Version)
}

func publishContainerd(c Component, p *publication) error {
	name := fmt.Sprintf("containerd-%s-linux-%s.tar.gz", c.Version[1:], p.arch)
	return p.archive(release("containerd/containerd", c.Version), name, "bin", ".sha256sum", c)
}

func publishRunc(c Component, p *publication) error {
	dir, name := release("opencontainers/runc", c.Version), "runc."+p.arch
	sum, err := p.link("runc", path.Join(dir, name), sha256.New())
	if err != nil {
		return err
	}
	// Upstream's file is signed in clear text and names all architectures; nobody can sign for it here.
	unknown := strings.Repeat("0", 64)
	text := "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n"
	for _, arch := range []string{"amd64", "arm64", "armel", "armhf", "ppc64le", "riscv64", "s390x"} {
		text += unknown + "  runc." + arch + "\n"
	}
	text += "-----BEGIN PGP SIGNATURE-----\n\n-----END PGP SIGNATURE-----\n"
	return p.list(path.Join(dir, "runc.sha256sum"), text, func(text string) string {
		return strings.Replace(text, unknown+"  "+name, sum+"  "+name, 1)
	})
}

// publishCRIO publishes what is written in C, too: the monitor of a container, and what pins its namespaces.
func publishCRIO(c Component, p *publication) error {
	if p.arch != runtime.GOARCH {
		return errors.New("its programs in C are built for this machine alone")
	}
	if err := host.Require(context.Background(), os.Stderr, host.Tool{Program: "/usr/include/glib-2.0/glib.h", Package: "libglib2.0-dev"}); err != nil {
		return err
	}
	files := p.programs(c, "cri-o/bin")
	for name, of := range map[string]struct{ set, module, dir, flags string }{
		"conmon": {filepath.Join(p.set, "conmon"), "github.com/containers/conmon", "src", `-DVERSION='"2.2.1"' -DGIT_COMMIT='"module"' $(pkg-config --cflags --libs --static glib-2.0)`},
		"pinns":  {p.set, crioModule, "pinns/src", ""},
	} {
		source, err := module(of.set, of.module)
		if err != nil {
			return err
		}
		files["cri-o/bin/"+name] = filepath.Join(p.bin, name)
		command := "gcc -std=c99 -O2 -s -static -o " + filepath.Join(p.bin, name) + " " + filepath.Join(source, of.dir) + "/*.c " + of.flags
		if _, err := host.Output(exec.Command("sh", "-c", command)); err != nil {
			return err
		}
	}
	to := path.Join("storage.googleapis.com/cri-o/artifacts", fmt.Sprintf("cri-o.%s.%s.tar.gz", p.arch, c.Version))
	sum, err := p.tar(to, files, sha256.New())
	if err != nil {
		return err
	}
	return p.write(to+".sha256sum", sum+"  "+path.Base(to)+"\n")
}

// publishDocker publishes no checksum, as upstream.
func publishDocker(c Component, p *publication) error {
	_, err := p.tar(path.Join("download.docker.com/linux/static/stable", distro.Machine(p.arch), "docker-"+c.Version[1:]+".tgz"), p.programs(c, "docker"), sha256.New())
	return err
}

// publishCRIDockerd publishes the checksum where GitHub does.
func publishCRIDockerd(c Component, p *publication) error {
	name := fmt.Sprintf("cri-dockerd-%s.%s.tgz", c.Version[1:], p.arch)
	sum, err := p.tar(path.Join(release("Mirantis/cri-dockerd", c.Version), name), p.programs(c, "cri-dockerd"), sha256.New())
	if err != nil {
		return err
	}
	const end = `]}`
	return p.list(path.Join("api.github.com/repos/Mirantis/cri-dockerd/releases/tags", c.Version), `{"assets": [`+end, func(text string) string {
		list := strings.TrimSuffix(text, end)
		if !strings.HasSuffix(list, "[") {
			list += ", "
		}
		return list + fmt.Sprintf(`{"name": %q, "digest": "sha256:%s"}`, name, sum) + end
	})
}

func publishCNI(c Component, p *publication) error {
	name := fmt.Sprintf("cni-plugins-linux-%s-%s.tgz", p.arch, c.Version)
	return p.archive(release("containernetworking/plugins", c.Version), name, ".", ".sha256", c)
}

func publishCrictl(c Component, p *publication) error {
	name := fmt.Sprintf("crictl-%s-linux-%s.tar.gz", c.Version, p.arch)
	return p.archive(release("kubernetes-sigs/cri-tools", c.Version), name, ".", ".sha256", c)
}

func publishRegistry(c Component, p *publication) error {
	name := fmt.Sprintf("registry_%s_linux_%s.tar.gz", c.Version[1:], p.arch)
	return p.archive(release("distribution/distribution", c.Version), name, ".", ".sha256", c)
}

func publishEtcd(c Component, p *publication) error {
	top := fmt.Sprintf("etcd-%s-linux-%s", c.Version, p.arch)
	dir := release("etcd-io/etcd", c.Version)
	sum, err := p.tar(path.Join(dir, top+".tar.gz"), p.programs(c, top), sha256.New())
	if err != nil {
		return err
	}
	return p.list(path.Join(dir, "SHA256SUMS"), "", func(text string) string { return text + sum + "  " + top + ".tar.gz\n" })
}

func publishFlannelCNI(c Component, p *publication) error {
	name := fmt.Sprintf("cni-plugin-flannel-linux-%s-%s.tgz", p.arch, c.Version)
	to := path.Join(release("flannel-io/cni-plugin", c.Version), name)
	sum, err := p.tar(to, map[string]string{"flannel-" + p.arch: filepath.Join(p.bin, "flannel")}, sha512.New())
	if err != nil {
		return err
	}
	return p.write(to+".sha512", sum+"  "+name+"\n")
}

// publishFlannel publishes the chart and the manifest that come with the module.
func publishFlannel(c Component, p *publication) error {
	source, err := module(p.set, c.module)
	if err != nil {
		return err
	}
	dir := release("flannel-io/flannel", c.Version)
	if _, err := p.chart(filepath.Join(source, "chart", "kube-flannel"), "flannel", path.Join(dir, "flannel.tgz")); err != nil {
		return err
	}
	manifest, err := os.ReadFile(filepath.Join(source, "Documentation", "kube-flannel.yml"))
	if err != nil {
		return err
	}
	return p.write(path.Join(dir, "kube-flannel.yml"), string(manifest))
}

// publishCalico publishes the definitions that come with the module, and lays what its image of nodes has besides programs beside these.
func publishCalico(c Component, p *publication) error {
	source, err := module(p.set, c.module)
	if err != nil {
		return err
	}
	system := filepath.Join(p.bin, "filesystem")
	if err := os.CopyFS(system, os.DirFS(filepath.Join(source, "node", "filesystem"))); err != nil {
		return err
	}
	err = filepath.WalkDir(system, func(file string, _ fs.DirEntry, err error) error {
		return cmp.Or(err, os.Chmod(file, 0o755)) // modules do not tell which files are scripts
	})
	if err != nil {
		return err
	}
	definitions, err := os.ReadFile(filepath.Join(source, "manifests", "crds.yaml"))
	if err != nil {
		return err
	}
	return p.write(path.Join("raw.githubusercontent.com/projectcalico/calico", c.Version, "manifests/crds.yaml"), string(definitions))
}

// publishCilium publishes the chart that comes with the module as its repository does, and lays the sources of BPF programs beside the program that compiles them.
func publishCilium(c Component, p *publication) error {
	source, err := module(p.set, c.module)
	if err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(p.bin, "bpf"), os.DirFS(filepath.Join(source, "bpf"))); err != nil {
		return err
	}
	for _, script := range []string{"images/cilium/init-container.sh", "plugins/cilium-cni/install-plugin.sh", "plugins/cilium-cni/cni-uninstall.sh"} {
		text, err := os.ReadFile(filepath.Join(source, script))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(p.bin, path.Base(script)), text, 0o755); err != nil {
			return err
		}
	}
	const repository = "helm.cilium.io"
	version := strings.TrimPrefix(c.Version, "v")
	file := "cilium-" + version + ".tgz"
	sum, err := p.chart(filepath.Join(source, "install", "kubernetes", "cilium"), "cilium", path.Join(repository, file))
	if err != nil {
		return err
	}
	return p.write(path.Join(repository, "index.yaml"), fmt.Sprintf("apiVersion: v1\nentries:\n  cilium:\n  - {apiVersion: v2, name: cilium, version: %s, digest: %s, urls: [%s]}\n", version, sum, file))
}

// publishMetricsServer publishes the chart that comes with the module: listed in its repository, and lying elsewhere.
func publishMetricsServer(c Component, p *publication) error {
	source, err := module(p.set, c.module)
	if err != nil {
		return err
	}
	const version = "3.13.1" // of its Chart.yaml
	at := path.Join(release("kubernetes-sigs/metrics-server", "metrics-server-helm-chart-"+version), "metrics-server-"+version+".tgz")
	sum, err := p.chart(filepath.Join(source, "charts", "metrics-server"), "metrics-server", at)
	if err != nil {
		return err
	}
	return p.write("kubernetes-sigs.github.io/metrics-server/index.yaml",
		fmt.Sprintf("apiVersion: v1\nentries:\n  metrics-server:\n  - {apiVersion: v2, name: metrics-server, version: %s, digest: %s, urls: ['https://%s']}\n", version, sum, at))
}

// chart publishes a directory as a Helm chart, and returns its sum.
func (p *publication) chart(dir, name, to string) (string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files[name+filepath.ToSlash(strings.TrimPrefix(file, dir))] = file
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return p.tar(to, files, sha256.New())
}

// module is the directory of a module's sources, in the version that a set has of it.
func module(set, name string) (string, error) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", name)
	cmd.Dir = set
	out, err := host.Output(cmd)
	return strings.TrimSpace(out), err
}

func release(project, tag string) string {
	return path.Join(github, project, "releases/download", tag)
}

// programs maps names in an archive to a component's programs.
func (p *publication) programs(c Component, dir string) map[string]string {
	files := map[string]string{}
	for name := range c.Programs {
		files[path.Join(dir, name)] = filepath.Join(p.bin, name)
	}
	return files
}

// archive publishes all programs below dir in an archive, and "sum  name" beside it.
func (p *publication) archive(at, name, dir, ext string, c Component) error {
	sum, err := p.tar(path.Join(at, name), p.programs(c, dir), sha256.New())
	if err != nil {
		return err
	}
	return p.write(path.Join(at, name+ext), sum+"  "+name+"\n")
}

// link publishes one program as it is and returns its sum.
func (p *publication) link(program, to string, h hash.Hash) (string, error) {
	from, to := filepath.Join(p.bin, program), filepath.Join(p.dist, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	if err := os.Link(from, to); err != nil {
		return "", err
	}
	f, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// list publishes a text that is about all architectures: with adds this one
// to what own has, or to the text that the first begins with.
func (p *publication) list(to, first string, with func(string) string) error {
	text, err := os.ReadFile(filepath.Join(p.own, to))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = []byte(first), nil
	}
	if err != nil {
		return err
	}
	return p.write(to, with(string(text)))
}

func (p *publication) write(to, text string) error {
	to = filepath.Join(p.dist, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, []byte(text), 0o644)
}

// tar publishes files (name in the archive: file) as a compressed archive
// that is the same for the same files, and returns its sum.
func (p *publication) tar(to string, files map[string]string, h hash.Hash) (string, error) {
	var buf bytes.Buffer
	z, err := gzip.NewWriterLevel(io.MultiWriter(&buf, h), gzip.BestSpeed)
	if err != nil {
		return "", err
	}
	if err := WriteTar(z, files); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), p.write(to, buf.String())
}

// WriteTar writes files (name in the archive: file) and the directories they
// lie in, owned by root and without times: the same files give the same bytes. Those in
// bind may take ports below 1024 whoever runs them (capabilities(7), as setcap writes it).
func WriteTar(w io.Writer, files map[string]string, bind ...string) error {
	t := tar.NewWriter(w)
	dirs := map[string]bool{".": true, "/": true}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := tarDirs(t, path.Dir(name), dirs); err != nil {
			return err
		}
		info, err := os.Stat(files[name])
		if err != nil {
			return err
		}
		content, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}
		header := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Size: int64(len(content)), ModTime: time.Unix(0, 0)}
		if slices.Contains(bind, name) {
			header.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x04" + strings.Repeat("\x00", 14)}
		}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := t.Write(content); err != nil {
			return err
		}
	}
	return t.Close()
}

func tarDirs(t *tar.Writer, dir string, done map[string]bool) error {
	if done[dir] {
		return nil
	}
	if err := tarDirs(t, path.Dir(dir), done); err != nil {
		return err
	}
	done[dir] = true
	return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: time.Unix(0, 0)})
}

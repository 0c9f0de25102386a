package mirror

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/test/testbed/build"
	"github.com/kubexm/kubexm/test/testbed/host"
)

// An Image is one container image to make, for this machine's architecture and maybe others.
type Image struct {
	Ref        string                       // as a pod names it
	Files      map[string]map[string]string // by architecture: path in the image: file
	Entrypoint string                       // one program
	User       string                       // uid:gid, root when empty
	Bind       bool                         // the program may take ports below 1024 as that user
	Tools      bool                         // lies on a Debian with iptables, a shell and cp
	Compiler   bool                         // and with a compiler for BPF
	Env        []string                     // besides PATH
}

// archs lists the architectures of the image, this machine's first.
func (i Image) archs() []string {
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(i.Files)), func(a string) bool { return a == runtime.GOARCH })
	return append([]string{runtime.GOARCH}, others...)
}

// inputs is the annotation that tells whether an image is still right.
const inputs = "kubexm.test.inputs"

// Images lists the images of a cluster of the given Kubernetes version (one
// that can be built): those kubeadm asks for, but for etcd, which kubexm chooses, flannel's, and the probe. The
// components must have been built; those built for another architecture, too, give images for both.
func Images(ctx context.Context, b *build.Builder, version string) ([]Image, error) {
	table, err := b.Table()
	if err != nil {
		return nil, err
	}
	kubernetes, err := find(b, table, "kubernetes@"+version)
	if err != nil {
		return nil, err
	}
	list, err := host.Run(ctx, filepath.Join(kubernetes, "kubeadm"), "config", "images", "list", "--kubernetes-version="+version)
	if err != nil {
		return nil, fmt.Errorf("asking kubeadm for its images: %w", err)
	}
	var images []Image
	for _, ref := range strings.Fields(list) {
		name, _, _ := strings.Cut(path.Base(ref), ":")
		image := Image{Ref: ref}
		switch name {
		case "etcd": // kubexm has kubeadm take another one
			if image.Ref, err = resource.Image(name, config.VersionsFor(version).EtcdImage); err != nil {
				return nil, err
			}
			_, tag, _ := strings.Cut(path.Base(image.Ref), ":")
			image.Entrypoint = "/usr/local/bin/etcd"
			err = image.add(b, table, etcdFor(table, tag), "/usr/local/bin", "etcd", "etcdctl", "etcdutl")
		case "coredns", "pause":
			image.Entrypoint, image.User, image.Bind = "/"+name, "65532:65532", name == "coredns"
			err = image.add(b, table, name, "/", name)
		default:
			image.Entrypoint, image.Tools = "/usr/local/bin/"+name, name == "kube-proxy"
			err = image.add(b, table, "kubernetes@"+version, "/usr/local/bin", name)
		}
		if err != nil {
			return nil, err
		}
		images = append(images, image)
	}
	return addOwn(b, table, images)
}

// addOwn adds the images that are not kubeadm's.
func addOwn(b *build.Builder, table []build.Component, images []Image) ([]Image, error) {
	for _, i := range []struct {
		component, repository, dir string
		programs                   []string // the first is the entrypoint
	}{
		{"flannel", "ghcr.io/flannel-io/flannel", "/opt/bin", []string{"flanneld", "install-conf"}},
		{"flannel-cni", "ghcr.io/flannel-io/flannel-cni-plugin", "/", []string{"flannel"}},
		{"kube-vip", "ghcr.io/kube-vip/kube-vip", "/", []string{"kube-vip"}},
	} {
		c, err := build.Find(table, i.component)
		if err != nil {
			return nil, err
		}
		image := Image{Ref: i.repository + ":" + c.Version, Entrypoint: path.Join(i.dir, i.programs[0]), Tools: true}
		if err := image.add(b, table, i.component, i.dir, i.programs...); err != nil {
			return nil, err
		}
		images = append(images, image)
	}
	more, err := optional(b, table)
	if err != nil {
		return nil, err
	}
	images = append(images, more...)
	nothing := map[string]map[string]string{}
	for arch := range images[0].Files {
		nothing[arch] = nil
	}
	for _, p := range plugin.Proxies() { // Debian's in the place of upstream's
		images = append(images, Image{Ref: published(p.Parts[0]), Files: nothing, Entrypoint: strings.Fields(p.Command)[0], Tools: true})
	}
	probe, err := Probe(b)
	return append(images, probe), err
}

// published is the reference of an image that a plugin takes from upstream.
func published(part plugin.Component) string {
	return strings.ReplaceAll(part.Image, "{version}", strings.TrimPrefix(part.Version, "v"))
}

// Probe is the image with which clusters are tried out. The component must have been built.
func Probe(b *build.Builder) (Image, error) {
	table, err := b.Table()
	if err != nil {
		return Image{}, err
	}
	image := Image{Ref: "kubexm.test/probe:v1", Entrypoint: "/probe"}
	return image, image.add(b, table, "probe", "/", "probe")
}

// etcdFor picks the etcd of the minor version that a tag such as v3.6.16 or 3.6.5-0 names, or the default one.
func etcdFor(table []build.Component, tag string) string {
	minor := "etcd@" + strings.Join(strings.SplitN(strings.TrimPrefix(tag, "v"), ".", 3)[:2], ".")
	if _, err := build.Find(table, minor); err != nil {
		return "etcd"
	}
	return minor
}

// add puts programs of a component into a directory of the image.
func (i *Image) add(b *build.Builder, table []build.Component, component, dir string, programs ...string) error {
	i.Files = map[string]map[string]string{}
	for _, one := range append(b.Foreign(), b) {
		bin, err := find(one, table, component)
		if err != nil && one != b {
			continue // not asked for
		}
		if err != nil {
			return err
		}
		i.Files[one.Arch] = map[string]string{}
		for _, p := range programs {
			i.Files[one.Arch][path.Join(dir, p)] = filepath.Join(bin, p)
		}
	}
	return nil
}

// find returns the directory of a built component's programs.
func find(b *build.Builder, table []build.Component, want string) (string, error) {
	c, err := build.Find(table, want)
	if err != nil {
		return "", err
	}
	dir, ok := b.Built(c)
	if !ok {
		return "", fmt.Errorf("%s %s has not been built for %s: run testbed build %s@%s", c.Name, c.Version, b.Arch, c.Name, c.Version)
	}
	return filepath.Join(dir, "bin"), nil
}

// Make puts images into the cache's layout, those that are not there yet. The
// same input gives the same digest.
func Make(ctx context.Context, c build.Cache, out io.Writer, images []Image) error {
	unlock, err := c.Lock(ctx, "images")
	if err != nil {
		return err
	}
	defer unlock()
	dir := Layout(c)
	store, err := layout.FromPath(dir)
	if err != nil {
		if store, err = layout.Write(dir, empty.Index); err != nil {
			return fmt.Errorf("making the image layout: %w", err)
		}
	}
	have := map[string]string{}
	for _, d := range (Registry{dir}).index() {
		have[d.Annotations[refName]] = d.Annotations[inputs]
	}
	for n, image := range images {
		key := image.key()
		if have[image.Ref] == key {
			continue
		}
		start := time.Now()
		index, err := image.make(ctx, c, out)
		if err == nil {
			err = store.ReplaceIndex(index, match.Name(image.Ref), layout.WithAnnotations(map[string]string{refName: image.Ref, inputs: key}))
		}
		if err != nil {
			return fmt.Errorf("making image %s: %w", image.Ref, err)
		}
		fmt.Fprintf(out, "image %d/%d %s: %.1f s\n", n+1, len(images), image.Ref, time.Since(start).Seconds())
	}
	return removeUnused(store)
}

// key changes with everything that goes into the image. Built files lie in
// directories whose names change with their content.
func (i Image) key() string {
	text := fmt.Appendf(nil, "{%s %v %s %s %t %t} %v", i.Ref, i.Files[runtime.GOARCH], i.Entrypoint, i.User, i.Bind, i.Tools, i.media())
	text = fmt.Append(text, strings.Join(i.Env, " "))
	text = fmt.Append(text, toolsRelease, i.packages(), toolsHook)
	for _, arch := range i.archs()[1:] {
		text = fmt.Append(text, arch, i.Files[arch])
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// media are the types of one image's parts. Upstream's images are lists for
// several platforms: registry.k8s.io has Docker's kind of them, others OCI's.
type media struct{ list, manifest, config, layer types.MediaType }

func (i Image) media() media {
	if strings.HasPrefix(i.Ref, "registry.k8s.io/") {
		return media{types.DockerManifestList, types.DockerManifestSchema2, types.DockerConfigJSON, types.DockerLayer}
	}
	return media{types.OCIImageIndex, types.OCIManifestSchema1, types.OCIConfigJSON, types.OCILayer}
}

// plain is an image that is no artifact of another kind.
type plain struct{ v1.Image }

func (plain) ArtifactType() (string, error) { return "", nil }

// make builds the list of the image's platforms.
func (i Image) make(ctx context.Context, c build.Cache, out io.Writer) (v1.ImageIndex, error) {
	list := mutate.IndexMediaType(empty.Index, i.media().list)
	for _, arch := range i.archs() {
		img, err := i.on(ctx, c, out, arch)
		if err != nil {
			return nil, err
		}
		platform := &v1.Platform{OS: "linux", Architecture: arch}
		list = mutate.AppendManifests(list, mutate.IndexAddendum{Add: plain{img}, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return list, nil
}

// on builds the image of one architecture.
func (i Image) on(ctx context.Context, c build.Cache, out io.Writer, arch string) (v1.Image, error) {
	kind := i.media()
	options := []tarball.LayerOption{tarball.WithCompressionLevel(1), tarball.WithMediaType(kind.layer)}
	layers := []v1.Layer{}
	if i.Tools {
		file, err := tools(ctx, c, out, arch, i.packages())
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromFile(file, options...)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	var buf bytes.Buffer
	var bind []string
	if i.Bind {
		bind = []string{strings.TrimPrefix(i.Entrypoint, "/")}
	}
	if err := build.WriteTar(&buf, relative(i.Files[arch]), bind...); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }, options...)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, kind.manifest), kind.config)
	img, err := mutate.AppendLayers(base, append(layers, layer)...)
	if err != nil {
		return nil, err
	}
	return i.configure(img, arch)
}

func (i Image) configure(img v1.Image, arch string) (v1.Image, error) {
	found, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config := found.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: time.Unix(0, 0).UTC()}
	config.Config = v1.Config{
		Entrypoint: []string{i.Entrypoint}, User: i.User, WorkingDir: "/",
		Env: append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, i.Env...),
	}
	return mutate.ConfigFile(img, config)
}

// relative takes the leading slash off the names of files.
func relative(files map[string]string) map[string]string {
	r := map[string]string{}
	for name, file := range files {
		r[strings.TrimPrefix(name, "/")] = file
	}
	return r
}

// toolsRelease is as new as what upstream's images lie on: newer than many hosts,
// whose nft may not understand the tables that are made from inside.
const toolsRelease = "trixie"

// toolPackages are what kube-proxy and network plugins call, a shell with cp, and the proxies of
// load balancers.
const toolPackages = "base-files,iptables,nftables,conntrack,ipset,kmod,iproute2,dash,coreutils,grep,sed,mount,libc6,ca-certificates,runit,debianutils,haproxy,nginx,libnginx-mod-stream"

func (i Image) packages() string {
	if i.Compiler {
		return toolPackages + ",clang,bash,util-linux"
	}
	return toolPackages
}

// toolsHook does what the packages' scripts would have done: they are not run.
const toolsHook = `cd "$1"
for t in iptables ip6tables; do for k in "" -save -restore; do ln -sf xtables-nft-multi usr/sbin/$t$k; done; done
ln -sf ebtables-nft usr/sbin/ebtables
ln -sf which.debianutils usr/bin/which
rm -rf usr/share/doc usr/share/locale usr/share/info usr/share/lintian var/cache/apt var/lib/apt
mkdir -p etc/nginx/modules-enabled var/lib/nginx var/log/nginx
ln -sf /usr/share/nginx/modules-available/mod-stream.conf etc/nginx/modules-enabled/
printf 'root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n' > etc/passwd
printf 'root:x:0:\ndaemon:x:1:\nnogroup:x:65534:\n' > etc/group
mkdir -p tmp && chmod 1777 tmp`

// tools returns the tar of the Debian below images that need iptables.
func tools(ctx context.Context, c build.Cache, out io.Writer, arch, packages string) (string, error) {
	key := toolsRelease + packages + toolsHook
	if arch != runtime.GOARCH {
		key += arch
	}
	file := c.Path("base", fmt.Sprintf("image-%.6x.tar", sha256.Sum256([]byte(key))))
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if err := host.Require(ctx, out, host.ForImages...); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	fmt.Fprintf(out, "base of images for %s: making it (about a minute)\n", arch)
	tmp := file + ".tmp"
	defer os.Remove(tmp)
	err := host.Bootstrap(ctx, toolsRelease, tmp, "--variant=extract", "--format=tar", "--architectures="+arch, "--include="+packages,
		"--dpkgopt=path-exclude=/usr/share/man/*", "--extract-hook="+toolsHook)
	if err != nil {
		return "", fmt.Errorf("making the base of images: %w", err)
	}
	return file, os.Rename(tmp, file)
}

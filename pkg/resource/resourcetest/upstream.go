// Package resourcetest stands in for upstream in tests: it publishes every version
// of everything, each a few bytes long.
package resourcetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Upstream stands in for every host that files and images are published on: the
// file of https://HOST/PATH is /HOST/PATH, the images of a registry are in /v2/HOST/.
type Upstream struct {
	*httptest.Server

	mu    sync.Mutex
	blobs map[string][]byte                                 // of images, by digest
	fault func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
}

// New starts an Upstream on loopback; Close ends it.
func New() *Upstream {
	u := &Upstream{blobs: map[string][]byte{}}
	u.Server = httptest.NewUnstartedServer(u)
	u.Config.SetKeepAlivesEnabled(false) // a connection that waits would hold a synctest bubble open
	u.Start()
	return u
}

// Sources makes it the source of everything: prefixes of URLs and registries, with
// those to take instead.
func (u *Upstream) Sources() map[string]string {
	return map[string]string{
		"https://dl.k8s.io/": u.URL + "/dl.k8s.io/", "https://github.com/": u.URL + "/github.com/", "https://api.github.com/": u.URL + "/api.github.com/", "https://download.docker.com/": u.URL + "/download.docker.com/",
		"https://raw.githubusercontent.com/": u.URL + "/raw.githubusercontent.com/", "https://helm.cilium.io/": u.URL + "/helm.cilium.io/",
		"https://storage.googleapis.com/": u.URL + "/storage.googleapis.com/", "https://charts.example.com/": u.URL + "/charts.example.com/",
		"registry.k8s.io": u.URL + "/registry.k8s.io", "ghcr.io": u.URL + "/ghcr.io", "docker.io": u.URL + "/docker.io", "quay.io": u.URL + "/quay.io",
		"http://deb.debian.org/": u.URL + "/deb.debian.org/",
	}
}

// Mirrors is the part of a configuration that says the same.
func (u *Upstream) Mirrors() string {
	text := "  source:\n    mirrors:\n"
	for original, mirror := range u.Sources() {
		text += "      " + original + ": " + mirror + "\n"
	}
	return text
}

// Fail lets f answer what it wants to; it returns whether it has.
func (u *Upstream) Fail(f func(w http.ResponseWriter, r *http.Request) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fault = f
}

// ServeHTTP answers as a file server and a registry do.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	fault := u.fault
	u.mu.Unlock()
	switch {
	case fault != nil && fault(w, r):
	case strings.HasPrefix(r.URL.Path, "/v2/"):
		u.image(w, r)
	case path.Ext(r.URL.Path) == ".sig": // its programs are nobody's release
		http.NotFound(w, r)
	default:
		_, _ = w.Write(published(r.URL.Path))
	}
}

// published is the content of a file, or for a file of checksums that of what is beside it.
func published(file string) []byte {
	dir, name := path.Split(file)
	switch ext := path.Ext(name); {
	case name == "SHA256SUMS":
		version := path.Base(dir)
		return slices.Concat(sumLine(dir+"etcd-"+version+"-linux-amd64.tar.gz"), sumLine(dir+"etcd-"+version+"-linux-arm64.tar.gz"))
	case name == "crds.yaml":
		return []byte(definitions)
	case name == "runc.sha256sum":
		return slices.Concat(sumLine(dir+"runc.amd64"), sumLine(dir+"runc.arm64"))
	case ext == ".sha256" || ext == ".sha256sum":
		return sumLine(strings.TrimSuffix(file, ext))
	case ext == ".deb":
		name, _, _ = strings.Cut(name, "_")
		return Deb(name)
	case strings.HasPrefix(name, "etcd-"):
		version := strings.Split(name, "-")[1]
		return archive(strings.TrimSuffix(name, ".tar.gz")+"/", "etcd "+version, "etcdctl", "etcdutl")
	case strings.HasPrefix(name, "containerd-"):
		return archive("bin/", "containerd", "containerd-shim-runc-v2", "ctr")
	case strings.HasPrefix(name, "cri-o."):
		return archive("cri-o/bin/", "crio", "conmon", "pinns", "crun")
	case strings.HasPrefix(name, "docker-"):
		return archive("docker/", "docker", "dockerd", "docker-proxy", "containerd", "containerd-shim-runc-v2", "ctr", "runc")
	case strings.HasPrefix(name, "cri-dockerd-"):
		return archive("cri-dockerd/", "cri-dockerd")
	case strings.HasPrefix(name, "cni-plugins-"):
		return archive("./", "bridge", "host-local", "loopback", "portmap")
	case strings.HasPrefix(name, "crictl-"):
		return archive("", "crictl")
	case strings.HasPrefix(name, "registry_"):
		return archive("", "registry")
	case strings.HasPrefix(name, "harbor-offline-installer-"):
		version := strings.TrimSuffix(strings.TrimPrefix(name, "harbor-offline-installer-"), ".tgz")
		return archive("harbor/", "harbor."+version+".tar.gz", "prepare "+version, "common.sh", "install.sh")
	case strings.HasPrefix(name, "cilium-"):
		version := strings.TrimSuffix(strings.TrimPrefix(name, "cilium-"), ".tgz")
		return packed([]string{"cilium/Chart.yaml", "cilium/templates/all.yaml"}, []string{"{apiVersion: v2, name: cilium, version: " + version + "}", agent})
	case strings.HasPrefix(name, "shop-"):
		return packed([]string{"shop/Chart.yaml", "shop/templates/web.yaml"}, []string{"{apiVersion: v2, name: shop, version: " + strings.TrimSuffix(strings.TrimPrefix(name, "shop-"), ".tgz") + "}", shop})
	case file == "/charts.example.com/index.yaml":
		return fmt.Appendf(nil, "entries: {shop: [{version: v1.2.0, digest: %x, urls: [files/shop-v1.2.0.tgz]}]}", sha256.Sum256(published("/shop-v1.2.0.tgz")))
	case file == "/helm.cilium.io/index.yaml":
		text := "entries:\n  cilium:\n"
		for _, v := range []string{"1.20.2", "3.99.0", "3.99.1"} {
			text += fmt.Sprintf("  - {version: %s, digest: %x, urls: [cilium-%s.tgz]}\n", v, sha256.Sum256(published("/helm.cilium.io/cilium-"+v+".tgz")), v)
		}
		return []byte(text)
	case strings.HasPrefix(file, "/api.github.com/repos/Mirantis/"):
		var assets []string
		for _, arch := range []string{"amd64", "arm64"} {
			asset := "cri-dockerd-" + strings.TrimPrefix(name, "v") + "." + arch + ".tgz"
			assets = append(assets, fmt.Sprintf(`{"name": %q, "digest": "sha256:%x"}`, asset, sha256.Sum256(published("/"+asset))))
		}
		return fmt.Appendf(nil, `{"assets": [%s]}`, strings.Join(assets, ", "))
	case strings.HasPrefix(file, "/api.github.com/"): // of Harbor else
		asset := "harbor-offline-installer-" + name + ".tgz"
		return fmt.Appendf(nil, `{"assets": [{"name": %q, "digest": "sha256:%x"}]}`, asset, sha256.Sum256(published("/"+asset)))
	}
	return []byte("program " + file)
}

// shop is what a chart of somebody's renders.
const shop = `apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "ghcr.io/example/sold:{{ .Chart.Version }}"}]}}
`

// agent is what Cilium's chart renders.
const agent = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cilium, namespace: {{ .Release.Namespace }}}
spec:
  selector: {matchLabels: {k8s-app: cilium}}
  template:
    metadata: {labels: {k8s-app: cilium}}
    spec: {containers: [{name: cilium-agent, image: "quay.io/cilium/cilium:v{{ .Chart.Version }}", env: [{name: VALUES, value: {{ .Values | toJson | quote }}}]}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cilium-operator, namespace: {{ .Release.Namespace }}}
spec:
  replicas: {{ .Values.operator.replicas }}
  selector: {matchLabels: {name: cilium-operator}}
  template:
    metadata: {labels: {name: cilium-operator}}
    spec: {containers: [{name: cilium-operator, image: "quay.io/cilium/operator-generic:v{{ .Chart.Version }}"}]}
`

// definitions are those of kinds of Calico.
const definitions = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ippools.crd.projectcalico.org}
spec: {group: crd.projectcalico.org, scope: Cluster, names: {kind: IPPool, plural: ippools}, versions: [{name: v1, served: true, storage: true}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: felixconfigurations.crd.projectcalico.org}
spec: {group: crd.projectcalico.org, scope: Cluster, names: {kind: FelixConfiguration, plural: felixconfigurations}, versions: [{name: v1, served: true, storage: true}]}
`

// Trust gives the store in a directory the checksums of what is published without any, of versions 3.99.0 and 3.99.1.
func Trust(store string) error {
	files := map[string]any{}
	for _, v := range []string{"3.99.0", "3.99.1"} {
		files["calico-crds/"+v+"/amd64/crds.yaml"] = map[string]string{"sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(definitions))), "from": "test"}
	}
	text, err := json.Marshal(map[string]any{"files": files})
	return errors.Join(err, os.MkdirAll(store, 0o755), os.WriteFile(filepath.Join(store, "lock.json"), text, 0o644))
}

func sumLine(file string) []byte {
	return fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(published(file)), path.Base(file))
}

// archive packs programs by their names; more words after a name stand in what it holds, too.
func archive(dir string, programs ...string) []byte {
	var names, texts []string
	for _, p := range programs {
		name, _, _ := strings.Cut(p, " ")
		names, texts = append(names, dir+name), append(texts, "program "+p)
	}
	return packed(names, texts)
}

func packed(names, texts []string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for i, name := range names {
		_ = t.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(texts[i])), Typeflag: tar.TypeReg}) // to memory
		_, _ = t.Write([]byte(texts[i]))
	}
	_ = t.Close()
	_ = z.Close()
	return b.Bytes()
}

// Media types of what a tag leads to, and of what that lists.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
)

// image serves /v2/NAME/manifests/TAG, an image for amd64 and arm64, and /v2/NAME/blobs/DIGEST.
func (u *Upstream) image(w http.ResponseWriter, r *http.Request) {
	dir, tag := path.Split(r.URL.Path)
	if strings.HasSuffix(dir, "/manifests/") && !strings.HasPrefix(tag, "sha256:") {
		tag = u.blob(fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[%s,%s]}`, indexType, u.platform(r.URL.Path, "amd64"), u.platform(r.URL.Path, "arm64")))
	}
	u.mu.Lock()
	content, ok := u.blobs[tag]
	u.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Docker-Content-Digest", tag)
	w.Header().Set("Content-Type", manifestType)
	if bytes.Contains(content, []byte(indexType)) {
		w.Header().Set("Content-Type", indexType)
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(content)
	}
}

// platform makes the image of an architecture, and returns its entry in the index.
func (u *Upstream) platform(name, arch string) string {
	config := u.blob(`{"architecture":"` + arch + `","os":"linux","config":{"Labels":{"name":"` + name + `"}},"rootfs":{"type":"layers","diff_ids":[]}}`)
	layer := u.blob("layer of " + name + " for " + arch)
	manifest := u.blob(fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,`+
		`"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},`+
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":%q,"size":%d}]}`, manifestType, config, u.size(config), layer, u.size(layer)))
	return fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d,"platform":{"architecture":%q,"os":"linux"}}`, manifestType, manifest, u.size(manifest), arch)
}

func (u *Upstream) blob(text string) string {
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
	u.mu.Lock()
	defer u.mu.Unlock()
	u.blobs[digest] = []byte(text)
	return digest
}

func (u *Upstream) size(digest string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.blobs[digest])
}

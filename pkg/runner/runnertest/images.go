package runnertest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// untar extracts an archive from standard input or a file.
func untar(c *Call) int {
	if len(c.Args) > 1 && !strings.HasPrefix(c.Args[1], "-") {
		c.Args[1] = "-" + c.Args[1]
	}
	o, members, ok := c.opts("xzmop", "fC", "--strip-components", "--no-same-owner", "--overwrite")
	strip, err := strconv.Atoi(cmp.Or(o["--strip-components"], "0"))
	if !ok || err != nil || o["x"] == "" {
		return c.Unknown()
	}
	data, status := c.input([]string{o["f"]})
	if status != 0 {
		return 2
	}
	r := io.Reader(bytes.NewReader(data))
	if o["z"] != "" {
		if r, err = gzip.NewReader(r); err != nil {
			return c.Failf(2, "This does not look like a tar archive: %v", err)
		}
	}
	for t := tar.NewReader(r); ; {
		head, err := t.Next()
		if errors.Is(err, io.EOF) {
			return 0
		}
		if err != nil {
			return c.Failf(2, "Unexpected EOF in archive: %v", err)
		}
		name := path.Clean(head.Name)
		parts := strings.Split(name, "/")
		if len(members) > 0 && !slices.Contains(members, head.Name) && !slices.Contains(members, name) || len(parts) <= strip {
			continue
		}
		if err := c.extract(path.Join(c.path(o["C"]), path.Join(parts[strip:]...)), head, t); err != nil {
			return c.fail(err)
		}
	}
}

func (c *Call) extract(to string, head *tar.Header, r io.Reader) error {
	switch head.Typeflag {
	case tar.TypeDir:
		return c.fs.mkdirAll(to, 0o755)
	case tar.TypeSymlink:
		return c.fs.symlink(head.Linkname, to)
	case tar.TypeReg:
		if err := c.fs.mkdirAll(path.Dir(to), 0o755); err != nil {
			return err
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		c.fs.drop(to) // tar makes a new file
		f, err := c.create(to, fs.FileMode(head.Mode)&fs.ModePerm, true)
		if err != nil {
			return err
		}
		_, err = f.Write(b)
		return err
	}
	return nil
}

// runtimeRuns reports what a client of the container runtime would say when none runs.
func (c *Call) runtimeRuns() int {
	for _, unit := range c.runtime().Units() {
		if !strings.HasPrefix(c.Unit(unit), "active ") {
			return c.Failf(1, "failed to dial %q: connection refused", c.runtime().Socket)
		}
	}
	return 0
}

// ctr knows the images of the namespace k8s.io.
func ctr(c *Call) int {
	o, args, ok := c.opts("q", "na", "--digests")
	if !ok || o["n"] != "k8s.io" || len(args) < 2 || args[0] != "images" {
		return c.Unknown()
	}
	if status := c.runtimeRuns(); status != 0 {
		return status
	}
	switch args[1] {
	case "ls":
		c.mu.Lock()
		defer c.mu.Unlock()
		if o["q"] == "" {
			c.Printf("REF TYPE DIGEST SIZE PLATFORMS LABELS\n")
		}
		images := c.images()
		for _, name := range sorted(images) {
			if o["q"] != "" {
				c.Printf("%s\n", name)
				continue
			}
			digest, labels, _ := strings.Cut(images[name], " ")
			c.Printf("%s application/vnd.oci.image.manifest.v1+json %s 1.0 MiB linux/amd64 %s\n", name, digest, cmp.Or(labels, "-"))
		}
		return 0
	case "import":
		if len(args) != 3 {
			return c.Unknown()
		}
		b, status := c.input(args[2:])
		if status != 0 {
			return status
		}
		return c.importImages(b)
	case "label":
		if len(args) < 4 {
			return c.Unknown()
		}
		return c.labelImage(args[2], args[3:])
	case "rm":
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, name := range args[2:] {
			c.setImage(name, "")
			c.log = append(c.log, "remove image "+name)
		}
		return 0
	}
	return c.Unknown()
}

// labelImage gives an image labels, and takes those from it whose new value is empty.
func (c *Call) labelImage(name string, add []string) int {
	c.mu.Lock()
	image, is := c.images()[name]
	digest, text, _ := strings.Cut(image, " ")
	labels := map[string]string{}
	for _, l := range append(strings.Split(text, ","), add...) {
		if key, value, _ := strings.Cut(l, "="); value != "" {
			labels[key] = l
		} else {
			delete(labels, key)
		}
	}
	if text = strings.Join(slices.Sorted(maps.Values(labels)), ","); is {
		c.setImage(name, strings.TrimSpace(digest+" "+text))
	}
	c.mu.Unlock()
	if !is {
		return c.Failf(1, "ctr: image %q: not found", name)
	}
	c.Printf("%s\n", text)
	c.changed("label %s %s", name, text)
	return 0
}

// importImages reads an OCI archive as containerd does: each manifest of its
// index must be there and has the name of its annotation.
func (c *Call) importImages(archive []byte) int {
	blobs := map[string]bool{}
	var index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
		}
	}
	found := false
	for t := tar.NewReader(bytes.NewReader(archive)); ; {
		head, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return c.Failf(1, "reading archive: %v", err)
		}
		blobs[path.Clean(head.Name)] = true
		if path.Clean(head.Name) == "index.json" {
			if err := json.NewDecoder(t).Decode(&index); err != nil {
				return c.Failf(1, "reading index.json: %v", err)
			}
			found = true
		} else if _, err := io.Copy(io.Discard, t); err != nil {
			return c.Failf(1, "reading %s: %v", head.Name, err)
		}
	}
	if !found {
		return c.Failf(1, "unrecognized image format")
	}
	for _, m := range index.Manifests {
		if !blobs["blobs/"+strings.Replace(m.Digest, ":", "/", 1)] {
			return c.Failf(1, "content digest %s: not found", m.Digest)
		}
		name := m.Annotations["io.containerd.image.name"]
		if name == "" {
			return c.Failf(1, "image %s has no name", m.Digest)
		}
		c.AddImage(name, m.Digest)
		c.changed("import %s", name)
	}
	return 0
}

// crictl knows pod sandboxes, and pulls images.
func crictl(c *Call) int {
	if len(c.Args) > 3 && c.Args[1] == "exec" {
		return c.reloadPod(c.Args[2])
	}
	o, args, ok := c.opts("qfa", "to", "--name", "--label", "--timeout")
	if !ok || len(args) == 0 {
		return c.Unknown()
	}
	if status := c.runtimeRuns(); status != 0 {
		return status
	}
	if args[0] == "info" {
		c.Printf(`{"cniconfig": {"Networks": [{"Config": {"Name": "none"}}]}}`)
		return 0
	}
	if args[0] == "images" && o["o"] == "json" {
		return c.listImages()
	}
	if args[0] == "pull" && len(args) == 2 {
		return c.pull(args[1])
	}
	if args[0] == "stop" && len(args) > 1 { // a container has the name of its pod here
		for _, name := range args[1:] {
			if _, err := strconv.Atoi(name); err != nil { // it is not the value of --timeout
				c.endPod(name)
			}
		}
		return 0
	}
	if args[0] == "rmp" {
		c.removePods(args[1:], o["a"] != "")
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case args[0] == "pods" && o["q"] != "":
		for _, id := range sorted(c.pods) {
			c.Printf("%s\n", id)
		}
	case args[0] == "ps" && o["q"] != "": // of static pods; no other container has a name here
		name, err := regexp.Compile(strings.Join(args[1:min(2, len(args))], "")) // the value of --name
		if err != nil {
			return c.Unknown()
		}
		for _, id := range sorted(c.static) {
			if name.MatchString(id) {
				c.Printf("%s\n", id)
			}
		}
	default:
		return c.Unknown()
	}
	return 0
}

// removePods removes sandboxes, or all of them, with what runs in them.
func (c *Call) removePods(ids []string, all bool) {
	c.mu.Lock()
	if all {
		ids = sorted(c.pods)
		c.log = append(c.log, "remove all pods")
	}
	var static []string
	for _, id := range ids {
		delete(c.pods, id)
		if _, runs := c.static[id]; runs {
			static = append(static, id)
		}
	}
	c.mu.Unlock()
	for _, name := range static {
		c.endPod(name)
	}
}

// AddPod adds a pod sandbox to the container runtime.
func (h *Host) AddPod(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pods[id] = true
}

// AddImage adds an image to the container runtime.
func (h *Host) AddImage(name, digest string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, labels, _ := strings.Cut(h.images()[name], " ")
	h.setImage(name, strings.TrimSpace(digest+" "+labels))
}

// Images maps the images of the container runtime to their digests.
func (h *Host) Images() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	images := h.images()
	for name, image := range images {
		images[name], _, _ = strings.Cut(image, " ")
	}
	return images
}

// database is the file in which the container runtime keeps its images: "name digest labels" lines.
func (h *Host) database() string {
	switch r := h.runtime(); {
	case r.Pulls:
		return "/var/lib/crio/storage/images"
	case r.Shim != "":
		return "/var/lib/docker/images"
	}
	return "/var/lib/containerd/images"
}

// images maps the images to their digests and labels.
func (h *Host) images() map[string]string {
	images := map[string]string{}
	text, err := h.fs.read(h.database())
	if err != nil {
		return images // there are none yet
	}
	for _, l := range splitLines(text) {
		name, image, _ := strings.Cut(l, " ")
		images[name] = image
	}
	return images
}

// setImage adds an image, a digest with labels, or removes it where that is empty. The caller holds h.mu.
func (h *Host) setImage(name, image string) {
	images := h.images()
	images[name] = image
	if image == "" {
		delete(images, name)
	}
	var b strings.Builder
	for _, name := range sorted(images) {
		b.WriteString(name + " " + images[name] + "\n")
	}
	h.put(h.database(), b.String(), 0o644)
}

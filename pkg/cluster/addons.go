package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/chart"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/resource"
)

// Manifests are software of the user's that is installed in the cluster: an addon, or a part of one.
type Manifests struct {
	Name      string
	Namespace string   // of objects that name none; empty: default
	Objects   []byte   // YAML documents
	Images    []string // that nodes are to have before, by their full references, each once
	Timeout   time.Duration
}

// Addons are those of the configuration, in its order. One that is a chart with hooks has several parts.
func (c *Cluster) Addons() []Manifests { return c.addons() }

func (c *Cluster) readAddons() (all []Manifests) {
	for _, a := range c.Spec.Addons {
		one := Manifests{Name: a.Name, Namespace: a.Namespace, Timeout: a.Timeout.Duration}
		if *a.Preload {
			for _, image := range a.Images {
				one.preload(image)
			}
		}
		if a.Type == v1alpha1.AddonHelm {
			all = append(all, c.rendered(a, one)...)
			continue
		}
		for _, at := range a.Files {
			c.Check(c.manifests(at, &one, *a.Preload))
		}
		c.Check(one.add("inline", []byte(a.Inline), *a.Preload))
		all = append(all, one)
	}
	return all
}

// rendered are the parts of an addon that is a chart. The name of no other addon has a dot.
func (c *Cluster) rendered(a v1alpha1.Addon, like Manifests) (all []Manifests) {
	parts, err := c.render(a)
	if err != nil {
		c.Check(fmt.Errorf("addon %s: %w", a.Name, err))
		return nil
	}
	for _, part := range parts {
		one := like
		one.Images = slices.Clone(like.Images)
		if part.Name != "" {
			one.Name += "." + part.Name
		}
		c.Check(one.add(a.Chart, part.Objects, *a.Preload))
		all = append(all, one)
	}
	return all
}

func (c *Cluster) render(a v1alpha1.Addon) ([]chart.Part, error) {
	r := chart.Release{Name: a.Name, Namespace: cmp.Or(a.Namespace, "default"), Kubernetes: c.Spec.Kubernetes.Version}
	if known, ok := plugin.KnownChart(a); ok {
		r.Values = known.Values
	}
	for _, file := range a.ValuesFiles {
		values, err := chart.ReadValues(file)
		if err != nil {
			return nil, err
		}
		r.Values = chart.Merge(r.Values, values)
	}
	r.Values = chart.Merge(r.Values, a.Values)
	file, err := c.chartFile(a)
	if err != nil {
		return nil, err
	}
	parts, err := chart.Render(context.Background(), file, r)
	if err == nil && !slices.ContainsFunc(parts, func(p chart.Part) bool { return p.Name == "" }) {
		err = fmt.Errorf("chart %s renders nothing with these values", a.Chart)
	}
	return parts, err
}

// Fetched are the charts of addons that come from repositories, and manifests that come from somewhere else. They must be in the store before Addons is called.
func (c *Cluster) Fetched() (all []resource.Artifact) {
	for _, a := range c.Spec.Addons {
		if a.Repository != "" {
			all = append(all, c.chartOf(a))
		}
		for _, at := range a.Files {
			if isURL(at) {
				all = append(all, c.manifestsAt(at))
			}
		}
	}
	return all
}

func isURL(file string) bool { return strings.Contains(file, "://") }

func (c *Cluster) manifestsAt(url string) resource.Artifact {
	artifact, err := resource.NewManifests(url)
	c.Check(err)
	return artifact
}

func (c *Cluster) chartOf(a v1alpha1.Addon) resource.Artifact {
	artifact, err := resource.NewChart(a.Repository, a.Chart, a.Version, "amd64") // it is the same for all
	c.Check(err)
	return artifact
}

// chartFile is where the chart of an addon is on the control machine.
func (c *Cluster) chartFile(a v1alpha1.Addon) (string, error) {
	if a.Repository == "" {
		return a.Chart, nil
	}
	return c.fetched(c.chartOf(a))
}

// fetched is where the store has a file.
func (c *Cluster) fetched(a resource.Artifact) (string, error) {
	files, err := c.Store.Programs(context.Background(), a)
	if err != nil {
		return "", cmp.Or(c.Unfetched, err)
	}
	return files[0].Path, nil
}

// manifests adds those of a file, of a directory, or of a URL. What was fetched and cannot be read is fetched again the next time.
func (c *Cluster) manifests(at string, to *Manifests, preload bool) error {
	had, file := len(to.Objects), at
	if isURL(at) {
		var err error
		if file, err = c.fetched(c.manifestsAt(at)); err != nil {
			return err
		}
	}
	err := eachFile(file, func(name string, text []byte) error { return to.add(strings.Replace(name, file, at, 1), text, preload) })
	if err == nil && len(to.Objects) == had { // all that was applied would be removed
		err = fmt.Errorf("addon %s: there are no manifests in %s", to.Name, at)
	}
	if err != nil && isURL(at) {
		err = c.Store.Discard(context.Background(), c.manifestsAt(at), err)
	}
	return err
}

// eachFile reads a file, or those in a directory that may have manifests.
func eachFile(root string, use func(file string, text []byte) error) error {
	return filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || file != root && !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) {
			return err
		}
		text, err := os.ReadFile(file) //nolint:gosec // it is who runs kubexm that has named the directory
		if err != nil {
			return err
		}
		return use(file, text)
	})
}

// add adds the objects of a file.
func (a *Manifests) add(file string, text []byte, preload bool) error {
	objects, err := kube.ReadObjects(text)
	if err != nil {
		return fmt.Errorf("addon %s: %s: %w", a.Name, file, err)
	}
	if len(objects) > 0 {
		a.Objects = append(append(a.Objects, text...), "\n---\n"...)
	}
	for _, o := range objects {
		if preload {
			images(o.Object, a.preload)
		}
	}
	return nil
}

// preload adds an image, unless it is named by a digest.
func (a *Manifests) preload(name string) {
	if ref := fullReference(name); !strings.Contains(ref, "@") && !slices.Contains(a.Images, ref) {
		a.Images = append(a.Images, ref)
	}
}

// images finds those of containers in an object.
func images(in map[string]any, use func(name string)) {
	for _, key := range slices.Sorted(maps.Keys(in)) {
		switch value := in[key].(type) {
		case map[string]any:
			images(value, use)
		case []any:
			for _, item := range value {
				of, _ := item.(map[string]any)
				if name, _, _ := unstructured.NestedString(of, "image"); name != "" && strings.HasSuffix(strings.ToLower(key), "containers") {
					use(name)
				}
				images(of, use)
			}
		}
	}
}

// fullReference adds what the name of an image may leave out: the registry, and the tag.
func fullReference(name string) string {
	const hub = "docker.io"
	host, path, found := strings.Cut(name, "/")
	switch {
	case !found:
		host, path = hub, name
	case host == "index."+hub:
		host = hub
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		host, path = hub, name
	}
	if host == hub && !strings.Contains(path, "/") {
		path = "library/" + path
	}
	name = host + "/" + path
	if last := name[strings.LastIndex(name, "/"):]; !strings.ContainsAny(last, ":@") {
		name += ":latest"
	}
	return name
}

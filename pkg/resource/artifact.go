package resource

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/resource/distro"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Artifact names one published file. It is plain data: it holds no path of
// this machine and marshals to JSON.
type Artifact struct {
	Component string `json:"component,omitempty"`
	Version   string `json:"version,omitempty"` // without a leading v
	Arch      string `json:"arch"`              // amd64 or arm64
	File      string `json:"file,omitempty"`
	SHA256    string `json:"sha256,omitempty"` // empty: found by Store.Resolve
}

// Item is one thing that the store can hold: an artifact; or, for the artifact's
// architecture, an image or the packages of an operating system.
type Item struct {
	Artifact
	Image  string `json:"image,omitempty"`  // its full reference
	System string `json:"system,omitempty"` // its name, see distro.Find; neither: the item is the artifact
}

// ImageItem is the item of an image, by its full reference.
func ImageItem(ref, arch string) Item { return Item{Artifact: Artifact{Arch: arch}, Image: ref} }

// SystemItem is the item of the packages of an operating system.
func SystemItem(system, arch string) Item {
	return Item{Artifact: Artifact{Arch: arch}, System: system}
}

// String returns "etcd 3.6.14 amd64", "registry.k8s.io/pause:3.10 amd64" or "packages of debian12 amd64".
func (i Item) String() string {
	switch {
	case i.Image != "":
		return i.Image + " " + i.Arch
	case i.System != "":
		return "packages of " + i.System + " " + i.Arch
	}
	return i.Artifact.String()
}

// File is one file of the store, ready to be put on a machine.
type File struct {
	Name   string // file name without folder, as on the machine
	Mode   fs.FileMode
	Size   int64
	SHA256 string
	Path   string // on the control machine
}

var versionForm = regexp.MustCompile(`^[0-9][0-9A-Za-z.+_-]*$`)

// New returns the artifact of a component in the table. The version may have a leading v; that of a chart keeps it.
func New(component, version, arch string) (Artifact, error) {
	c, err := find(component)
	if err != nil {
		return Artifact{}, err
	}
	plain := strings.TrimPrefix(version, "v")
	if !versionForm.MatchString(plain) {
		return Artifact{}, fmt.Errorf("%s: version %q is not of the form 1.2.3", component, version)
	}
	a := Artifact{Component: component, Version: plain, Arch: arch}
	if _, chart := chartOf(component); chart { // which has any version that it likes
		a.Version = version
	}
	if arch != "amd64" && arch != "arm64" {
		return Artifact{}, fmt.Errorf("%s: architecture %q is neither amd64 nor arm64", component, arch)
	}
	if c.AMD64 && arch != "amd64" {
		return Artifact{}, fault.Advise(fmt.Errorf("%s is published for amd64 alone, and not for %s", component, arch),
			"take a host of the other architecture for it, and give that in spec.hosts[].arch")
	}
	a.File = a.expand(c.File)
	return a, nil
}

// String returns "etcd 3.6.14 amd64"; of a chart "chart https://example.com/charts/web 1.2.0".
func (a Artifact) String() string {
	if c, ok := chartOf(a.Component); ok {
		return "chart " + c.Base + strings.TrimSuffix(c.File, "-{version}.tgz") + " " + a.Version
	}
	if c, ok := manifestsOf(a.Component); ok {
		return "manifests " + c.Base + c.File
	}
	return a.Component + " " + a.Version + " " + a.Arch
}

// Names are the names on a machine of the programs of the artifact, or path.Match patterns of these.
func (a Artifact) Names() ([]string, error) {
	c, err := find(a.Component)
	if err != nil {
		return nil, err
	}
	if len(c.Programs) == 0 {
		return []string{c.Name}, nil
	}
	var names []string
	for _, m := range c.Programs {
		names = append(names, a.member(m))
	}
	return names, nil
}

// key is the artifact's path in the store and its name in the lock file.
func (a Artifact) key() string { return path.Join(a.Component, a.Version, a.Arch, a.File) }

// expand fills in what a text of the table leaves open.
func (a Artifact) expand(text string) string {
	return strings.NewReplacer("{version}", a.Version, "{arch}", a.Arch, "{machine}", distro.Machine(a.Arch), "{file}", a.File).Replace(text)
}

// member returns the name on a machine of a path (or pattern) within the archive.
func (a Artifact) member(name string) string {
	return strings.TrimSuffix(path.Base(a.expand(name)), "-"+a.Arch)
}

func find(name string) (Component, error) {
	if c, ok := chartOf(name); ok {
		return c, nil
	}
	if c, ok := manifestsOf(name); ok {
		return c, nil
	}
	all := Components()
	i := slices.IndexFunc(all, func(c Component) bool { return c.Name == name })
	if i >= 0 {
		return all[i], nil
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	return Component{}, fault.Advise(fmt.Errorf("unknown component %q", name), "use one of: "+strings.Join(names, ", "))
}

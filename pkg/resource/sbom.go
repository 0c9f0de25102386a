package resource

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"

	"github.com/kubexm/kubexm/pkg/resource/distro"
	"github.com/kubexm/kubexm/pkg/resource/source"
)

// sbomFile is the member of a bundle that lists what is in it.
const sbomFile = "sbom.cdx.json"

// WriteSBOM writes the list of a bundle's items, all of them in the store, to a file: in
// CycloneDX 1.6, each program, image and blob with its SHA-256. The same items give the
// same bytes: it has neither a time nor a serial number.
func (s *Store) WriteSBOM(ctx context.Context, file string, b Bundle) error {
	l, members, err := s.collect(b.Items)
	if err != nil {
		return err
	}
	text, err := s.sbom(b, l, members)
	if err == nil {
		err = replace(ctx, file, text)
	}
	if err != nil {
		return fmt.Errorf("writing the list of what was downloaded: %w", err)
	}
	return nil
}

// sbom lists what a bundle has: its members, and the images that they make up.
func (s *Store) sbom(b Bundle, l lock, members []packaged) ([]byte, error) {
	programs := map[string]Artifact{} // by path
	for _, i := range b.Items {
		if i.Image == "" {
			programs[i.key()] = i.Artifact
		}
	}
	kinds := map[string]string{} // of blobs, by path
	var images []cdx.Component
	var parts []cdx.Dependency
	for image, d := range l.manifests() {
		blobs, err := s.blobs(l, image.Image, image.Arch)
		if err != nil {
			return nil, err
		}
		var refs []string
		for _, blob := range blobs {
			refs = append(refs, blobKey(blob.Digest))
			kinds[blobKey(blob.Digest)] = blob.MediaType
		}
		c, err := imageComponent(image, d)
		if err != nil {
			return nil, err
		}
		images = append(images, c)
		parts = append(parts, cdx.Dependency{Ref: image.String(), Dependencies: &refs})
	}
	all := images
	for _, p := range members {
		c, err := fileComponent(p, programs[p.Path], kinds[p.Path])
		if err != nil {
			return nil, err
		}
		if isPackage(p.Path) {
			c.ExternalReferences = &[]cdx.ExternalReference{{Type: cdx.ERTypeDistribution, URL: source.Redacted(l.Files[p.Path].From)}}
		}
		all = append(all, c)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Tools:     &cdx.ToolsChoice{Components: &[]cdx.Component{{Type: cdx.ComponentTypeApplication, Name: "kubexm", Version: b.Program}}},
		Component: &cdx.Component{Type: cdx.ComponentTypePlatform, Name: cmp.Or(b.Cluster, "kubernetes")},
	}
	bom.Components, bom.Dependencies = &all, &parts
	var out bytes.Buffer
	err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(bom, cdx.SpecVersion1_6)
	return out.Bytes(), err
}

// fileComponent describes a member of a bundle: a program as published, or a blob of a kind.
func fileComponent(p packaged, a Artifact, kind string) (cdx.Component, error) {
	c := cdx.Component{
		BOMRef: p.Path, Type: cdx.ComponentTypeFile, Name: path.Base(p.Path), MIMEType: kind, Hashes: hashes(p.SHA256),
		Evidence: &cdx.Evidence{Occurrences: &[]cdx.EvidenceOccurrence{{Location: p.Path}}},
	}
	if isPackage(p.Path) {
		return packageComponent(c)
	}
	if a.Component == "" {
		return c, nil
	}
	known, err := find(a.Component)
	if err != nil {
		return c, err
	}
	from := a.expand(known.Base + "{file}")
	c.Type, c.Name, c.Version = cdx.ComponentTypeApplication, a.Component, a.Version
	c.PackageURL = purl("generic", a.Component, a.Version, url.Values{"arch": {a.Arch}, "checksum": {"sha256:" + p.SHA256}, "download_url": {from}})
	c.ExternalReferences = &[]cdx.ExternalReference{{Type: cdx.ERTypeDistribution, URL: from}}
	c.Properties = arch(a.Arch)
	return c, nil
}

// rpmForm is how files of RPM packages are named: name-version-release.arch.rpm.
var rpmForm = regexp.MustCompile(`^(.+)-([^-]+-[^-]+)\.([^.]+)\.rpm$`)

// packageComponent describes a package of an operating system, by the name of its file.
func packageComponent(c cdx.Component) (cdx.Component, error) {
	sys, err := distro.Find(strings.Split(c.BOMRef, "/")[1])
	if err != nil {
		return c, err
	}
	kind, part := "rpm", rpmForm.FindStringSubmatch(c.Name)
	if sys.Manager == "apt" { // name_version_arch.deb
		kind, part = "deb", append([]string{""}, strings.Split(strings.TrimSuffix(c.Name, ".deb"), "_")...)
	}
	if len(part) != 4 {
		return c, nil // named in a way of its own: it stays a file
	}
	c.Type, c.Name, c.Version, c.Properties = cdx.ComponentTypeLibrary, part[1], part[2], arch(part[3])
	c.PackageURL = purl(kind+"/"+strings.ToLower(sys.ID), c.Name, c.Version, url.Values{"arch": {part[3]}, "distro": {strings.ToLower(sys.ID) + "-" + sys.Version}})
	return c, nil
}

// imageComponent describes an image of one architecture.
func imageComponent(i Item, manifest ocispec.Descriptor) (cdx.Component, error) {
	ref, err := registry.ParseReference(i.Image)
	if err != nil {
		return cdx.Component{}, err
	}
	name, version := ref.Registry+"/"+ref.Repository, manifest.Digest.String()
	about := url.Values{"arch": {i.Arch}, "repository_url": {name}}
	if ref.ValidateReferenceAsTag() == nil {
		about.Set("tag", ref.Reference)
	}
	return cdx.Component{
		BOMRef: i.String(), Type: cdx.ComponentTypeContainer, Name: name, Version: ref.Reference, Hashes: hashes(manifest.Digest.Encoded()),
		PackageURL: purl("oci", path.Base(name), version, about), Properties: arch(i.Arch),
	}, nil
}

func hashes(sum string) *[]cdx.Hash { return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}} }

func arch(name string) *[]cdx.Property { return &[]cdx.Property{{Name: "kubexm:arch", Value: name}} }

// purl is a package URL (https://github.com/package-url/purl-spec): type, name, version, qualifiers.
func purl(kind, name, version string, more url.Values) string {
	text := fmt.Sprintf("pkg:%s/%s@%s?%s", kind, url.QueryEscape(name), url.QueryEscape(version), more.Encode())
	return strings.ReplaceAll(text, "%3A", ":")
}

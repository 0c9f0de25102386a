package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbom lists the modules that the program for linux/amd64 was made of, as it says itself: in CycloneDX 1.6.
func (r *release) sbom() error {
	std := strings.TrimPrefix(r.made.GoVersion, "go") // vulnerabilities of the standard library are published for "stdlib"
	all := []cdx.Component{{BOMRef: "stdlib", Type: cdx.ComponentTypeLibrary, Name: "stdlib", Version: std, PackageURL: purl("stdlib", std)}}
	for _, m := range r.made.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := cdx.Component{BOMRef: m.Path, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl(m.Path, m.Version)}
		// What go.sum has is the SHA-256 of a list of the module's files: https://pkg.go.dev/golang.org/x/mod/sumdb/dirhash.
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) > 0 {
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
		}
		all = append(all, c)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.date.Format(time.RFC3339),
		Component: &cdx.Component{BOMRef: "kubexm", Type: cdx.ComponentTypeApplication, Name: "kubexm", Version: r.version, PackageURL: purl(r.made.Main.Path, r.version)},
	}
	bom.Components = &all
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return err
	}
	return os.WriteFile(r.named(".sbom.cdx.json"), out.Bytes(), 0o644)
}

// purl is the package URL of a Go module, in the case that its path has: what scanners look for.
func purl(module, version string) string {
	return "pkg:golang/" + module + "@" + strings.ReplaceAll(version, "+", "%2B")
}

package distro

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
)

func (s System) resolveRPMs(ctx context.Context, here *runner.Runner, arch string, names, sources []string) ([]File, error) {
	var repos strings.Builder
	for i, src := range sources {
		proxy := ""
		if strings.HasPrefix(src, "http://127.0.0.1:") { // this machine's own: no proxy leads there
			proxy = "proxy=_none_\n"
		}
		fmt.Fprintf(&repos, "[source%d]\nname=source%[1]d\nbaseurl=%s\nenabled=1\ngpgcheck=0\nskip_if_unavailable=0\nmodule_hotfixes=1\n%s", i, src, proxy)
	}
	script := runner.Inputs("RELEASE", s.Version, "ARCH", Machine(arch)) + "set -- " + runner.Quote(names...) + "\n" + runner.Script(scripts, "dnf")
	out, err := here.User(ctx, script, strings.NewReader(repos.String()))
	if err != nil {
		return nil, toolError(err, "dnf with its command download", "dnf and dnf-plugins-core", keyring{})
	}
	urls, lists, _ := strings.Cut(out, "\n= ")
	listed, err := readPrimaries("\n= "+lists, sources)
	if err != nil {
		return nil, fmt.Errorf("reading the index: %w", err)
	}
	var files []File
	for line := range strings.Lines(urls) {
		line = strings.TrimSpace(line)
		u, err := url.Parse(line)
		if err != nil || u.Scheme == "" || !strings.HasSuffix(line, ".rpm") {
			continue // a remark
		}
		f, ok := listed[line]
		if !ok {
			return nil, fmt.Errorf("dnf download --url: the index has no SHA-256 of %s", u.Redacted())
		}
		files = append(files, f)
	}
	return files, nil
}

// readPrimaries returns the packages of several lists, each "\n= sourceN-ID/.../NAME SIZE\n" and the file of
// that size, by the URLs that they are published at.
func readPrimaries(text string, sources []string) (map[string]File, error) {
	all := map[string]File{}
	for text != "" {
		var name string
		var source, size int
		if _, err := fmt.Sscanf(text, "\n= %s %d\n", &name, &size); err != nil {
			return nil, err
		}
		_, err := fmt.Sscanf(name, "source%d-", &source)
		text = text[1:]
		text = text[strings.Index(text, "\n")+1:]
		if err != nil || source >= len(sources) || size > len(text) {
			return nil, fmt.Errorf("unexpected list %s", name)
		}
		r, err := unpacked(path.Ext(name), strings.NewReader(text[:size]))
		if err == nil {
			err = readPrimary(r, sources[source], all)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		text = text[size:]
	}
	return all, nil
}

// readPrimary adds the packages of a primary.xml that have a SHA-256.
func readPrimary(r io.Reader, source string, to map[string]File) error {
	for d := xml.NewDecoder(r); ; {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		start, ok := t.(xml.StartElement)
		if !ok || start.Name.Local != "package" {
			continue
		}
		var p struct {
			Checksum xmlChecksum `xml:"checksum"`
			Size     xmlSize     `xml:"size"`
			Location xmlLocation `xml:"location"`
		}
		if err := d.DecodeElement(&p, &start); err != nil {
			return err
		}
		if sum := strings.TrimSpace(p.Checksum.Sum); p.Checksum.Type == "sha256" {
			at := source + p.Location.Href
			to[at] = File{path.Base(p.Location.Href), at, p.Size.Package, strings.ToLower(sum)}
		}
	}
}

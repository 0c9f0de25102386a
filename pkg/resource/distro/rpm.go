package distro

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/cavaliergopher/rpm"
)

// The parts of primary.xml that dnf and yum resolve with: https://rpm-software-management.github.io/createrepo_c.
type (
	xmlPackage struct {
		XMLName  xml.Name    `xml:"package"`
		Type     string      `xml:"type,attr"`
		Name     string      `xml:"name"`
		Arch     string      `xml:"arch"`
		Version  xmlVersion  `xml:"version"`
		Checksum xmlChecksum `xml:"checksum"`
		Summary  string      `xml:"summary"`
		Size     xmlSize     `xml:"size"`
		Location xmlLocation `xml:"location"`
		Format   xmlFormat   `xml:"format"`
	}
	xmlVersion struct {
		Epoch   string `xml:"epoch,attr"`
		Version string `xml:"ver,attr"`
		Release string `xml:"rel,attr"`
	}
	xmlChecksum struct {
		Type string `xml:"type,attr"`
		ID   string `xml:"pkgid,attr,omitempty"`
		Sum  string `xml:",chardata"`
	}
	xmlSize struct {
		Package   int64  `xml:"package,attr"`
		Installed uint64 `xml:"installed,attr"`
	}
	xmlLocation struct {
		Href string `xml:"href,attr"`
	}
	xmlFormat struct {
		License   string     `xml:"rpm:license"`
		Source    string     `xml:"rpm:sourcerpm"`
		Provides  []xmlEntry `xml:"rpm:provides>rpm:entry"`
		Requires  []xmlEntry `xml:"rpm:requires>rpm:entry"`
		Conflicts []xmlEntry `xml:"rpm:conflicts>rpm:entry"`
		Obsoletes []xmlEntry `xml:"rpm:obsoletes>rpm:entry"`
		Files     []string   `xml:"file"`
	}
	xmlEntry struct {
		Name    string `xml:"name,attr"`
		Flags   string `xml:"flags,attr,omitempty"` // empty: any version will do
		Epoch   string `xml:"epoch,attr,omitempty"`
		Version string `xml:"ver,attr,omitempty"`
		Release string `xml:"rel,attr,omitempty"`
	}
)

// rpmFlags are the comparisons in dependencies, by their bits (rpmds.h).
var rpmFlags = map[int]string{rpm.DepFlagLesser: "LT", rpm.DepFlagGreater: "GT", rpm.DepFlagEqual: "EQ", rpm.DepFlagLesserOrEqual: "LE", rpm.DepFlagGreaterOrEqual: "GE"}

func xmlEntries(all []rpm.Dependency) (list []xmlEntry) {
	for _, d := range all {
		if strings.HasPrefix(d.Name(), "rpmlib(") { // asked of rpm itself
			continue
		}
		e := xmlEntry{Name: d.Name()}
		if flag := rpmFlags[d.Flags()&(rpm.DepFlagLesser|rpm.DepFlagGreater|rpm.DepFlagEqual)]; flag != "" && d.Version() != "" {
			e.Flags, e.Epoch, e.Version, e.Release = flag, fmt.Sprint(d.Epoch()), d.Version(), d.Release()
		}
		list = append(list, e)
	}
	return list
}

// readRPM reads of an RPM package what an index says of it.
func readRPM(file string) (Package, error) {
	f, err := os.Open(file)
	if err != nil {
		return Package{}, err
	}
	defer f.Close()
	p, err := rpm.Read(bufio.NewReader(f))
	if err != nil {
		return Package{}, fmt.Errorf("reading %s: %w", file, err)
	}
	x := &xmlPackage{
		Type: "rpm", Name: p.Name(), Arch: p.Architecture(), Version: xmlVersion{fmt.Sprint(p.Epoch()), p.Version(), p.Release()},
		Summary: p.Summary(), Size: xmlSize{Installed: p.Size()},
		Format: xmlFormat{
			License: p.License(), Source: p.SourceRPM(), Provides: xmlEntries(p.Provides()), Requires: xmlEntries(p.Requires()),
			Conflicts: xmlEntries(p.Conflicts()), Obsoletes: xmlEntries(p.Obsoletes()),
		},
	}
	for _, f := range p.Files() {
		x.Format.Files = append(x.Format.Files, f.Name())
	}
	is := Package{Name: p.Name(), rpm: x}
	for _, e := range x.Format.Provides {
		is.Provides = append(is.Provides, e.Name)
	}
	return is, nil
}

// primaryFile is a file that primary.xml lists by convention.
var primaryFile = regexp.MustCompile(`^/etc/|bin/|^/usr/lib/sendmail$`)

// rpmIndex is the metadata of a repository in dir, on a host, and how dnf or yum reads that and nothing else.
func rpmIndex(dir string, all []Entry) (map[string][]byte, error) {
	wanted := map[string]bool{}
	for _, p := range all {
		for _, e := range p.Package.rpm.Format.Requires {
			wanted[e.Name] = true
		}
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s<metadata xmlns=\"http://linux.duke.edu/metadata/common\" xmlns:rpm=\"http://linux.duke.edu/metadata/rpm\" packages=\"%d\">\n", xml.Header, len(all))
	for _, p := range all {
		x := *p.Package.rpm
		x.Checksum = xmlChecksum{"sha256", "YES", p.SHA256}
		x.Size.Package, x.Location.Href = p.Size, p.Name
		x.Format.Files = nil
		for _, f := range p.Package.rpm.Format.Files {
			if wanted[f] || primaryFile.MatchString(f) {
				x.Format.Files = append(x.Format.Files, f)
			}
		}
		one, err := xml.Marshal(x)
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", p.Name, err)
		}
		text.Write(append(one, '\n'))
	}
	text.WriteString("</metadata>\n")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(text.Bytes()) // to memory
	_ = z.Close()
	repomd := fmt.Sprintf(xml.Header+`<repomd xmlns="http://linux.duke.edu/metadata/repo"><revision>1</revision><data type="primary"><checksum type="sha256">%x</checksum>`+
		`<open-checksum type="sha256">%x</open-checksum><location href="%s"/><timestamp>1</timestamp><size>%d</size><open-size>%d</open-size></data></repomd>
`, sha256.Sum256(packed.Bytes()), sha256.Sum256(text.Bytes()), rpmList, packed.Len(), text.Len())
	return map[string][]byte{
		rpmList: packed.Bytes(), rpmTop: []byte(repomd),
		path.Join("repos", "kubexm.repo"): []byte("[kubexm]\nname=kubexm\nbaseurl=file://" + dir + "\nenabled=1\ngpgcheck=0\nmodule_hotfixes=1\n"),
	}, nil
}

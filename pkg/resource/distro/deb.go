package distro

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

const (
	maxControl = 1 << 20  // bytes of a package's description
	maxWindow  = 64 << 20 // bytes of memory to unpack with
)

// readDeb reads of a Debian package (deb(5)) what an index says of it.
func readDeb(file string) (Package, error) {
	f, err := os.Open(file)
	if err != nil {
		return Package{}, err
	}
	defer f.Close()
	text, err := debControl(bufio.NewReader(f))
	if err != nil {
		return Package{}, fmt.Errorf("reading %s: %w", file, err)
	}
	p := Package{control: text}
	for line := range strings.Lines(text) {
		switch key, value, _ := strings.Cut(line, ":"); key {
		case "Package":
			p.Name = strings.TrimSpace(value)
		case "Version":
			p.Version = strings.TrimSpace(value)
		case "Provides":
			for name := range strings.SplitSeq(value, ",") {
				name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
				p.Provides = append(p.Provides, name)
			}
		}
	}
	if p.Name == "" {
		return p, fmt.Errorf("reading %s: it does not say of which package it is", file)
	}
	return p, nil
}

// debControl returns the control stanza: the file ./control in the member control.tar of an ar(5) archive.
func debControl(r *bufio.Reader) (string, error) {
	magic := make([]byte, 8)
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != "!<arch>\n" {
		return "", errors.New("it is not a Debian package")
	}
	for header := make([]byte, 60); ; {
		if _, err := io.ReadFull(r, header); err != nil {
			return "", fmt.Errorf("looking for control.tar: %w", err)
		}
		size, err := strconv.ParseInt(strings.TrimSpace(string(header[48:58])), 10, 64)
		if err != nil {
			return "", fmt.Errorf("looking for control.tar: %w", err)
		}
		if name := strings.TrimRight(string(header[:16]), " /"); strings.HasPrefix(name, "control.tar") {
			t, err := unpacked(path.Ext(name), io.LimitReader(r, size))
			if err != nil {
				return "", err
			}
			return tarredControl(t)
		}
		if _, err := io.CopyN(io.Discard, r, size+size&1); err != nil {
			return "", fmt.Errorf("looking for control.tar: %w", err)
		}
	}
}

// unpacked undoes the compression that goes by the name's extension.
func unpacked(ext string, r io.Reader) (io.Reader, error) {
	switch ext {
	case ".gz":
		return gzip.NewReader(r)
	case ".xz":
		return xz.NewReader(r)
	case ".zst":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	case ".tar", ".xml":
		return r, nil
	}
	return nil, fmt.Errorf("unknown compression: %s", ext)
}

func tarredControl(r io.Reader) (string, error) {
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err != nil {
			return "", fmt.Errorf("looking for the control file: %w", err)
		}
		if path.Clean(h.Name) == "control" && h.Size <= maxControl {
			text, err := io.ReadAll(t)
			return strings.TrimRight(string(text), "\n") + "\n", err
		}
	}
}

// debIndex is the file Packages of a repository, and how apt on a host reads that and nothing else. It all lies in dir, on
// the host. It bears no signature: it comes by the same way as the orders to install from it (ADR 0019).
func debIndex(dir string, all []Entry) map[string][]byte {
	var text strings.Builder
	for _, p := range all {
		fmt.Fprintf(&text, "%sFilename: ./%s\nSize: %d\nSHA256: %s\n\n", p.Package.control, p.Name, p.Size, p.SHA256)
	}
	return map[string][]byte{
		debList:        []byte(text.String()),
		"sources.list": []byte("deb [trusted=yes] file:" + dir + " ./\n"),
		"apt.conf": []byte(`Dir::Etc::SourceList "` + dir + `/sources.list";
Dir::Etc::SourceParts "/dev/null";
` + noPins + `Dir::State::Lists "` + dir + `/lists";
Dir::Cache "` + dir + `/cache";
APT::Sandbox::User "root";
` + clearHooks),
	}
}

// noPins keeps apt from preferring what others prefer: a release that is not there is an error to it.
const noPins = `Dir::Etc::Preferences "/dev/null"; Dir::Etc::PreferencesParts "/dev/null"; APT::Default-Release "";
`

// clearHooks keeps what others have configured to happen around an update from happening.
const clearHooks = `Acquire::Languages "none";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
`

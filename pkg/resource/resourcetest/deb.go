package resourcetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
)

// Deb is a Debian package of version 1.0 that holds no file: control.tar.gz has its name, and further lines.
func Deb(name string, lines ...string) []byte {
	text := "Package: " + name + "\nVersion: 1.0\nArchitecture: amd64\nMaintainer: nobody <nobody@example.com>\n"
	for _, l := range lines {
		text += l + "\n"
	}
	text += "Description: package for tests\n"
	b := bytes.NewBufferString("!<arch>\n")
	for _, m := range []struct {
		name    string
		content []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", tarred("./control", text)}, {"data.tar.gz", tarred("", "")}} {
		fmt.Fprintf(b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, 0, 0, 0, "100644", len(m.content))
		b.Write(m.content)
		if len(m.content)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// tarred is a packed archive of one file; without a name, of none.
func tarred(name, text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	if name != "" {
		_ = t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}) // to memory
		_, _ = t.Write([]byte(text))
	}
	_ = t.Close()
	_ = z.Close()
	return b.Bytes()
}

package resource

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSBOMOfPackages(t *testing.T) {
	l, members := lock{Files: map[string]lockedFile{}}, []packaged{}
	for _, key := range []string{
		"os/debian12/amd64/libstdc++6_12.2.0-14+deb12u1_amd64.deb", "os/debian12/amd64/socat_1:1.7.4~rc1-2_amd64.deb",
		"os/rocky9/arm64/python3-libs-3.9.21-2.el9.aarch64.rpm", "os/debian12/amd64/odd.deb",
	} {
		l.Files[key] = lockedFile{From: "http://me:hush@mirror.example.com/" + key}
		members = append(members, packaged{Path: key, SHA256: sumOf([]byte(key))})
	}
	text, err := empty(t).sbom(Bundle{}, l, members)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Components []struct{ Name, Version, Type, PURL string }
	}
	if err := json.Unmarshal(text, &list); err != nil || bytes.Contains(text, []byte("hush")) {
		t.Errorf("%v\n%s", err, text)
	}
	var got []string
	for _, c := range list.Components {
		got = append(got, c.Type+" "+c.Name+" "+c.Version+" "+c.PURL)
	}
	want := []string{
		"library libstdc++6 12.2.0-14+deb12u1 pkg:deb/debian/libstdc%2B%2B6@12.2.0-14%2Bdeb12u1?arch=amd64&distro=debian-12",
		"library socat 1:1.7.4~rc1-2 pkg:deb/debian/socat@1:1.7.4~rc1-2?arch=amd64&distro=debian-12",
		"library python3-libs 3.9.21-2.el9 pkg:rpm/rocky/python3-libs@3.9.21-2.el9?arch=aarch64&distro=rocky-9",
		"file odd.deb  ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

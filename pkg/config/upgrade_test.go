package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestPath finds ways from one release to another.
func TestPath(t *testing.T) {
	newest := func(minor int) string { return VersionsFor(fmt.Sprintf("v1.%d.0", minor)).Kubernetes }
	for _, c := range []struct{ name, was, is, want string }{
		{"nowhere", "v1.37.1 v3.7.1", "v1.37.1 v3.7.1", ""},
		{"a patch release", "v1.37.0 v3.7.1", "v1.37.1 v3.7.1", "v1.37.1 v3.7.1"},
		{"a minor version", "v1.34.2 v3.6.16", "v1.35.8 v3.6.16", "v1.35.8 v3.6.16"},
		{"three of them", "v1.34.2 v3.6.16", "v1.37.0 v3.7.1", newest(35) + " v3.6.16, " + newest(36) + " v3.6.16, v1.37.0 v3.7.1"},
		{"without etcd", "v1.34.2", "v1.36.4", newest(35) + ", v1.36.4"},
		{"etcd alone", "v1.37.1 v3.7.1", "v1.37.1 v3.7.4", "v1.37.1 v3.7.4"},
		{"etcd is too old for the next", "v1.36.4 v3.6.8", "v1.37.1 v3.7.1", "v1.36.4 v3.6.16, v1.37.1 v3.7.1"},
		{"etcd follows on the way", "v1.34.1 v3.6.5", "v1.37.1 v3.7.1", newest(35) + " v3.6.16, " + newest(36) + " v3.6.16, v1.37.1 v3.7.1"},
		{"two minor versions of etcd", "v1.33.1 v3.5.24", "v1.37.1 v3.7.1", "v1.33.1 v3.5.33, " + newest(34) + " v3.6.16, " + newest(35) + " v3.6.16, " + newest(36) + " v3.6.16, v1.37.1 v3.7.1"},
		{"etcd stays behind", "v1.34.2 v3.6.5", "v1.36.4 v3.6.5", newest(35) + " v3.6.5, v1.36.4 v3.6.5"},
		{"back by one", "v1.37.1 v3.7.1", "v1.36.4 v3.7.1", "v1.36.4 v3.7.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			release := func(text string) Release {
				k, e, _ := strings.Cut(text, " ")
				return Release{k, e}
			}
			var got []string
			for _, r := range Path(release(c.was), release(c.is)) {
				got = append(got, strings.TrimSpace(r.Kubernetes+" "+r.Etcd))
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("got %s, want %s", strings.Join(got, ", "), c.want)
			}
		})
	}
}

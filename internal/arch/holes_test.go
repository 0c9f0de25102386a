package arch

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// holes are versions of modules from which on a vulnerability is fixed, with its number in https://pkg.go.dev/vuln or https://nvd.nist.gov. Add what
// govulncheck finds; it needs the internet, this list does not.
var holes = []struct{ module, fixed, id string }{
	{"github.com/cloudflare/circl", "v1.6.1", "GO-2025-3754"},
	{"github.com/cloudflare/circl", "v1.6.3", "CVE-2026-1229"},
	{"github.com/containerd/containerd", "v1.7.29", "CVE-2024-25621"},
	{"github.com/containerd/containerd/v2", "v2.1.5", "CVE-2024-25621"},
	{"github.com/docker/docker", "v28.0.0", "CVE-2025-54410"},
	{"github.com/go-git/go-git/v5", "v5.13.0", "GO-2025-3367"},
	{"github.com/go-jose/go-jose/v4", "v4.0.5", "GO-2025-3485"},
	{"github.com/golang-jwt/jwt/v5", "v5.2.2", "GO-2025-3553"},
	{"github.com/opencontainers/selinux", "v1.13.0", "CVE-2025-52881"},
	{"github.com/ulikunitz/xz", "v0.5.15", "GO-2025-3922"},
	{"golang.org/x/crypto", "v0.31.0", "GO-2024-3321"},
	{"golang.org/x/crypto", "v0.35.0", "GO-2025-3487"},
	{"golang.org/x/crypto", "v0.45.0", "GO-2025-4134"},
	{"golang.org/x/net", "v0.33.0", "GO-2024-3333"},
	{"golang.org/x/net", "v0.36.0", "GO-2025-3503"},
	{"golang.org/x/net", "v0.38.0", "GO-2025-3595"},
	{"golang.org/x/oauth2", "v0.27.0", "GO-2025-3488"},
	{"google.golang.org/grpc", "v1.64.1", "GO-2024-2978"},
	{"google.golang.org/protobuf", "v1.33.0", "GO-2024-2611"},
}

// TestNoKnownHoles compares the modules that kubexm, and the tools that make it, are built of with the list.
func TestNoKnownHoles(t *testing.T) {
	for _, name := range []string{"../../go.mod", "../../tools/go.mod"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := modfile.Parse(name, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(file.Require) < 50 || len(file.Replace) > 0 {
			t.Fatalf("%s: %d modules, %d replaced", name, len(file.Require), len(file.Replace))
		}
		for _, why := range vulnerable(file) {
			t.Errorf("%s: %s", strings.TrimPrefix(name, "../../"), why)
		}
	}
	old, err := modfile.Parse("go.mod", []byte("module old\nrequire golang.org/x/net v0.37.0\n"), nil)
	if err != nil || len(vulnerable(old)) != 1 {
		t.Errorf("an old module: %q, %v", vulnerable(old), err)
	}
}

func vulnerable(file *modfile.File) (all []string) {
	for _, r := range file.Require {
		for _, h := range holes {
			if r.Mod.Path == h.module && semver.Compare(r.Mod.Version, h.fixed) < 0 {
				all = append(all, r.Mod.String()+" has "+h.id+", fixed in "+h.fixed)
			}
		}
	}
	return all
}

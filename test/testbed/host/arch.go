package host

import (
	"maps"
	"slices"
	"strings"
)

// triplets are the names that compilers give to architectures.
var triplets = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// Archs lists the architectures that components can be built for.
func Archs() []string { return slices.Sorted(maps.Keys(triplets)) }

// Triplet is the name that compilers give to one of Archs.
func Triplet(arch string) string { return triplets[arch] }

// ForCross lists what building C programs for another of Archs takes.
func ForCross(arch string) []Tool {
	triplet := Triplet(arch)
	return []Tool{
		{triplet + "-gcc", "gcc-" + strings.ReplaceAll(triplet, "_", "-")},
		{"/usr/" + triplet + "/include/stdlib.h", "libc6-dev-" + arch + "-cross"},
		{"pkg-config", "pkg-config"},
		{"mmdebstrap", "mmdebstrap"},
	}
}

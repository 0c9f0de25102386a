package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// aliases are words of others for what a field takes.
var aliases = map[string]string{
	"control-plane": "master", "controlplane": "master", "control_plane": "master", "controller": "master", "server": "master",
	"node": "worker", "agent": "worker", "minion": "worker", "lb": "loadbalancer",
	"x86_64": "amd64", "x64": "amd64", "aarch64": "arm64", "armv8": "arm64",
}

// Nearest returns the candidate that s most likely was meant to be, or "".
func Nearest(s string, candidates []string) string {
	if meant := aliases[strings.ToLower(s)]; slices.Contains(candidates, meant) {
		return meant
	}
	best, bestDistance := "", max(2, len(s)/3)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(s), strings.ToLower(c)); d < bestDistance && d < len(c) {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the number of single-letter edits and swaps of neighbours
// between two texts (optimal string alignment).
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	var d [65][65]int
	for i := range len(a) + 1 {
		for j := range len(b) + 1 {
			switch {
			case i == 0 || j == 0:
				d[i][j] = i + j
			case a[i-1] == b[j-1]:
				d[i][j] = d[i-1][j-1]
			default:
				d[i][j] = 1 + min(d[i-1][j], d[i][j-1], d[i-1][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}

// elsewhere returns the path of the one field in the whole configuration that
// has a name, or "".
func elsewhere(name string) string {
	var found []string
	var search func(t reflect.Type, path string)
	search = func(t reflect.Type, path string) {
		for _, f := range fieldsOf(t) {
			at, ft := join(path, f.name), t.FieldByIndex(f.index).Type
			if strings.EqualFold(f.name, name) {
				found = append(found, at)
			}
			if ft.Kind() == reflect.Slice {
				at += "[]"
			}
			if ft.Kind() == reflect.Slice || ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			if isObject(ft) {
				search(ft, at)
			}
		}
	}
	search(reflect.TypeFor[v1alpha1.Cluster](), "")
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

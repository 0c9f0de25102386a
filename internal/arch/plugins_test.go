package arch

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/plugin"
)

// places are where a plugin may be named: its row, the table of steps and the configuration's types name any; a package, or a
// file where the name is another's word, those that stand here.
var places = map[string]string{
	"pkg/plugin/":            "",
	"pkg/task/plugins.go":    "",
	"pkg/apis/":              "",
	"pkg/step/calico/":       "calico",
	"pkg/step/cilium/":       "cilium",
	"pkg/step/containerd/":   "containerd",
	"pkg/step/crio/":         "cri-o",
	"pkg/step/flannel/":      "flannel",
	"pkg/step/loadbalancer/": "keepalived kube-vip",
	"pkg/step/localpath/":    "local-path",
	"pkg/step/registry/":     "harbor",
	"pkg/resource/registry/": "harbor",     // the client of its API
	"pkg/resource/layout.go": "containerd", // an annotation that archives of images have, whoever reads them
	"pkg/config/flags.go":    "containerd", // a flag of kubelets
	"pkg/config/show.go":     "kube-vip",   // what is proposed to who starts
}

// TestPluginsAreNamedInRows finds what knows a plugin by its name instead of asking its row. Comments may name any.
func TestPluginsAreNamedInRows(t *testing.T) {
	plugins := slices.DeleteFunc(plugin.All(), func(p plugin.Plugin) bool { return p.Name == "registry" || p.Name == "docker" }) // names of more than these
	steps, err := os.ReadFile("../../pkg/task/plugins.go")
	if err != nil {
		t.Fatal(err)
	}
	proxies := plugin.Proxies()
	for _, p := range plugin.All() {
		proxy := slices.ContainsFunc(proxies, func(q plugin.Proxy) bool { return q.Name == p.Name })
		if !proxy && !strings.Contains(string(steps), strconv.Quote(p.Name)+":") {
			t.Errorf("pkg/task/plugins.go has no steps of %s", p.Name)
		}
	}
	used := map[string]bool{}
	for _, top := range []string{"pkg", "internal", "cmd"} {
		err := filepath.WalkDir("../../"+top, func(file string, _ fs.DirEntry, err error) error {
			name := strings.TrimPrefix(filepath.ToSlash(file), "../../")
			if err != nil || strings.HasSuffix(name, "_test.go") || helper(filepath.Dir(name)) || !slices.Contains([]string{".go", ".sh"}, filepath.Ext(name)) {
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for _, p := range namedIn(name, text, plugins) {
				i := slices.IndexFunc(placesOf(name), func(place string) bool {
					return places[place] == "" || slices.Contains(strings.Fields(places[place]), p)
				})
				if i < 0 {
					t.Errorf("%s names %s: ask its row in pkg/plugin", name, p)
					continue
				}
				used[placesOf(name)[i]+" "+p] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for place, names := range places {
		for _, n := range strings.Fields(names) {
			if !used[place+" "+n] {
				t.Errorf("%s does not name %s any more: take it out of places", place, n)
			}
		}
	}
}

func placesOf(file string) (all []string) {
	for place := range places {
		if strings.HasPrefix(file, place) {
			all = append(all, place)
		}
	}
	return all
}

// namedIn returns the plugins that stand in a file, but for its comments; in Go in any way of writing: KubeVIP is kube-vip.
func namedIn(file string, text []byte, plugins []plugin.Plugin) (all []string) {
	words := string(text)
	if filepath.Ext(file) == ".go" {
		var s scanner.Scanner
		var b strings.Builder
		s.Init(token.NewFileSet().AddFile(file, -1, len(text)), text, nil, 0)
		for _, tok, literal := s.Scan(); tok != token.EOF; _, tok, literal = s.Scan() {
			b.WriteString(literal + " ")
		}
		words = b.String()
	}
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
	words = plain(words)
	for _, p := range plugins {
		if strings.Contains(words, plain(p.Name)) {
			all = append(all, p.Name)
		}
	}
	return all
}

func TestNamedIn(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"a.go", "package a // flannel\n/* nginx */", ""},
		{"a.go", "package a\nvar x = v1alpha1.BalancerKubeVIP", "kube-vip"},
		{"a.go", "package a\nconst x = `systemctl stop containerd`", "containerd"},
		{"a.go", "package a\nimport \"pkg/step/flannel\"", "flannel"},
		{"a.sh", "ip link delete flannel.1", "flannel"},
	} {
		if got := strings.Join(namedIn(c.file, []byte(c.text), plugin.All()), " "); got != c.want {
			t.Errorf("%s names %q, want %q", c.text, got, c.want)
		}
	}
}

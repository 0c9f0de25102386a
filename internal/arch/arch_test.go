// Package arch holds the test of who may import whom.
package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kubexm/kubexm/"

// layers lists the packages from the bottom up: a package may import only from
// lines above its own. "x/*" are all packages below x.
var layers = [][]string{
	{"pkg/util/fault"},
	{"pkg/util/*"},
	{"pkg/apis/*", "pkg/templates", "pkg/connector/internal/*", "pkg/backup", "pkg/chart"},
	{"pkg/connector", "pkg/plugin"},
	{"pkg/runner", "pkg/pki", "pkg/config", "pkg/signature", "pkg/backup/*"},
	{"pkg/resource/*"},
	{"pkg/resource", "pkg/kube", "pkg/etcd"},
	{"pkg/cluster"},
	{"pkg/step"},
	{"pkg/plan"},
	{"pkg/step/*", "pkg/observe"},
	{"pkg/engine", "pkg/task"},
	{"pkg/module", "pkg/preflight"},
	{"pkg/pipeline"},
	{"internal/store"},
	{"internal/app"},
	{"internal/cli/style"},
	{"internal/cli/*"},
	{"internal/cli", "internal/rest"},
	{"cmd/*"},
}

// helpers are no part of the program: tests, the testbed and what makes releases may import anything.
func helper(pkg string) bool {
	return strings.HasSuffix(pkg, "test") || strings.HasPrefix(pkg, "test/") || strings.HasPrefix(pkg, "hack/") || slices.Contains([]string{"internal/arch", "pkg/util/golden"}, pkg)
}

// reserved says which packages alone may import one from outside. A name that
// ends in "/" stands for all packages below it.
var reserved = map[string][]string{
	"os/exec":                  {"pkg/connector"},
	"golang.org/x/crypto/ssh/": {"pkg/connector", "pkg/signature"},
	"github.com/spf13/cobra/":  {"internal/cli", "cmd/*"},
	"k8s.io/client-go/":        {"pkg/kube", "pkg/pki"},
	"go.etcd.io/":              {"pkg/etcd"},
	"google.golang.org/grpc/":  {"pkg/etcd"},
	"modernc.org/sqlite/":      {"internal/store"},
	"github.com/minio/":        {"pkg/backup/place"},
	"github.com/pkg/sftp/":     {"pkg/connector", "pkg/backup/place"},
	"filippo.io/age/":          {"pkg/backup"},
	"helm.sh/helm/v4/":         {"pkg/chart"},
	"mvdan.cc/sh/v3/":          {},
	"testing":                  {},
}

func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; seen++ {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, fault := range faults(strings.TrimPrefix(p.ImportPath, module), p.Imports) {
			t.Error(fault)
		}
	}
	if seen < 20 {
		t.Errorf("only %d packages were seen", seen)
	}
}

// faults says what is wrong with the imports of a package.
func faults(from string, imports []string) (all []string) {
	if helper(from) {
		return nil
	}
	rank := layer(from)
	if rank < 0 {
		return []string{from + " is in no layer: add it to layers"}
	}
	for _, imp := range imports {
		to, ours := strings.CutPrefix(imp, module)
		switch {
		case !ours:
			for name, users := range reserved {
				if within(imp, name) && !slices.ContainsFunc(users, func(u string) bool { return matches(from, u) }) {
					all = append(all, from+" imports "+imp+", which is reserved for "+strings.Join(users, " and "))
				}
			}
		case helper(to):
			all = append(all, from+" imports "+to+", which is for tests")
		case layer(to) >= rank:
			all = append(all, from+" imports "+to+", which is not below it")
		}
	}
	return all
}

func layer(pkg string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.ContainsFunc(l, func(p string) bool { return matches(pkg, p) }) })
}

func matches(pkg, pattern string) bool {
	dir, wild := strings.CutSuffix(pattern, "/*")
	return pkg == pattern || wild && strings.HasPrefix(pkg, dir+"/")
}

func within(imp, name string) bool {
	dir, all := strings.CutSuffix(name, "/")
	return imp == dir || all && strings.HasPrefix(imp, name)
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		from string
		imp  string
		want string
	}{
		{"pkg/step/etcd", module + "pkg/step", ""},
		{"pkg/step/etcd", module + "pkg/step/host", "pkg/step/etcd imports pkg/step/host, which is not below it"},
		{"pkg/step", module + "pkg/step/etcd", "pkg/step imports pkg/step/etcd, which is not below it"},
		{"pkg/engine", module + "pkg/task", "pkg/engine imports pkg/task, which is not below it"},
		{"pkg/nowhere", "fmt", "pkg/nowhere is in no layer: add it to layers"},
		{"pkg/runner", "os/exec", "pkg/runner imports os/exec, which is reserved for pkg/connector"},
		{"pkg/runner", "golang.org/x/crypto/ssh/agent", "pkg/runner imports golang.org/x/crypto/ssh/agent, which is reserved for pkg/connector and pkg/signature"},
		{"pkg/runner", module + "pkg/runner/runnertest", "pkg/runner imports pkg/runner/runnertest, which is for tests"},
		{"pkg/runner/runnertest", "os/exec", ""},
		{"pkg/pki", "k8s.io/client-go/tools/clientcmd", ""},
		{"pkg/step", "k8s.io/client-go", "pkg/step imports k8s.io/client-go, which is reserved for pkg/kube and pkg/pki"},
	} {
		if got := strings.Join(faults(c.from, []string{c.imp}), "\n"); got != c.want {
			t.Errorf("%s importing %s: got %q, want %q", c.from, c.imp, got, c.want)
		}
	}
}

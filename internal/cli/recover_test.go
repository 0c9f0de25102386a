package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestRecovered prints what a cluster has told, and writes it to a file, once.
func TestRecovered(t *testing.T) {
	is := &app.Recovered{
		Cluster: "prod", ID: "7e22222222222222222222222", Kubexm: "v1.2.3", Config: "kind: Cluster\n",
		Secrets: []string{"spec.global.password", "spec.hosts[node1].sudoPassword"}, Outside: []string{"spec.global.privateKeyPath: the file ~/.ssh/prod"},
	}
	var out, told bytes.Buffer
	p := &program{out: &out, err: &told, app: app.App{Workdir: app.DefaultWorkdir}}
	if err := p.printRecovered(is); err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "==== stdout\n"+out.String()+"==== stderr\n"+told.String())
	t.Chdir(t.TempDir())
	p.request.Name, p.quiet = "prod", true
	if err := p.printRecovered(is); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("conf", "prod", "cluster.yaml")
	if text, err := os.ReadFile(file); err != nil || string(text) != is.Config {
		t.Errorf("%s has %q, %v", file, text, err)
	}
	if err := p.printRecovered(is); fault.ExitCode(err) != fault.ExitUsage {
		t.Errorf("a file is overwritten: %v", err)
	}
}

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra/doc"

	"github.com/kubexm/kubexm/pkg/util/golden"
)

//go:generate go test -run ^TestDocs$ -update

// TestDocs keeps docs/cli in step with the commands.
func TestDocs(t *testing.T) {
	const dir = "../../docs/cli"
	root := (&program{}).root()
	root.DisableAutoGenTag = true
	fresh := t.TempDir()
	if err := doc.GenMarkdownTree(root, fresh); err != nil {
		t.Fatal(err)
	}
	if *golden.Update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(dir, os.DirFS(fresh)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(pages(t, dir), pages(t, fresh)); diff != "" {
		t.Errorf("docs/cli is not up to date; go generate ./internal/cli writes it (-file +now):\n%s", diff)
	}
}

func pages(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(f)] = string(text)
	}
	return texts
}
